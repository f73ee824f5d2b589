// The browser's own dialog: it keeps the focus, closes by Escape and gives the focus back.
import type { ComponentChildren, JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { useStrings } from './context';
import { IconButton } from './icons';

export function Dialog(props: {
  title: string;
  class?: string;
  onClose: (() => void) | null; // null: there is no way round it
  children: ComponentChildren;
}): JSX.Element {
  const strings = useStrings();
  const element = useRef<HTMLDialogElement>(null);
  const { onClose } = props;
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const onCancel = (event: Event): void => {
    event.preventDefault();
    onClose?.();
  };
  return (
    <dialog
      ref={element}
      class={props.class}
      aria-label={props.title}
      onCancel={onCancel}
      onKeyDown={(event) => event.key === 'Escape' && onCancel(event)}
      onClick={(event) => event.target === element.current && onClose?.()}
    >
      <div class="dialog-body">
        <header>
          <h2>{props.title}</h2>
          {onClose !== null && <IconButton icon="close" label={strings.close} onClick={onClose} />}
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

export function ConfirmDialog(props: {
  title: string;
  question: string;
  action: string;
  onAction: () => void;
  onClose: () => void;
}): JSX.Element {
  const strings = useStrings();
  return (
    <Dialog title={props.title} class="small" onClose={props.onClose}>
      <p>{props.question}</p>
      <div class="buttons">
        <button type="button" class="button" onClick={props.onClose}>
          {strings.cancel}
        </button>
        <button type="button" class="button danger" onClick={props.onAction}>
          {props.action}
        </button>
      </div>
    </Dialog>
  );
}
