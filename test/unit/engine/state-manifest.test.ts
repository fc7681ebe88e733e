/** The manifest of the state: it is decoded unchanged, other bytes are refused; and the rule by
 *  which checkpoints are kept. */
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PARTITION_PROGRESS } from '../../../src/core/layout/layouts.gen.ts';
import { createProgress, PROGRESS_CELLS } from '../../../src/core/layout/window-clock.ts';
import { checkpointsToKeep } from '../../../src/engine/durability/checkpoint/kept.ts';
import {
  type BaseEntry,
  decodeStateManifest,
  encodeStateManifest,
  ownFile,
  rowsName,
  type StateManifest,
  stateManifestName,
} from '../../../src/engine/durability/checkpoint/state-manifest.ts';
import { SlidingWindows, TumblingWindows } from '../../../src/engine/window/definition.ts';
import { endsDue } from '../../property/durable-kit.ts';
import { runs } from '../../tier.ts';

const NEVER = Number.NEGATIVE_INFINITY;

const baseNamed = (id: number): BaseEntry => ({
  name: rowsName('base', id),
  bytes: 96,
  crc32: 0xffff_ffff,
  covered: 12,
  parts: [{ part: -10, rows: 1 }],
  runs: [{ name: rowsName('run', 5), bytes: 96, crc32: 7, slice: -20, rows: 1 }],
});

function manifestOf(id: number, over: Partial<StateManifest> = {}): StateManifest {
  const progress = createProgress(2);
  progress[PARTITION_PROGRESS.NEXT_OFFSET / 8] = 9;
  progress[PROGRESS_CELLS + PARTITION_PROGRESS.MAX_SEEN / 8] = -4;
  return {
    id,
    ts: 1000,
    job: { topic: 't', window: 'tumbling', sizeMs: 10, skewMs: 1, latenessMs: 2, watermark: 'partition' },
    clusterId: 'c',
    topicId: 'id-1',
    shards: 2,
    base: baseNamed(4),
    spill: undefined,
    replayFrom: 11,
    formFrom: 0,
    durable: 15,
    frontier: -7,
    maxSeen: -4,
    fired: NEVER,
    progress,
    ...over,
  };
}

const textOf = (manifest: StateManifest): string => new TextDecoder().decode(encodeStateManifest(manifest));
const signed = (body: string): Uint8Array =>
  new TextEncoder().encode(`${body}\ncrc32 ${crc32(body).toString(16).padStart(8, '0')}\n`);
const bodyOf = (manifest: StateManifest): Record<string, unknown> =>
  JSON.parse(textOf(manifest).replace(/\ncrc32 .*\n$/, '')) as Record<string, unknown>;
const faultOf = (body: unknown): string => {
  const decoded = decodeStateManifest(signed(JSON.stringify(body)));
  return 'fault' in decoded ? decoded.fault : 'none';
};

type Body = Readonly<Record<string, unknown>>;
const pointerOf = (body: Body): Body => body['state_snapshot_ptr'] as Body;
const pointing = (body: Body, over: Body): Body => ({
  ...body,
  state_snapshot_ptr: { ...pointerOf(body), ...over },
});

const spilled = manifestOf(5, {
  base: undefined,
  spill: { lastId: 9, pieces: [{ id: 7, part: -10, rows: 3, crc32: 0xffff_ffff }] },
});

describe('state manifest', () => {
  it('the manifest is decoded unchanged and is readable for a person', () => {
    for (const manifest of [
      manifestOf(3),
      manifestOf(4, { base: undefined, replayFrom: 1, formFrom: 16, frontier: NEVER }),
      spilled,
    ])
      expect(decodeStateManifest(encodeStateManifest(manifest))).toEqual({ manifest });
    const text = textOf(manifestOf(3));
    expect(text).toContain('"checkpoint_id": 3,\n "ts": 1000,');
    expect(text).toContain('"watermark": -5,\n "frontier_ms": -7,');
    expect(bodyOf(manifestOf(3))).toMatchObject({
      source_offsets: [9, 0],
      state_snapshot_ptr: { replay_from: 11, base: { name: rowsName('base', 4) }, spill: null },
    });
  });

  it('the watermark of a job with a raised lateness is at most the greatest time less the skew', () => {
    const { job } = manifestOf(3);
    const watermarkOf = (latenessMs: number): unknown =>
      bodyOf(manifestOf(3, { job: { ...job, latenessMs } }))['watermark'];
    expect([0, 1, 2, 3, 3_600_000].map(watermarkOf)).toEqual([-7, -6, -5, -5, -5]);
  });

  it('the manifest is refused with any byte changed or missing', () => {
    const whole = encodeStateManifest(manifestOf(3));
    for (let at = 0; at < whole.length; at++) {
      const flipped = whole.slice();
      flipped[at] = (flipped[at] as number) ^ 1;
      expect(decodeStateManifest(flipped)).toHaveProperty('fault');
      expect(decodeStateManifest(whole.slice(0, at))).toHaveProperty('fault');
    }
  });

  it('the refusal of a manifest names the invalid field, although its checksum matches', () => {
    const good = bodyOf(manifestOf(3));
    expect(faultOf(good)).toBe('none');
    expect(faultOf({ ...good, version: 8 })).toBe(
      'has form millrace-engine-checkpoint 8, this build reads millrace-engine-checkpoint 5 to 7',
    );
    const unnamed = 'does not name its id, time, job, shards, cluster and topic';
    expect(faultOf({ ...good, topic_id: 7 })).toBe(unnamed);
    const range = 'has replay_from 11, which is impossible with durable 9';
    expect(faultOf(pointing(good, { durable: 9 }))).toBe(range);
    const form = 'has form_from 17, which is impossible with durable 15';
    expect(faultOf(pointing(good, { form_from: 17 }))).toBe(form);
    const base = pointerOf(good)['base'] as object;
    expect(faultOf(pointing(good, { base: { ...base, covered: 99 } }))).toBe(
      'has a base that covers record 99',
    );
    expect(faultOf(pointing(good, { base: { ...base, name: '../x' } }))).toBe('has an invalid base');
    expect(faultOf({ ...good, state_snapshot_ptr: null })).toBe('has no state_snapshot_ptr');
    expect(faultOf({ ...good, source_offsets: [9] })).toBe('does not have one offset for each partition');
    expect(faultOf({ ...good, source_offsets: [9, -1] })).toBe('has offset of -1 in partition 1');
    expect(faultOf({ ...good, source_offsets: ['9', 0] })).toBe('has offset of NaN in partition 0');
    expect(faultOf({ ...good, fired_ms: 5 })).toBe(
      'has an impossible clock: frontier_ms -7, max_seen_ts -4, fired_ms 5',
    );
    expect(faultOf({ ...good, partitions: [] })).toBe('lists no partitions');
    const [first, ...rest] = good['partitions'] as [object, ...object[]];
    expect(faultOf({ ...good, partitions: [{ ...first, consumed: 1 }, ...rest] })).toBe(
      'has 1 consumed events that are neither accepted, dropped nor invalid in partition 0',
    );
    expect(faultOf([])).toBe('is not a manifest');
    const onDisk = bodyOf(spilled);
    const spill = pointerOf(onDisk)['spill'] as { readonly pieces: readonly [object] };
    expect(faultOf(onDisk)).toBe('none');
    expect(faultOf(pointing(onDisk, { base }))).toBe('has both a base and pieces');
    for (const wrong of [
      { last_id: 6 },
      { pieces: [...spill.pieces, ...spill.pieces] },
      { pieces: [{ ...spill.pieces[0], rows: 0 }] },
      { pieces: {} },
    ])
      expect(faultOf(pointing(onDisk, { spill: { ...spill, ...wrong } }))).toBe('has invalid pieces');
  });

  it('a manifest with invalid fields is refused, whatever they contain', () => {
    const good = bodyOf(manifestOf(3));
    const anything = fc.oneof(fc.jsonValue(), fc.integer(), fc.double(), fc.constant(null));
    const pointer = pointerOf(good);
    const places = fc.oneof(
      fc.constantFrom(...Object.keys(good)).map((name) => ['', name] as const),
      fc.constantFrom(...Object.keys(pointer)).map((name) => ['pointer', name] as const),
      fc.constantFrom(...Object.keys(pointer['base'] as object)).map((name) => ['base', name] as const),
    );
    fc.assert(
      fc.property(places, anything, ([where, name], value) => {
        const one = { [name]: value };
        const body =
          where === 'base'
            ? pointing(good, { base: { ...(pointer['base'] as object), ...one } })
            : where === 'pointer'
              ? pointing(good, one)
              : { ...good, ...one };
        const decoded = decodeStateManifest(signed(JSON.stringify(body)));
        if ('fault' in decoded) expect(decoded.fault).toMatch(/^(is|has|does|lists) /);
      }),
      { numRuns: runs(1000) },
    );
  });

  it.each(['format', 'version', 'replay_from', 'durable', 'frontier_ms', 'max_seen_ts', 'fired_ms'])(
    'the manifest is refused if %s cannot be converted to a text',
    (name) => {
      const good = bodyOf(manifestOf(3));
      const one = { [name]: { toString: 1, valueOf: 1 } };
      const body = JSON.stringify(Object.hasOwn(good, name) ? { ...good, ...one } : pointing(good, one));
      expect(decodeStateManifest(signed(body))).toMatchObject({
        fault: expect.stringMatching(/^has /),
      });
    },
  );

  it('a manifest of an older form is refused by its version', () => {
    for (const version of [1, 2, 3, 4])
      expect(faultOf({ format: 'millrace-engine-checkpoint', version, id: 1 })).toBe(
        `has form millrace-engine-checkpoint ${version}, this build reads millrace-engine-checkpoint 5 to 7`,
      );
  });

  it('a manifest without the first record of the form of its rows is read: all have it', () => {
    const body = bodyOf(manifestOf(3));
    const { form_from: from, ...pointer } = pointerOf(body);
    expect(from).toBe(0);
    const before = { ...body, state_snapshot_ptr: pointer };
    const decoded = decodeStateManifest(signed(JSON.stringify({ ...before, version: 6 })));
    expect(decoded).toEqual({ manifest: manifestOf(3) });
    expect(faultOf(before)).toBe('has form_from undefined, which is impossible with durable 15');
  });

  it('a manifest of the first form, which had no topic id either, is read', () => {
    const { topic_id: id, ...before } = bodyOf(manifestOf(3));
    expect(id).toBe('id-1');
    const decoded = decodeStateManifest(signed(JSON.stringify({ ...before, version: 5 })));
    expect(decoded).toEqual({ manifest: manifestOf(3, { topicId: undefined }) });
    expect(faultOf(before)).toBe('does not name its id, time, job, shards, cluster and topic');
  });
});

describe('file names', () => {
  it('a file name states the role of the file', () => {
    expect(ownFile(stateManifestName(12))).toEqual({ role: 'manifest', id: 12, isWhole: true });
    expect(ownFile(`${rowsName('base', 3)}.tmp`)).toEqual({ role: 'base', id: 3, isWhole: false });
    for (const name of [
      'lock',
      'base-1.rows',
      'run-00000001.rows.x',
      'x/base-00000001.rows',
      'state-00000001.rows',
    ])
      expect(ownFile(name)).toBeUndefined();
  });
});

describe('kept checkpoints', () => {
  const kept = (...bases: number[]): number[] =>
    checkpointsToKeep(bases.map((base, i) => manifestOf(i + 1, { base: baseNamed(base) }))).map(
      ({ id }) => id,
    );

  it('the newest two checkpoints and the newest on another snapshot are kept', () => {
    expect(kept(1)).toEqual([1]);
    expect(kept(1, 1)).toEqual([1, 2]);
    expect(kept(1, 1, 1, 1)).toEqual([2, 3, 4]);
    expect(kept(1, 1, 1, 2)).toEqual([2, 3, 4]);
    expect(kept(1, 1, 2, 2, 2)).toEqual([2, 4, 5]);
    expect(kept(1, 2, 2, 3)).toEqual([2, 3, 4]);
    expect(checkpointsToKeep([])).toEqual([]);
  });
});

describe('windows that fire again', () => {
  it("windows of existing slices fire again between the sink's position and the watermark", () => {
    const tumbling = new TumblingWindows(10);
    expect(endsDue([0, 10, 30], tumbling, 10, 40)).toEqual([20, 40]);
    expect(endsDue([0, 10, 30], tumbling, NEVER, 39)).toEqual([10, 20]);
    const sliding = new SlidingWindows(30, 10);
    expect(endsDue([0], sliding, NEVER, 100)).toEqual([10, 20, 30]);
    expect(endsDue([0, 20], sliding, 20, 45)).toEqual([30, 40]);
    expect(endsDue([0], sliding, 30, 100)).toEqual([]);
  });
});
