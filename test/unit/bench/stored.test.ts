/** Runs that a bench keeps from its earlier calls. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { keptRuns, type MadeBy, madeHere } from '../../../bench/stored.ts';

interface Run extends MadeBy {
  readonly cell: { readonly rate: number };
  readonly deltas: number;
}

/** Rates of the kept runs of a stored report, and what the bench said. */
function keptOf(runs: readonly Run[], rates: readonly number[]): readonly [readonly number[], string[]] {
  const out = mkdtempSync(join(tmpdir(), 'kept-runs-'));
  onTestFinished(() => rmSync(out, { recursive: true }));
  if (runs.length > 0) writeFileSync(join(out, 'some.json'), JSON.stringify({ runs }));
  const said: string[] = [];
  const context = { out, say: (line: string) => void said.push(line) };
  const wanted = rates.map((rate) => ({ rate }));
  const kept = keptRuns<Run['cell'], Run>(context, 'some', wanted, ({ deltas }) => deltas === 0);
  return [kept.map(({ cell }) => cell.rate), said];
}

const here = madeHere();
const elsewhere: MadeBy = { build: 'earlier', machine: { ...here.machine, cores: 96 } };

it('a bench keeps the runs of the wanted settings, whatever build and machine made them', () => {
  const runs = [1, 2, 3].map((rate) => ({ cell: { rate }, deltas: 0, ...(rate === 2 ? here : elsewhere) }));
  expect(keptOf(runs, [1, 2, 4])).toEqual([[1, 2], ['2 runs of earlier calls are kept']]);
});

it('a run that does not hold is kept for the build that made it, and made again by another', () => {
  const runs = [
    { cell: { rate: 1 }, deltas: 1, ...here },
    { cell: { rate: 2 }, deltas: 1, ...elsewhere },
  ];
  expect(keptOf(runs, [1, 2])[0]).toEqual([1]);
});

it('a bench keeps no run of a folder without a report', () => {
  expect(keptOf([], [1])).toEqual([[], []]);
});
