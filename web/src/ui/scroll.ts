// Follows text that grows, until the reader scrolls up.
import type { RefObject } from 'preact';
import { useCallback, useLayoutEffect, useRef, useState } from 'preact/hooks';

const nearPx = 48;

export interface Following {
  viewport: RefObject<HTMLDivElement | null>;
  content: RefObject<HTMLDivElement | null>;
  away: boolean; // the reader is elsewhere than at the end
  toEnd: () => void;
}

export function useFollowing(): Following {
  const viewport = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const [away, setAway] = useState(false);

  const toEnd = useCallback((): void => {
    following.current = true;
    setAway(false);
    const element = viewport.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, []);

  useLayoutEffect(() => {
    const view = viewport.current;
    const inner = content.current;
    if (!view || !inner) return undefined;
    let last = view.scrollTop;
    const fromEnd = (): number => view.scrollHeight - view.clientHeight - view.scrollTop;
    const onScroll = (): void => {
      // Only a move upwards leaves the end: growth alone changes the distance without anyone having scrolled.
      if (fromEnd() <= nearPx) following.current = true;
      else if (view.scrollTop < last) following.current = false;
      last = view.scrollTop;
      setAway(!following.current);
    };
    const onWheel = (event: WheelEvent): void => {
      // Before the scroll event comes, growth could pull the reader down again.
      if (event.deltaY < 0 && view.scrollHeight > view.clientHeight) following.current = false;
    };
    const observer = new ResizeObserver(() => {
      if (following.current) view.scrollTop = view.scrollHeight;
    });
    observer.observe(inner);
    observer.observe(view);
    view.addEventListener('scroll', onScroll, { passive: true });
    view.addEventListener('wheel', onWheel, { passive: true });
    view.scrollTop = view.scrollHeight;
    return () => {
      observer.disconnect();
      view.removeEventListener('scroll', onScroll);
      view.removeEventListener('wheel', onWheel);
    };
  }, []);
  return { viewport, content, away, toEnd };
}
