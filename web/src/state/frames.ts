// Gathers what arrives between two frames: a fast model sends hundreds of chunks a second, a screen shows sixty.

export interface Gatherer<T> {
  add: (item: T) => void;
  flush: () => void;
}

export function eachFrame<T>(take: (items: T[]) => void): Gatherer<T> {
  let items: T[] = [];
  let cancel: (() => void) | null = null;
  const flush = (): void => {
    cancel?.();
    cancel = null;
    if (items.length === 0) return;
    const taken = items;
    items = [];
    take(taken);
  };
  const add = (item: T): void => {
    items.push(item);
    cancel ??= schedule(flush);
  };
  return { add, flush };
}

/** A hidden page gets no frames, but its answers go on. */
function schedule(run: () => void): () => void {
  if (document.hidden) {
    const timer = setTimeout(run, 100);
    return () => clearTimeout(timer);
  }
  // A page hidden before its next frame would wait for it in vain.
  const timer = setTimeout(run, 200);
  const frame = requestAnimationFrame(run);
  return () => {
    clearTimeout(timer);
    cancelAnimationFrame(frame);
  };
}
