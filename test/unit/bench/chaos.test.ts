/** Runs of the chaos bench, and their page. */
import { expect, it } from 'vitest';
import { cellName, chaosCells } from '../../../bench/chaos/cells.ts';
import { type ChaosRun, chaosRunsPage } from '../../../bench/chaos/page.ts';
import { machine } from '../../../bench/harness.ts';

it('the bench has twelve runs of ten minutes at the required crash points, and twelve of two minutes at the others', () => {
  const cells = chaosCells();
  const ofLength = (durationMs: number): ReadonlySet<string> =>
    new Set(cells.filter((cell) => cell.durationMs === durationMs).map(({ point }) => point));
  expect(cells).toHaveLength(24);
  expect(new Set(cells.map(cellName)).size).toBe(24);
  expect(new Set(cells.map(({ seed }) => seed)).size).toBe(24);
  expect(ofLength(600_000)).toEqual(new Set(['commit', 'publish', 'effect']));
  expect(ofLength(120_000)).toEqual(new Set(['mark', 'offset', 'respond']));
  expect(cells.filter(({ durationMs }) => durationMs === 600_000)).toHaveLength(12);
});

it('the page of the runs shows each verdict, its deltas and its replay command', () => {
  const [held, broken] = chaosCells();
  const run: ChaosRun = {
    ...{ build: 'b1', machine: { ...machine(), cores: 2, cpu: 'A' } },
    ...{
      cell: held as ChaosRun['cell'],
      holds: true,
      reasons: [],
      replay: 'millrace chaos -seed=1',
      seconds: 611,
    },
    ...{ intents: 1000, orders: 1000, charges: 1000, deltas: 0, suppressed: 52, planned: 9, applied: 9 },
    ...{ kinds: { crash: 4, kill: 5 }, unplannedEnds: 0, pendingMax: 7, lagMax: 2000 },
  };
  const reasons = ['double_charge: 1, an order | twice'];
  const page = chaosRunsPage({
    ...{ bench: 'chaos', build: 'b', machine: machine(), results: [] },
    runs: [run, { ...run, cell: broken as ChaosRun['cell'], holds: false, deltas: 1, reasons }],
  });
  // Runs of earlier builds have no coverage.
  expect(page).not.toContain('gRPC');
  expect(page).toContain('1 of 2 runs hold: 2,000 intents, 2,000 charges, 1 deltas, 18 faults.');
  expect(page).toContain(
    '| commit poll 5% | 1 | 10 min | 611 s | 1,000 | 1,000 | 1,000 | 0 | 52 | 9 of 9 | 0 | 7 | 2,000 | b1 | 2 x A | holds |',
  );
  expect(page).toContain('**broken**: double_charge: 1, an order \\| twice');
  expect(page).toContain('| kill | 10 |');
  expect(page).toContain('- commit poll 5%: `millrace chaos -seed=1`');
  const coverage = {
    ...{ injected_duplicates: 50, redelivered: 2, repeats: 290, replayed: 288 },
    ...{ answers: 1290, answers_over_grpc: 640 },
  };
  const covered = chaosRunsPage({
    ...{ bench: 'chaos', build: 'b', machine: machine(), results: [] },
    runs: [
      { ...run, coverage },
      { ...run, cell: broken as ChaosRun['cell'] },
    ],
  });
  expect(covered).toContain('| run | injected | redelivered | repeats | gRPC |');
  expect(covered).toContain('| commit poll 5% | 50 | 2 | 290 | 640 of 1,290 |');
});
