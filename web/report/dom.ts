// Elements of the page. Texts only ever become text nodes: names may be anyone's.

type Child = Node | string | null;
type Attributes = Record<string, string | boolean>;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, '');
    else if (value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** A part of the page with a heading that links can lead to. */
export function section(id: string, title: string, ...children: Child[]): HTMLElement {
  return element('section', { id, 'aria-labelledby': `${id}-title` }, element('h2', { id: `${id}-title` }, title), ...children);
}

/** A table that scrolls by itself where it is wider than the page, also by keyboard. */
export function scrolling(label: string, table: HTMLTableElement): HTMLElement {
  return element('div', { class: 'scroll', role: 'region', 'aria-label': label, tabindex: '0' }, table);
}

export function badge(letter: string, index: number): HTMLElement {
  return element('span', { class: `badge line-${index % 8}` }, element('span', {}, letter));
}
