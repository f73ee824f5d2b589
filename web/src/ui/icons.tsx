// Line drawings, 24 units wide.
import type { JSX } from 'preact';

const paths = {
  plus: 'M12 5v14M5 12h14',
  list: 'M4 6.500h16M4 12h16M4 17.500h10',
  close: 'M6 6l12 12M18 6L6 18',
  gear: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.800v4.400M9 14.800v4.400',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v10H9zM15 9V5H5v10h4',
  check: 'M5 12.500l4.5 4.500L19 7.5',
  retry: 'M19 12a7 7 0 1 1-2.2-5.100M19 4v4h-4',
  edit: 'M5 19l1-4L15.5 5.500l3 3L9 18zM13.5 7.500l3 3',
  export: 'M12 4v10.5M7.5 10.5l4.5 4.5 4.5-4.5M5 19.5h14',
  trash: 'M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7',
  image: 'M4 5h16v14H4zM4 16l5-5 4 4 2.5-2.500L20 17M15.5 9h.01',
  down: 'M12 5v14M6 13l6 6 6-6',
  left: 'M14.5 6l-6 6 6 6',
  right: 'M9.5 6l6 6-6 6',
  tool: 'M14.5 6.500a4 4 0 0 0-5.3 4.900L4.5 16l3.5 3.5 4.700-4.700a4 4 0 0 0 4.8-5.300l-2.5 2.5-2.5-2.500z',
  thought: 'M12 4a6 6 0 0 0-3.5 10.900V17h7v-2.100A6 6 0 0 0 12 4zM9.5 20h5',
  forward: 'M5 6l7 6-7 6zM14 6l6 6-6 6',
  keyboard: 'M3 7h18v10H3zM7 10.500h.01M11 10.500h.01M15 10.500h.01M8 14h8',
};

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

/** A button with a drawing on it, named for those who do not see it. */
export function IconButton(props: {
  icon: IconName;
  label: string;
  onClick?: () => void;
  disabled?: boolean;
  pressed?: boolean;
  class?: string;
  id?: string;
}): JSX.Element {
  return (
    <button
      type="button"
      id={props.id}
      class={`icon-button ${props.class ?? ''}`}
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <Icon name={props.icon} />
    </button>
  );
}
