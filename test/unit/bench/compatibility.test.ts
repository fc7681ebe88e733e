/** The benches that search for faults find none in their short form: no disagreement between
 *  verdict and live decode, or between columns and decoder, and no text that crashes a parser. */
import { expect, test } from 'vitest';
import { bench as columns } from '../../../bench/columns.ts';
import { bench as compatibility } from '../../../bench/compatibility.ts';
import type { Bench } from '../../../bench/harness.ts';
import { bench as parsers } from '../../../bench/parsers.ts';
import { smokeContext } from './context.ts';

async function smoke(bench: Bench): Promise<{ readonly said: string[]; readonly missed: string[] }> {
  const said: string[] = [];
  const results = await bench.run(
    smokeContext({ settings: { native: 'auto' }, say: (line) => said.push(line) }),
  );
  return { said, missed: results.filter(({ met }) => met === false).map(({ metric }) => metric) };
}

test('verdict and live decode agree over random pairs of both formats', async () => {
  expect(await smoke(compatibility)).toEqual({ said: [], missed: [] });
}, 300_000);

test('columns of both kernels and the decoder agree over mutated events of random pairs', async () => {
  expect(await smoke(columns)).toEqual({ said: [], missed: [] });
}, 300_000);

test('hostile texts are refused or accepted and never crash a parser', async () => {
  expect(await smoke(parsers)).toEqual({ said: [], missed: [] });
}, 300_000);
