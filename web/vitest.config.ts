import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: { include: ['src/**/*.test.ts', 'report/**/*.test.ts'], watch: false, pool: 'threads', maxWorkers: 1 },
});
