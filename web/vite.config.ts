import { defineConfig } from 'vite';

export default defineConfig({
  // Relative addresses, so that the page also works behind a proxy that adds a path.
  base: './',
  build: {
    target: 'es2022',
    outDir: 'dist',
    emptyOutDir: true,
    // The content policy allows nothing inline: every asset is a file.
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    sourcemap: false,
    reportCompressedSize: false,
  },
  server: { proxy: { '^/(v1|props|slots|health)': process.env.FATHOM_URL ?? 'http://127.0.0.1:8080' } },
});
