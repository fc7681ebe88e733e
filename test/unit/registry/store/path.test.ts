/** Bounds the number of source files on the path of one registration, from V8's coverage. */
import { Session } from 'node:inspector/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import { MemoryLog } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { realClock } from '../../../wait.ts';

/** Maximum number of files, without parsers and checkers, that a reader of this path must open. */
const FILES_MAX = 12;
const COUNTED = /\/src\/registry\/((?!compatibility\/).*\.ts)$/;

const session = new Session();
beforeAll(() => session.connect());
afterAll(() => session.disconnect());

/** Sources of the registry in which a function runs during `run`. */
async function filesEntered(run: () => Promise<unknown>): Promise<string[]> {
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  // Reading the coverage resets the counters, so imports do not count.
  await session.post('Profiler.takePreciseCoverage');
  await run();
  const { result } = await session.post('Profiler.takePreciseCoverage');
  await session.post('Profiler.stopPreciseCoverage');
  const entered = result
    .filter(({ functions }) => functions.some(({ ranges }) => (ranges[0]?.count ?? 0) > 0))
    .flatMap(({ url }) => COUNTED.exec(url.split('?')[0] as string)?.[1] ?? []);
  return [...new Set(entered)].sort();
}

const record = (...names: string[]): string =>
  JSON.stringify({
    type: 'record',
    name: 'Order',
    fields: names.map((name) => ({ name, type: ['null', 'int'], default: null })),
  });

test(`a registration with a check enters at most ${FILES_MAX} files of the registry`, async () => {
  const registry = await Registry.open(new MemoryLog(), silentLogger, { clock: realClock });
  try {
    await registry.register('orders-value', { text: record('id') }, {});
    const files = await filesEntered(() =>
      registry.register('orders-value', { text: record('id', 'note') }, {}),
    );
    expect(registry.versions('orders-value', 'no').map(({ version }) => version)).toEqual([1, 2]);
    expect(files).toContain('store/registering.ts');
    expect(files).toContain('store/writer.ts');
    expect(files.length, files.join(' ')).toBeLessThanOrEqual(FILES_MAX);
  } finally {
    await registry.close();
  }
});
