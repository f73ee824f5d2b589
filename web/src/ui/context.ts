// What every part of the page can reach.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Answers } from '../state/answers';
import type { App, AppState } from '../state/app';
import type { Library } from '../state/library';
import { useStore } from '../state/store';
import type { ServerWatch } from '../state/watch';
import { languages, type Strings } from '../strings';

export interface Parts {
  app: App;
  library: Library;
  answers: Answers;
  watch: ServerWatch;
}

export const PartsContext = createContext<Parts | null>(null);
export const StringsContext = createContext<Strings>(languages.en);

export function useParts(): Parts {
  const parts = useContext(PartsContext);
  if (parts === null) throw new Error('the page was rendered without its parts');
  return parts;
}

export function useApp<S>(select: (state: AppState) => S): S {
  return useStore(useParts().app.store, select);
}

export function useStrings(): Strings {
  return useContext(StringsContext);
}
