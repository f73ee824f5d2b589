// A value that can be watched. Values are never changed in place.
import { useLayoutEffect, useState } from 'preact/hooks';

export class Store<T> {
  private readonly watchers = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(next: T): void {
    if (Object.is(next, this.current)) return;
    this.current = next;
    for (const watcher of [...this.watchers]) watcher();
  }

  update(change: (value: T) => T): void {
    this.set(change(this.current));
  }

  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** Renders again when what `select` takes out of the store is another thing. */
export function useStore<T, S>(store: Store<T>, select: (value: T) => S): S {
  const selected = select(store.value);
  const [, setSeen] = useState(selected);
  useLayoutEffect(() => store.watch(() => setSeen(() => select(store.value))), [store]);
  return selected;
}
