// Sanitised HTML, and a copy button on each code block that lies inside of it, in a list for example.
import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { createPortal } from 'preact/compat';
import type { SafeHtml } from '../markdown/render';
import { CopyCodeButton } from './copy';

export function NestedCode({ html }: { html: SafeHtml }): JSX.Element {
  const root = useRef<HTMLDivElement>(null);
  const [codes, setCodes] = useState<HTMLElement[]>([]);
  useLayoutEffect(() => {
    const found = [...(root.current?.querySelectorAll<HTMLElement>('.code') ?? [])];
    if (found.length > 0 || codes.length > 0) setCodes(found);
  }, [html]);
  return (
    <>
      <div class="block" ref={root} dangerouslySetInnerHTML={{ __html: html }} />
      {codes.map((code, index) =>
        createPortal(<CopyCodeButton key={index} text={code.querySelector('code')?.textContent ?? ''} />, code),
      )}
    </>
  );
}
