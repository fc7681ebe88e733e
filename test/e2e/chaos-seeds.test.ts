/** Short chaos runs, one a row: each ends with zero deltas and with every planned fault applied. A
 *  failure shows the command that repeats the plan. */
import { expect, it } from 'vitest';
import { FAULT_KINDS, FAULTS, type FaultKind } from '../../src/chaos/faults.ts';
import { reportOf, runChaos } from '../fixtures/chaos.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const { brokers, postgres } = await sharedStack();
const RUN_MS = 900_000;

interface Row {
  readonly seed: number;
  readonly relay: 'poll' | 'wal';
  /** own: servers of the run, with faults of their own; shared: the servers of the tests. */
  readonly servers: 'own' | 'shared';
  readonly flags: readonly string[];
}

/** Faults that do not disturb other tests on the shared servers. */
const SHARED = FAULT_KINDS.filter((kind) => FAULTS[kind].need === 'any');
/** Faults of a run on its own servers. */
const ownKinds = (relay: string, flags: readonly string[]): readonly FaultKind[] =>
  FAULT_KINDS.filter(
    (kind) =>
      (relay === 'wal' || FAULTS[kind].need !== 'wal') &&
      (flags.includes('-broker-count=3') || FAULTS[kind].need !== 'cluster'),
  );

const ROWS: readonly Row[] = [
  { seed: 1, relay: 'poll', servers: 'own', flags: ['-dup-rate=0.05'] },
  { seed: 2, relay: 'wal', servers: 'own', flags: ['-dup-rate=0.3', '-broker-count=3'] },
  { seed: 3, relay: 'poll', servers: 'shared', flags: ['-dup-rate=0.3'] },
  { seed: 4, relay: 'wal', servers: 'shared', flags: ['-dup-rate=0.05', '-retry-rate=0.5'] },
];

it.each(ROWS)(
  'seed $seed with -relay=$relay on $servers servers ends with zero deltas',
  async ({ seed, relay, servers, flags }) => {
    const where =
      servers === 'own'
        ? []
        : [`-brokers=${brokers}`, `-postgres=${postgres}`, `-faults=${SHARED.join(',')}`];
    const asked = [...where, ...flags, `-seed=${seed}`, `-relay=${relay}`, '-duration=10s'];
    const { code, stdout, stderr } = await runChaos(own, asked);
    const report = stdout === '' ? undefined : reportOf(stdout);
    expect({ code, reasons: report?.reasons }, `${report?.replay}\n${stderr}`).toEqual({
      code: 0,
      reasons: [],
    });
    expect(report?.outcomes.every(({ applied }) => applied)).toBe(true);
    const kinds = servers === 'shared' ? SHARED : ownKinds(relay, flags);
    expect(new Set(report?.outcomes.map(({ fault }) => fault.kind))).toEqual(new Set(kinds));
  },
  RUN_MS,
);
