// Numbers as people read them.
import type { Strings } from '../strings';

export function formatCount(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** 1,234 or 56.7 or 8.90: three digits are enough. */
export function formatRate(value: number): string {
  if (value >= 100) return formatCount(value);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** 128K for 131,072; exact below ten thousand. */
export function formatTokens(value: number): string {
  if (value < 10000) return formatCount(value);
  if (value < 1024 * 1024) return `${Math.round(value / 1024)}K`;
  return `${(value / 1024 / 1024).toFixed(1)}M`;
}

export function formatDuration(ms: number, strings: Strings): string {
  const seconds = ms / 1000;
  if (seconds < 60) return strings.seconds(seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds).toString());
  return strings.minutes(Math.floor(seconds / 60), Math.floor(seconds % 60).toString());
}
