import { expect, it } from 'vitest';
import { loadNodeRdkafka } from '../../../../src/io/kafka/node-rdkafka/load.ts';
import { failureOf } from '../../../../src/shell/terminal/report.ts';

it('a node-rdkafka built for another Node.js ends a command with 3 and advice to rebuild', async () => {
  const abi = new Error(
    'The module was compiled against a different Node.js version\nusing NODE_MODULE_VERSION 115.',
  );
  const thrown = await loadNodeRdkafka(() => Promise.reject(abi)).catch((error: unknown) => error);
  const { exit, line } = failureOf(thrown);
  expect(exit).toBe(3);
  expect(line).toContain('was compiled against a different Node.js version; run `npm rebuild node-rdkafka`');
  expect(line).toMatch(/\[addon_missing\]$/);
});
