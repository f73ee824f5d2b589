// Fields of a form, each with its label.
import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { useStrings } from './context';

export function TextField(props: {
  label: string;
  rows: number;
  value?: string;
  initial?: string; // instead of `value`, where what is kept is not the text itself
  placeholder?: string;
  problem?: string;
  code?: boolean;
  onChange: (text: string) => void;
}): JSX.Element {
  const [text, setText] = useState(props.initial ?? '');
  const id = useId();
  const change = (next: string): void => {
    setText(next);
    props.onChange(next);
  };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <textarea
        id={id}
        class={props.code ? 'code-field' : ''}
        rows={props.rows}
        spellcheck={!props.code}
        placeholder={props.placeholder}
        value={props.value ?? text}
        aria-invalid={props.problem ? true : undefined}
        aria-describedby={props.problem ? `${id}-problem` : undefined}
        onInput={(event) => change(event.currentTarget.value)}
      />
      {props.problem && (
        <span class="warning" id={`${id}-problem`}>
          {props.problem}
        </span>
      )}
    </div>
  );
}

/** Null for an empty field; undefined for text that is no number in range. */
export function readNumber(text: string, min: number, max: number, whole: boolean): number | null | undefined {
  const trimmed = text.trim().replace(',', '.');
  if (trimmed === '') return null;
  const value = Number(trimmed);
  const good = Number.isFinite(value) && value >= min && value <= max && (!whole || Number.isInteger(value));
  return good ? value : undefined;
}

export function NumberField(props: {
  label: string;
  value: number | null;
  min: number;
  max: number;
  whole?: boolean;
  placeholder: string;
  onChange: (value: number | null) => void;
}): JSX.Element {
  const strings = useStrings();
  const id = useId();
  const [text, setText] = useState(props.value === null ? '' : String(props.value));
  const wrong = readNumber(text, props.min, props.max, props.whole ?? false) === undefined;
  const change = (next: string): void => {
    setText(next);
    const value = readNumber(next, props.min, props.max, props.whole ?? false);
    if (value !== undefined) props.onChange(value);
  };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <input
        id={id}
        inputMode={props.whole ? 'numeric' : 'decimal'}
        value={text}
        placeholder={props.placeholder}
        aria-invalid={wrong}
        aria-describedby={wrong ? `${id}-problem` : undefined}
        onInput={(event) => change(event.currentTarget.value)}
      />
      {wrong && (
        <span class="warning" id={`${id}-problem`}>
          {strings.numberWrong(String(props.min), String(props.max))}
        </span>
      )}
    </div>
  );
}

/** With `unset` there is one more choice, whose value is null. */
export function SelectField<T extends string>(props: {
  label: string;
  value: T | null;
  unset?: string;
  names: Record<T, string>;
  onChange: (value: T | null) => void;
}): JSX.Element {
  const id = useId();
  const choices = Object.entries(props.names) as [T, string][];
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select
        id={id}
        value={props.value ?? ''}
        onChange={(event) =>
          props.onChange(choices.find(([value]) => value === event.currentTarget.value)?.[0] ?? null)
        }
      >
        {props.unset !== undefined && <option value="">{props.unset}</option>}
        {choices.map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}
