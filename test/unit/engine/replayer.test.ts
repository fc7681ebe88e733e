/** Replay of deltas that another version or another job wrote: they are reported and not
 *  applied. */
import { describe, expect, it } from 'vitest';
import { COVER_RANGES } from '../../../src/addon/window-surface.ts';
import { PARTITION_PROGRESS, SESSION_DELTAS, WINDOW_CLOCK } from '../../../src/core/layout/layouts.gen.ts';
import { createProgress } from '../../../src/core/layout/window-clock.ts';
import {
  encodeChanged,
  encodeDetached,
  encodeMove,
  RECORD,
} from '../../../src/engine/durability/changelog/records.ts';
import { liveSessions } from '../../../src/engine/durability/checkpoint/live.ts';
import { Replayer } from '../../../src/engine/durability/checkpoint/replayer.ts';
import type { StateManifest } from '../../../src/engine/durability/checkpoint/state-manifest.ts';
import { admittedOf, sessionDeltasOf } from '../../differential/session-kit.ts';
import { SIDES } from '../../differential/window-kit.ts';

const GAP_MS = 60;

function progressOf(offset: number): Float64Array {
  const progress = createProgress(1);
  progress[PARTITION_PROGRESS.NEXT_OFFSET / 8] = offset;
  progress[PARTITION_PROGRESS.CONSUMED / 8] = offset;
  progress[PARTITION_PROGRESS.ACCEPTED / 8] = offset;
  return progress;
}

const MANIFEST: StateManifest = {
  id: 1,
  ts: 1,
  job: {
    topic: 'events',
    skewMs: 0,
    latenessMs: 0,
    watermark: 'partition',
    window: 'session',
    gapMs: GAP_MS,
  },
  clusterId: 'test',
  topicId: undefined,
  shards: 1,
  base: undefined,
  spill: undefined,
  replayFrom: 1,
  formFrom: 0,
  durable: 0,
  frontier: Number.NEGATIVE_INFINITY,
  maxSeen: Number.NEGATIVE_INFINITY,
  fired: Number.NEGATIVE_INFINITY,
  progress: createProgress(1),
};

describe.each(SIDES)('replay of $name', (kernels) => {
  const clock = new Float64Array(WINDOW_CLOCK.BYTES / 8).fill(5);
  const written = (): Uint8Array => {
    const state = kernels.openSessions(GAP_MS, 1);
    const { events, admitted } = admittedOf([{ accountId: 7n, value: 3n, eventTs: 5n }]);
    state.accumulate(events, admitted);
    return sessionDeltasOf(state);
  };
  const replayed = (deltas: Uint8Array): readonly [string | undefined, number] => {
    const live = liveSessions(kernels.openSessions(GAP_MS, 1));
    const replayer = new Replayer(live, MANIFEST, new Float64Array(COVER_RANGES), false);
    const body = Buffer.concat([encodeMove(progressOf(1), clock, [0], new Uint32Array(0)), deltas]);
    void replayer.apply({ seq: 9, kind: RECORD.BATCH, durable: 8, body });
    return [replayer.fault, live.rowCount()];
  };

  it('the replayer applies deltas as they were written', () => {
    expect(replayed(written())).toEqual([undefined, 1]);
  });

  it.each([
    ['version', SESSION_DELTAS.VERSION],
    ['gap', SESSION_DELTAS.GAP_MS],
  ])('the replayer reports deltas of another %s', (_, at) => {
    const deltas = written();
    deltas[at] = (deltas[at] as number) - 1;
    const fault = 'record 9 of the changelog has deltas of an unknown form or of another job';
    expect(replayed(deltas)).toEqual([fault, 0]);
  });

  it('the replayer skips rows of an earlier form, and refuses rows of a later one', () => {
    const live = liveSessions(kernels.openSessions(GAP_MS, 1));
    const manifest = { ...MANIFEST, formFrom: 10 };
    const replayer = new Replayer(live, manifest, new Float64Array(COVER_RANGES), false);
    const body = Buffer.concat([encodeMove(progressOf(1), clock, [0], new Uint32Array(0)), written()]);
    void replayer.apply({ seq: 8, kind: RECORD.BATCH, durable: 7, body });
    // A piece of the earlier form, which a state in memory would refuse.
    void replayer.apply({ seq: 9, kind: RECORD.DETACHED, durable: 7, body: encodeDetached(1, 0) });
    void replayer.apply({ seq: 10, kind: RECORD.CHANGED, durable: 7, body: encodeChanged() });
    expect([replayer.fault, live.rowCount(), replayer.frontier]).toEqual([undefined, 0, 5]);
    void replayer.apply({ seq: 11, kind: RECORD.BATCH, durable: 7, body });
    expect([replayer.fault, live.rowCount()]).toEqual([undefined, 1]);
    void replayer.apply({ seq: 12, kind: RECORD.CHANGED, durable: 7, body: encodeChanged() });
    expect(replayer.fault).toBe(
      'the aggregates of the job changed at record 12 of the changelog, after this checkpoint',
    );
  });

  it('the replayer reports deltas that no events can cause', () => {
    const deltas = written();
    deltas[deltas.length - 1] = 0;
    expect(replayed(deltas)).toEqual(['record 9 of the changelog has invalid deltas (status 3)', 0]);
  });
});
