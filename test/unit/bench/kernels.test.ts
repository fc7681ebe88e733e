/** The kernel benches in smoke mode: they run, report one digest for both sides, and compare the
 *  right kernels. */
import { expect, it } from 'vitest';
import type { Bench, BenchContext } from '../../../bench/harness.ts';
import { BENCHES } from '../../../bench/index.ts';
import type { Logger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';

const quiet = (): void => undefined;
const log: Logger = { debug: quiet, info: quiet, warn: quiet, error: quiet, child: () => log };

async function smoke(bench: Bench) {
  const said: string[] = [];
  const context: BenchContext = {
    smoke: true,
    repeats: 1,
    log,
    metrics: new Metrics(),
    settings: { native: 'on' },
    brokers: undefined,
    drain: new AbortController().signal,
    say: (line) => void said.push(line),
    onClose: quiet,
  };
  return { said, results: await bench.run(context) };
}

it.each([
  ['hash', 2],
  ['decode', 2],
  ['frame', 6],
] as const)(
  'the bench %s compares %i kernels with the reference implementation',
  { timeout: 300_000 },
  async (name, cases) => {
    const load = BENCHES[name] as () => Promise<{ readonly bench: Bench }>;
    const { bench } = await load();
    expect(bench.name).toBe(name);
    const { said, results } = await smoke(bench);
    expect(said).toHaveLength(cases);
    for (const line of said) expect(line).toMatch(/: xxh32 [0-9a-f]{8} on both sides$/);
    expect(results).toHaveLength(cases);
    for (const one of results) {
      expect(one).toMatchObject({
        unit: 'ns/row',
        against: expect.stringMatching(/^TypeScript /),
        goal: 'ratio >= 1.5',
      });
      expect(one.value).toBeGreaterThan(0);
      expect(one.ratio).toBeCloseTo((one.against_value as number) / one.value);
    }
  },
);

it('the bench keys compares the kernel with the reference implementation, with equal ids', async () => {
  const { bench } = await (BENCHES['keys'] as () => Promise<{ readonly bench: Bench }>)();
  const { said, results } = await smoke(bench);
  expect(said).toEqual([
    expect.stringMatching(/^1000 keys: \d+ of the last 4096 rows are not in their first slot$/),
  ]);
  expect(results).toMatchObject([{ unit: 'ns/row', goal: 'ratio >= 1.5' }]);
  expect(results[0]?.value).toBeGreaterThan(0);
});

it('the bench unit reports the time of its loop and the factor to the reference machine', async () => {
  const { bench } = await (BENCHES['unit'] as () => Promise<{ readonly bench: Bench }>)();
  const { results } = await smoke(bench);
  const [loop, factor] = results;
  expect(loop).toMatchObject({ unit: 'ns/step', goal: null });
  expect(loop?.value).toBeGreaterThan(0);
  expect(factor?.value).toBeGreaterThan(0);
  expect((loop?.value as number) / (factor?.value as number)).toBeCloseTo(9.7);
});
