import { type Plugin, defineConfig } from 'vite';

/** Puts scripts and styles into the document: a report is one file that asks nobody for anything. */
function inline(): Plugin {
  return {
    name: 'inline',
    enforce: 'post',
    generateBundle(_, bundle) {
      const document = bundle['index.html'];
      if (document?.type !== 'asset') throw new Error('index.html: expected a document, found none');
      let html = String(document.source);
      for (const [name, file] of Object.entries(bundle)) {
        if (file === document) continue;
        const source = file.type === 'chunk' ? file.code : String(file.source);
        const isStyle = name.endsWith('.css');
        const place = isStyle ? new RegExp(`<link[^>]*href="./${name}"[^>]*>`) : new RegExp(`<script[^>]*src="./${name}"[^>]*></script>`);
        if (!place.test(html)) throw new Error(`${name}: expected it in the document, found no place`);
        // A function, since "$&" in a replacement would have a meaning.
        html = html.replace(place, () =>
          isStyle ? `<style>${source.replaceAll('</style', '<\\/style')}</style>` : `<script type="module">${source.replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--')}</script>`,
        );
        delete bundle[name];
      }
      document.source = html;
    },
  };
}

export default defineConfig({
  root: 'report',
  base: './',
  plugins: [inline()],
  build: {
    target: 'es2022',
    outDir: '../report-dist',
    emptyOutDir: true,
    modulePreload: false,
    cssCodeSplit: false,
    sourcemap: false,
    reportCompressedSize: false,
  },
});
