/** Both keyed states in both implementations: refused values, and calls after `close`. */
import { describe, expect, it } from 'vitest';
import type { RowRun, SessionState, WindowKernels, WindowState } from '../../src/addon/window-surface.ts';
import { AdmittedBatch } from '../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { outcome, ROW_BYTES, SIDES } from './window-kit.ts';

/** State under test, with its calls by name. */
interface Kind {
  readonly name: string;
  open(kernels: WindowKernels, ms: number, shards: number): State;
}
interface State {
  readonly state: WindowState | SessionState;
  take(at: number): Promise<RowRun>;
  find(accountId: bigint): number;
  /** Calls that are valid while the state is open. */
  readonly calls: readonly (() => unknown)[];
}

const page = (): ArrayBuffer => new ArrayBuffer(ROW_BYTES);
const cursor = (): Float64Array => new Float64Array(1);

/** Calls that both states support with the same arguments. */
const shared = (state: WindowState | SessionState): State['calls'] => [
  () => state.accumulate(EventBatch.create(1), AdmittedBatch.create(1)),
  () => state.deltaBytesMax(),
  () => state.encodeDeltas(new Uint8Array(1000)),
  () => state.applyDeltas(new Uint8Array(0)),
  () => state.bytes(),
];

const KINDS: readonly Kind[] = [
  {
    name: 'slices',
    open: (kernels, ms, shards) => {
      const state = kernels.open(ms, shards);
      return {
        state,
        take: (at) => state.seal(at),
        find: (accountId) => state.find(0, accountId, page()),
        calls: [
          ...shared(state),
          () => state.reserve(0, 1),
          () => state.load(0, page(), 0),
          () => state.copy(0, cursor(), page()),
          () => state.copyRange(0, 0, cursor(), page()),
          () => state.find(0, 0n, page()),
          () => state.slices(new Float64Array(0)),
          () => state.keyCount(),
          () => state.trim(),
          () => state.drop(0),
        ],
      };
    },
  },
  {
    name: 'sessions',
    open: (kernels, ms, shards) => {
      const state = kernels.openSessions(ms, shards);
      return {
        state,
        take: (at) => state.fire(at),
        find: (accountId) => state.find(accountId, page()),
        calls: [
          ...shared(state),
          () => state.reserve(1),
          () => state.load(page(), 0),
          () => state.copy(cursor(), page()),
          () => state.copyRange(0, cursor(), page()),
          () => state.find(0n, page()),
          () => state.leastEnd(),
          () => state.sessionCount(),
          () => state.mergedCount(),
        ],
      };
    },
  },
];

const cases = KINDS.flatMap((kind) => SIDES.map((kernels) => ({ kind, kernels })));

describe.each(cases)('state of $kind.name, $kernels.name', ({ kind, kernels }) => {
  it('a state refuses invalid widths, shards, accounts and times', async () => {
    for (const [ms, shards] of [
      [0, 1],
      [1, 0],
      [1, 257],
      [2 ** 49, 1],
      [1.5, 1],
    ] as const)
      expect(outcome(() => kind.open(kernels, ms, shards))).toBe('out_of_range');
    const { state, find, take } = kind.open(kernels, 10, 1);
    for (const id of [-1n, 2n ** 64n]) expect(outcome(() => find(id))).toBe('out_of_range');
    for (const at of [Number.NaN, 0.5, 2 ** 54])
      await expect(take(at)).rejects.toMatchObject({ code: 'out_of_range' });
    state.close();
  });

  it('an empty state gives a run without rows, which can be closed repeatedly', async () => {
    const { state, take } = kind.open(kernels, 10, 1);
    const run = await take(0);
    expect([run.rowCount, run.bytes, run.read(0, page())]).toEqual([0, 0, 0]);
    run.close();
    run.close();
    expect(outcome(() => run.read(0, page()))).toBe('closed');
    state.close();
  });

  it('a state can be closed repeatedly and refuses every call afterwards', async () => {
    const { state, take, calls } = kind.open(kernels, 10, 1);
    for (const call of calls) expect(outcome(call)).not.toBe('closed');
    state.close();
    state.close();
    for (const call of calls) expect(outcome(call), `${call}`).toBe('closed');
    await expect(take(0)).rejects.toMatchObject({ code: 'closed' });
  });
});
