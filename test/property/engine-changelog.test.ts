/** The changelog after crashes and damage: durable records are read back, a torn tail is cut off,
 *  and damage is reported. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FRAME_HEADER_BYTES, frameBytes } from '../../src/engine/durability/changelog/frame.ts';
import { Changelog, segmentName } from '../../src/engine/durability/changelog/log.ts';
import { Replay, truncateTornTail } from '../../src/engine/durability/changelog/replay.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { drawFrom } from './engine-kit.ts';

interface Record {
  readonly seq: number;
  readonly kind: number;
  readonly text: string;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

async function replay(disk: SimDisk, from = 1, durable = from - 1) {
  const records: Record[] = [];
  const end = await new Replay(disk.view(), from, durable).run(({ seq, kind, body }) => {
    records.push({ seq, kind, text: decoder.decode(body) });
  });
  return { records, end };
}

const steps = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({ kind: fc.integer({ min: 1, max: 5 }), bytes: fc.integer({ min: 0, max: 60 }) }),
    },
    { weight: 1, arbitrary: fc.constantFrom('sync' as const, 'wait' as const) },
  ),
  { maxLength: 40 },
);

type Plan = ReadonlyArray<{ readonly kind: number; readonly bytes: number } | 'sync' | 'wait'>;

/** Appends, syncs and waits as the plan says. */
async function write(disk: SimDisk, plan: Plan, nextSeq = 1) {
  const log = new Changelog({ disk: disk.view(), segmentBytes: 300, bufferBytes: 100, nextSeq });
  const records: Record[] = [];
  for (const step of plan) {
    if (step === 'sync') await log.durable();
    else if (step === 'wait') await new Promise((resolve) => setImmediate(resolve));
    else {
      const text = String.fromCharCode(97 + (records.length % 26)).repeat(step.bytes);
      const seq = log.append(step.kind, [encoder.encode(text.slice(0, 3)), encoder.encode(text.slice(3))]);
      records.push({ seq, kind: step.kind, text });
    }
  }
  return { log, records };
}

describe('changelog', () => {
  it('a closed changelog is read back completely, across segments, from any record on', async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(40), async (plan, from) => {
        const disk = new SimDisk();
        const { log, records } = await write(disk, plan);
        await log.close();
        const back = await replay(disk, Math.min(from, records.length) + 1);
        expect(back.records).toEqual(records.slice(from));
        expect(back.end).toEqual({ lastSeq: records.length, torn: undefined, damage: undefined });
      }),
    );
  });

  it('a changelog has the durable records and a prefix of the others after a crash, and resumes from there', async () => {
    await fc.assert(
      fc.asyncProperty(steps, steps, fc.nat(), async (plan, later, seed) => {
        const disk = new SimDisk();
        const { log, records } = await write(disk, plan);
        const { durableSeq } = log;
        disk.crash(drawFrom(seed));
        const back = await replay(disk);
        expect(back.end.damage).toBeUndefined();
        expect(back.records).toEqual(records.slice(0, back.end.lastSeq));
        expect(back.end.lastSeq).toBeGreaterThanOrEqual(durableSeq);

        await truncateTornTail(disk.view(), back.end);
        const more = await write(disk, later, back.end.lastSeq + 1);
        await more.log.close();
        const all = await replay(disk);
        expect(all.records).toEqual([...back.records, ...more.records]);
        expect(all.end.damage).toBeUndefined();
      }),
    );
  });

  it('the changelog reports every flipped bit and every lost segment of durable records', async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(), fc.nat(7), fc.boolean(), async (plan, at, bit, lost) => {
        const disk = new SimDisk();
        const { log, records } = await write(disk, plan);
        await log.close();
        const names = disk.names();
        fc.pre(names.length > 0);
        const name = names[at % names.length] as string;
        const bytes = disk.bytesOf(name) as Uint8Array;
        bytes[at % bytes.length] = (bytes[at % bytes.length] as number) ^ (1 << bit);
        if (lost) disk.drop(name);
        else disk.put(name, bytes);
        const back = await replay(disk, 1, records.length);
        expect(back.end.damage).toMatch(/changelog/);
        expect(back.records).toEqual(records.slice(0, back.end.lastSeq));
      }),
    );
  });

  it('a missing record before the durable position of a later record is damage, even without a checkpoint', async () => {
    const disk = new SimDisk();
    const log = new Changelog({ disk: disk.view(), segmentBytes: 1e6, nextSeq: 1 });
    log.append(1, [encoder.encode('first')]);
    await log.durable();
    log.append(1, [encoder.encode('second')]);
    await log.durable();
    await log.close();
    const bytes = disk.bytesOf(segmentName(1)) as Uint8Array;
    bytes[FRAME_HEADER_BYTES] = 0;
    disk.put(segmentName(1), bytes);
    const { end, records } = await replay(disk);
    expect(records).toEqual([]);
    expect(end.damage).toBe(
      `${segmentName(1)} has a record whose checksum does not match at byte 0, record 1, which had been durable`,
    );
    expect(bytes.length).toBe(frameBytes(5) + frameBytes(6));
  });

  it('the changelog drops only whole segments and reports a failed write to every waiter', async () => {
    const disk = new SimDisk();
    const log = new Changelog({ disk: disk.view(), segmentBytes: 100, nextSeq: 1 });
    for (let i = 0; i < 9; i++) {
      log.append(1, [new Uint8Array(40)]);
      await log.durable();
    }
    expect(disk.names()).toEqual([1, 3, 5, 7, 9].map(segmentName));
    await log.truncateBefore(6);
    expect(disk.names()).toEqual([5, 7, 9].map(segmentName));
    const { records } = await replay(disk, 6);
    expect(records.map(({ seq }) => seq)).toEqual([6, 7, 8, 9]);

    disk.changesLeft = 0;
    log.append(1, [new Uint8Array(40)]);
    await expect(log.durable()).rejects.toThrow('the machine is off');
    expect(() => log.append(1, [])).toThrow('the machine is off');
  });
});
