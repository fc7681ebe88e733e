/** Twenty chaos runs of seconds on the shared servers. Each has its own seed, a crash point and two
 *  further faults; together they have every crash point with both relays, and every fault that does
 *  not disturb other tests. Four runs with all faults are in chaos-seeds.test.ts. */
import { describe, expect, it } from 'vitest';
import {
  CRASH_POINT_NAMES,
  type CrashPoint,
  FAULT_KINDS,
  FAULTS,
  type FaultKind,
} from '../../src/chaos/faults.ts';
import { reportOf, runChaos } from '../fixtures/chaos.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const RUN_MS = 900_000;
const FIRST_SEED = 5;
const SEEDS = 20;

interface Row {
  readonly seed: number;
  readonly relay: 'poll' | 'wal';
  readonly dupRate: number;
  readonly point: CrashPoint;
  readonly faults: readonly FaultKind[];
}

/** Faults beside the crash, of the services and of their links. */
const OTHERS = FAULT_KINDS.filter((kind) => FAULTS[kind].need === 'any' && kind !== 'crash');

const ROWS: readonly Row[] = Array.from({ length: SEEDS }, (_, index) => ({
  seed: FIRST_SEED + index,
  relay: index % 2 === 0 ? 'poll' : 'wal',
  dupRate: index % 4 < 2 ? 0.05 : 0.3,
  // The relay changes with each run, the point with each second one.
  point: CRASH_POINT_NAMES[Math.floor(index / 2) % CRASH_POINT_NAMES.length] as CrashPoint,
  faults: [
    'crash',
    OTHERS[(2 * index) % OTHERS.length] as FaultKind,
    OTHERS[(2 * index + 1) % OTHERS.length] as FaultKind,
  ],
}));

describe('short seeds', () => {
  it.each(ROWS)(
    'seed $seed with -relay=$relay and a crash at $point ends with zero deltas',
    async ({ seed, relay, dupRate, point, faults }) => {
      const { code, stdout, stderr } = await runChaos(own, [
        ...[`-brokers=${brokers}`, `-postgres=${postgres}`, `-seed=${seed}`, `-relay=${relay}`],
        ...[`-dup-rate=${dupRate}`, `-crash-point=${point}`, `-faults=${faults.join(',')}`],
      ]);
      const report = stdout === '' ? undefined : reportOf(stdout);
      const expected = { code: 0, reasons: [] };
      expect({ code, reasons: report?.reasons }, `${report?.replay}\n${stderr}`).toEqual(expected);
      expect(report?.outcomes.every(({ applied }) => applied)).toBe(true);
      expect(new Set(report?.outcomes.map(({ fault }) => fault.kind))).toEqual(new Set(faults));
    },
    RUN_MS,
  );

  it('the seeds together have every crash point with both relays, and every fault', () => {
    const points = new Set(ROWS.map(({ relay, point }) => `${relay} ${point}`));
    expect(points.size).toBe(2 * CRASH_POINT_NAMES.length);
    expect(new Set(ROWS.flatMap(({ faults }) => faults))).toEqual(new Set(['crash', ...OTHERS]));
  });
});
