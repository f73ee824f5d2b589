// Markdown to HTML that is safe to show. What a model writes is untrusted, so the last step is always the
// sanitiser.
import DOMPurify, { type Config } from 'dompurify';
import { Marked, type Tokens } from 'marked';
import { languageOf } from './blocks';

const tags = [
  'a',
  'b',
  'blockquote',
  'br',
  'code',
  'dd',
  'del',
  'details',
  'div',
  'dl',
  'dt',
  'em',
  'h1',
  'h2',
  'h3',
  'h4',
  'h5',
  'h6',
  'hr',
  'i',
  'img',
  'ins',
  'kbd',
  'li',
  'mark',
  'ol',
  'p',
  'pre',
  's',
  'samp',
  'small',
  'span',
  'strong',
  'sub',
  'summary',
  'sup',
  'table',
  'tbody',
  'td',
  'th',
  'thead',
  'tr',
  'u',
  'ul',
  'var',
  'wbr',
];
const config: Config = {
  ALLOWED_TAGS: tags,
  ALLOWED_ATTR: ['href', 'title', 'src', 'alt', 'class', 'align', 'start', 'colspan', 'rowspan'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  // What is no address is not measured by the rule for addresses.
  ADD_URI_SAFE_ATTR: ['align', 'start', 'colspan', 'rowspan'],
  // Links lead outside or nowhere: an address of this server is nothing for a model to write.
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:|data:image\/(?:png|jpeg|gif|webp);base64,)/i,
  RETURN_TRUSTED_TYPE: true,
};
const classes = /^(?:language-[\w+#.-]+|code|table)$/;
const imageData = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/**
 * A tag that is not known is shown as it was written: `vector<T>` outside of code is no markup. So is one with an
 * event handler: the sanitiser would take the handler away, but browsers report it before that.
 */
function knownMarkup(html: string): boolean {
  if (/<[!?]|[\s"'/]on\w+\s*=/i.test(html)) return false;
  const names = [...html.matchAll(/<\/?([a-zA-Z][\w:-]*)/g)].map((match) => (match[1] ?? '').toLowerCase());
  return names.length > 0 && names.every((name) => tags.includes(name));
}

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => (knownMarkup(text) ? text : escape(text)),
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? '☑ ' : '☐ '),
    code(code: Tokens.Code) {
      const language = languageOf(code);
      const kind = language === '' ? '' : ` class="language-${escape(language)}"`;
      return `<div class="code"><pre><code${kind}>${escape(code.text)}</code></pre></div>`;
    },
    image({ href, text }: Tokens.Image) {
      // An image from elsewhere would tell its server what was asked; it is a link that the user may follow.
      const alt = escape(text);
      return imageData.test(href)
        ? `<img src="${escape(href)}" alt="${alt}">`
        : `<a href="${escape(href)}">${alt || escape(href)}</a>`;
    },
  },
});

const purifier = DOMPurify(window);
purifier.addHook('uponSanitizeAttribute', (node, data) => {
  if (data.attrName === 'class') data.keepAttr = data.attrValue.split(/\s+/).every((name) => classes.test(name));
  if (data.attrName === 'src') data.keepAttr = node.nodeName === 'IMG' && imageData.test(data.attrValue);
  if (data.attrName === 'href') data.keepAttr = !/^data:/i.test(data.attrValue);
});
purifier.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A' && node.hasAttribute('href')) {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer nofollow');
  }
  if (node.nodeName === 'IMG' && !node.hasAttribute('src')) node.remove();
});

/** A string, or what stands for one where the browser insists that HTML comes from a sanitiser. */
export type SafeHtml = string & { readonly safe: unique symbol };

/** `definitions`: link definitions of other blocks of the same text. */
export function renderMarkdown(raw: string, definitions = ''): SafeHtml {
  const source = definitions === '' ? raw : `${raw}\n\n${definitions}`;
  const html = marked
    .parse(source, { async: false })
    .replace(/<table>/g, '<div class="table"><table>')
    .replace(/<\/table>/g, '</table></div>');
  return purifier.sanitize(html, config) as unknown as SafeHtml;
}
