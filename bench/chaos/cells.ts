/** Runs of the chaos bench: each crash point with both relays and both shares of duplicates. */
import { CRASH_POINT_NAMES, type CrashPoint } from '../../src/chaos/faults.ts';

/** Crash points of the requirements, whose runs are long. */
const LONG_POINTS: readonly CrashPoint[] = ['commit', 'publish', 'effect'];
const LONG_MS = 600_000;
const SHORT_MS = 120_000;
const RELAYS = ['poll', 'wal'] as const;
const DUPLICATES = [0.05, 0.3] as const;
const RATE = 200;
const BROKERS = 3;

export interface ChaosCell {
  readonly point: CrashPoint;
  readonly relay: (typeof RELAYS)[number];
  readonly dupRate: number;
  readonly seed: number;
  readonly durationMs: number;
  /** Requests a second. */
  readonly rate: number;
  readonly brokerCount: number;
}

/** Replaces the values of each run; undefined: those of the full bench. */
export interface CellOverrides {
  readonly durationMs?: number | undefined;
  readonly rate?: number | undefined;
  readonly brokerCount?: number | undefined;
}

export const cellName = ({ point, relay, dupRate }: ChaosCell): string =>
  `${point} ${relay} ${Math.round(dupRate * 100)}%`;

/** All runs; the long ones first. The seed of a run is its number. */
export function chaosCells({ durationMs, rate, brokerCount }: CellOverrides = {}): readonly ChaosCell[] {
  const points = [...LONG_POINTS, ...CRASH_POINT_NAMES.filter((point) => !LONG_POINTS.includes(point))];
  return points
    .flatMap((point) =>
      RELAYS.flatMap((relay) =>
        DUPLICATES.map((dupRate) => ({
          ...{ point, relay, dupRate, rate: rate ?? RATE, brokerCount: brokerCount ?? BROKERS },
          durationMs: durationMs ?? (LONG_POINTS.includes(point) ? LONG_MS : SHORT_MS),
        })),
      ),
    )
    .map((cell, index) => ({ ...cell, seed: index + 1 }));
}
