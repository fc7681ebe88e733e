/** The registry's file after damage, crashes and compaction, on a simulated disk. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Logger, silentLogger } from '../../src/core/log.ts';
import type { Disk } from '../../src/io/disk/port.ts';
import { CHAIN_START, encodeFrame, FRAMES } from '../../src/registry/store/file/frames.ts';
import { REGISTRY_LOG_FILE } from '../../src/registry/store/file/log.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import {
  frameEnds,
  KeyedLog,
  oldFile,
  recordOf,
  simulatedLog,
  turns,
} from '../unit/registry/store/file-kit.ts';

const value = fc.string({ maxLength: 40 });
const write = fc.tuple(fc.constantFrom('a', 'b', 'c', 'd', 'e'), fc.option(value, { freq: 5 }));

/** Writes a closed file with one frame for each write. */
async function fileOf(writes: ReadonlyArray<readonly [string, string | null]>): Promise<Buffer> {
  const disk = new SimDisk();
  const keyed = new KeyedLog(simulatedLog(disk));
  await keyed.open();
  for (const [key, text] of writes) await keyed.put(key, text);
  await keyed.log.close();
  return Buffer.from(disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array);
}

async function opened(bytes: Uint8Array): Promise<{ readonly keyed: KeyedLog; readonly disk: SimDisk }> {
  const disk = new SimDisk();
  disk.put(REGISTRY_LOG_FILE, bytes);
  const keyed = new KeyedLog(simulatedLog(disk));
  await keyed.open();
  return { keyed, disk };
}

/** Returns the frames of a file, each with its byte offset. */
function framesOf(file: Buffer): { readonly at: number; readonly bytes: Buffer }[] {
  const ends = frameEnds(file);
  return ends.slice(1).map((end, i) => ({ at: ends[i] as number, bytes: file.subarray(ends[i], end) }));
}

const refusedAt = (byte: number, what = '') => ({
  code: 'store_corrupt',
  message: expect.stringMatching(new RegExp(`^sim/registry\\.log is damaged at byte ${byte}: .*${what}`)),
});

describe('damaged registry file', () => {
  const writes = fc.array(write, { minLength: 3, maxLength: 12 });
  const head = FRAMES.magic;

  it('a registry file with a removed frame is refused with the offset, unless the frame was the last', async () => {
    await fc.assert(
      fc.asyncProperty(writes, fc.nat(), async (all, seed) => {
        const frames = framesOf(await fileOf(all));
        const gone = seed % (frames.length - 1);
        const left = frames.filter((_, i) => i !== gone).map(({ bytes }) => bytes);
        await expect(opened(Buffer.concat([head, ...left]))).rejects.toMatchObject(
          refusedAt(frames[gone]?.at as number, `it has write ${gone + 2} in place of write ${gone + 1}`),
        );
      }),
    );
  });

  it('a registry file with a repeated frame is refused with the offset', async () => {
    await fc.assert(
      fc.asyncProperty(writes, fc.nat(), fc.nat(), async (all, which, where) => {
        const file = await fileOf(all);
        const frames = framesOf(file);
        const again = which % frames.length;
        const behind = again + (where % (frames.length - again));
        const bytes = frames.map((frame) => frame.bytes);
        bytes.splice(behind + 1, 0, frames[again]?.bytes as Buffer);
        const at = frames[behind + 1]?.at ?? file.length;
        await expect(opened(Buffer.concat([head, ...bytes]))).rejects.toMatchObject(
          refusedAt(at, `it has write ${again + 1} in place of write ${behind + 2}`),
        );
      }),
    );
  });

  it('a registry file with two swapped frames is refused with the offset', async () => {
    await fc.assert(
      fc.asyncProperty(writes, fc.nat(), fc.nat(), async (all, first, second) => {
        const frames = framesOf(await fileOf(all));
        const a = first % (frames.length - 1);
        const b = a + 1 + (second % (frames.length - 1 - a));
        const bytes = frames.map((frame) => frame.bytes);
        [bytes[a], bytes[b]] = [bytes[b] as Buffer, bytes[a] as Buffer];
        await expect(opened(Buffer.concat([head, ...bytes]))).rejects.toMatchObject(
          refusedAt(frames[a]?.at as number, `it has write ${b + 1} in place of write ${a + 1}`),
        );
      }),
    );
  });

  it('a registry file is refused at a frame with the right number that was written after other frames', async () => {
    const one = framesOf(
      await fileOf([
        ['a', '1'],
        ['b', '2'],
      ]),
    );
    const other = framesOf(
      await fileOf([
        ['a', '9'],
        ['b', '2'],
      ]),
    );
    const mixed = Buffer.concat([head, one[0]?.bytes as Buffer, other[1]?.bytes as Buffer]);
    await expect(opened(mixed)).rejects.toMatchObject(
      refusedAt(one[1]?.at as number, 'it has write 2 after writes that it does not follow'),
    );
  });

  it('a registry file with any flipped bit is refused, at any offset to the sectors of the disk', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 380, max: 520 }), fc.nat(7), async (fill, bit) => {
        // The last frame begins near the border of a sector.
        const file = await fileOf([
          ['a', 'x'.repeat(fill)],
          ['b', '2'],
          ['a', null],
        ]);
        for (let at = 0; at < file.length; at++) {
          const damaged = Buffer.from(file);
          damaged[at] = (damaged[at] as number) ^ (1 << bit);
          for (const room of [0, 1000]) {
            const bytes = Buffer.concat([damaged, Buffer.alloc(room)]);
            const found = await opened(bytes).then(
              () => 'opened',
              (thrown: { code?: string }) => thrown.code,
            );
            expect(found, `byte ${at} with ${room} bytes of room`).toBe('store_corrupt');
          }
        }
      }),
      { numRuns: 8 },
    );
  });
});

describe('registry file of the previous format', () => {
  const batches = fc.array(fc.array(write, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 8 });
  const recordsOf = (writes: ReadonlyArray<readonly [string, string | null]>) =>
    writes.map(([key, text]) => recordOf(key, text));

  it('a registry file of the previous format is read, rewritten in the present format, and continued', async () => {
    await fc.assert(
      fc.asyncProperty(batches, async (all) => {
        const wanted = new Map<string, string>();
        for (const [key, text] of all.flat()) {
          if (text === null) wanted.delete(key);
          else wanted.set(key, text);
        }
        const old = oldFile(all.map(recordsOf));
        const { keyed, disk } = await opened(Buffer.concat([old, Buffer.alloc(600)]));
        expect(keyed.values).toEqual(wanted);
        expect(disk.names()).toEqual([REGISTRY_LOG_FILE]);
        await keyed.put('later', '1');
        await keyed.log.close();
        const bytes = Buffer.from(disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array);
        expect(bytes.subarray(0, 8)).toEqual(FRAMES.magic);
        const again = await opened(bytes);
        expect(again.keyed.values).toEqual(wanted.set('later', '1'));
      }),
    );
  });

  it('a registry file of the previous format loses only an unfinished last write', async () => {
    const old = oldFile([[recordOf('a', '1')], [recordOf('b', '2')], [recordOf('c', '3')]]);
    const two = oldFile([[recordOf('a', '1')], [recordOf('b', '2')]]).length;
    for (let cut = two + 1; cut < old.length; cut++) {
      const { keyed } = await opened(Buffer.concat([old.subarray(0, cut), Buffer.alloc(600)]));
      expect([...keyed.values.keys()], `written up to ${cut}`).toEqual(['a', 'b']);
    }
    const flipped = Buffer.from(old);
    flipped[two - 5] = (flipped[two - 5] as number) ^ 1;
    await expect(opened(flipped)).rejects.toMatchObject({ code: 'store_corrupt' });
  });

  it('a crash at any step of the rewrite leaves a complete file in one format or the other', async () => {
    const old = oldFile(Array.from({ length: 6 }, (_, i) => [recordOf(`k${i}`, 'x'.repeat(300))]));
    for (let changes = 0, done = false; !done; changes++) {
      const disk = new SimDisk();
      disk.put(REGISTRY_LOG_FILE, old);
      disk.changesLeft = changes;
      const first = new KeyedLog(simulatedLog(disk));
      done = await first.open().then(
        () => true,
        () => false,
      );
      disk.crash((below) => (changes * 7919) % below);
      disk.changesLeft = Number.POSITIVE_INFINITY;
      const again = new KeyedLog(simulatedLog(disk));
      await again.open();
      expect(again.values.size, `crash at change ${changes}`).toBe(6);
      expect(disk.names()).toEqual([REGISTRY_LOG_FILE]);
      if (done) expect(changes).toBeGreaterThan(4);
    }
  });
});

describe('compaction of a registry file', () => {
  const MIN = 4 << 10;
  const big = (i: number): string => `${i}:`.padEnd(700, 'v');

  it('compaction keeps the last value of each key, and starts once more than half of the file is garbage', async () => {
    const disk = new SimDisk();
    const told: unknown[] = [];
    const log: Logger = { ...silentLogger, info: (fields, text) => void told.push([text, fields]) };
    const keyed = new KeyedLog(simulatedLog(disk, MIN, log));
    await keyed.open();
    for (let i = 0; i < 20; i++) {
      await keyed.put(`k${i}`, big(i));
      await turns(10);
    }
    expect(told).toEqual([]);
    for (let i = 0; i < 24; i++) {
      await keyed.put(`k${i % 4}`, big(i));
      await turns(10);
    }
    expect(told).toEqual([['compacted the registry log', expect.anything()]]);
    const wanted = new Map(keyed.values);
    await keyed.log.close();
    expect((disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array).length).toBeLessThan(30 * 800);
    const again = new KeyedLog(simulatedLog(disk, MIN));
    await again.open();
    expect(again.values).toEqual(wanted);
    await again.log.close();
  });

  it('compaction keeps a file small even if one value is written many times', async () => {
    const disk = new SimDisk();
    const keyed = new KeyedLog(simulatedLog(disk, MIN));
    await keyed.open();
    let longest = 0;
    for (let i = 0; i < 2_000; i++) {
      await keyed.put('setting', `${i}`);
      await turns(1);
      longest = Math.max(
        longest,
        frameEnds(Buffer.from(disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array)).at(-1) ?? 0,
      );
    }
    expect(longest).toBeLessThan(4 * MIN);
    await keyed.log.close();
  });

  it('compaction also runs at the start if the file is mostly garbage', async () => {
    const disk = new SimDisk();
    const first = new KeyedLog(simulatedLog(disk));
    await first.open();
    for (let i = 0; i < 50; i++) await first.put('k', big(i));
    await first.log.close();
    const again = new KeyedLog(simulatedLog(disk, MIN));
    await again.open();
    await turns(20);
    await again.log.close();
    expect((disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array).length).toBeLessThan(1_000);
  });

  it('compaction yields after each piece, and keeps every append that arrives meanwhile', async () => {
    const disk = new SimDisk();
    const told: unknown[] = [];
    const log: Logger = { ...silentLogger, info: (fields) => void told.push(fields) };
    const first = new KeyedLog(simulatedLog(disk));
    await first.open();
    const bytes = 16 << 20;
    const lump = 'v'.repeat(200_000);
    for (let i = 0; i * lump.length < bytes; i++) await first.put(`k${i % 8}`, `${i}${lump}`);
    await first.log.close();
    const keyed = new KeyedLog(simulatedLog(disk, MIN, log));
    await keyed.open();
    let appends = 0;
    let waited = 0;
    while (told.length === 0) {
      await keyed.put(`while${appends % 50}`, `${appends++}`);
      await turns(1);
      waited++;
    }
    // Compaction reads the file twice, in pieces of at most 1 MiB.
    expect(waited).toBeGreaterThan(2 * 16);
    const wanted = new Map(keyed.values);
    await keyed.log.close();
    const again = new KeyedLog(simulatedLog(disk));
    await again.open();
    expect(again.values).toEqual(wanted);
    expect((disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array).length).toBeLessThan(9 * lump.length);
    await again.log.close();
  });

  it('compaction is cancelled when the disk is full, and appends continue in the old file', async () => {
    const disk = new SimDisk();
    const warned: unknown[] = [];
    const log: Logger = { ...silentLogger, warn: (_fields, text) => void warned.push(text) };
    const keyed = new KeyedLog(simulatedLog(disk, MIN, log));
    await keyed.open();
    for (let i = 0; i < 5; i++) await keyed.put('k', big(i));
    disk.bytesLeft = 100;
    await keyed.put('k', big(5));
    await turns(20);
    expect(warned).toEqual(['cannot compact the registry log; it is unchanged']);
    expect(disk.names()).toEqual([REGISTRY_LOG_FILE]);
    disk.bytesLeft = Number.POSITIVE_INFINITY;
    for (let i = 6; i < 20; i++) {
      await keyed.put('k', big(i));
      await turns(20);
    }
    await keyed.log.close();
    expect((disk.bytesOf(REGISTRY_LOG_FILE) as Uint8Array).length).toBeLessThan(3 * MIN);
    const again = new KeyedLog(simulatedLog(disk));
    await again.open();
    expect([...again.values]).toEqual([['k', big(19)]]);
  });

  it.each(['sync', 'rename'])(
    'compaction stops all writes if its %s fails, because the disk may have either file, and loses nothing',
    async (which) => {
      const disk = new SimDisk();
      let failing = false;
      const fail = async (): Promise<void> => {
        throw Object.assign(new Error('I/O error'), { code: 'EIO', syscall: which });
      };
      const faulty = {
        view: (): Disk => {
          const view = disk.view();
          return {
            ...view,
            rename: async (from, to) => {
              // The rename has happened when its sync fails.
              await view.rename(from, to);
              if (failing && which === 'rename') await fail();
            },
            edit: async (name) =>
              new Proxy(await view.edit(name), {
                get: (file, key) =>
                  failing && which === 'sync' && key === 'sync' ? fail : (Reflect.get(file, key) as unknown),
              }),
          };
        },
      };
      const keyed = new KeyedLog(simulatedLog(faulty, MIN));
      await keyed.open();
      for (let i = 0; i < 5; i++) await keyed.put('k', big(i));
      failing = true;
      if (which === 'rename') await keyed.put('k', big(5));
      else await expect(keyed.put('k', big(5))).rejects.toMatchObject({ code: 'store_failed' });
      await turns(20);
      failing = false;
      await expect(keyed.put('k', 'later')).rejects.toMatchObject({
        code: 'store_failed',
        message: expect.stringContaining('refuses writes after a failed one'),
      });
      const again = new KeyedLog(simulatedLog(disk));
      await again.open();
      expect(again.values).toEqual(keyed.values);
    },
  );

  it('compaction does not copy damage that occurs after the start into a file of valid frames', async () => {
    const disk = new SimDisk();
    const warned: unknown[] = [];
    const log: Logger = { ...silentLogger, warn: (fields) => void warned.push(fields) };
    const keyed = new KeyedLog(simulatedLog(disk, MIN, log));
    await keyed.open();
    for (let i = 0; i < 4; i++) await keyed.put('k', big(i));
    disk.damage(REGISTRY_LOG_FILE, 900);
    for (let i = 4; i < 8; i++) await keyed.put('k', big(i));
    await turns(20);
    expect(warned).toEqual([
      expect.objectContaining({ error: expect.stringContaining('has changed at byte') }),
    ]);
  });

  it('compaction keeps exactly the acknowledged writes through a crash at any step', async () => {
    /** Runs until the simulated power failure.
     *  @returns the acknowledged writes, and the write without acknowledgement */
    async function live(disk: SimDisk, pace: number) {
      const keyed = new KeyedLog(simulatedLog(disk, MIN));
      let open: readonly [string, string] | undefined;
      try {
        await keyed.open();
        for (let i = 0; i < 30; i++) {
          // Some keys are written once, so a loss during compaction is permanent.
          open = i % 3 === 0 ? [`once${i}`, `${i}`] : [`k${i % 3}`, big(i)];
          await keyed.put(...open);
          open = undefined;
          await turns((i * pace) % 4);
        }
        await turns(20);
        await keyed.log.close();
      } catch {
        // The simulated power failure ends the run.
      }
      await turns(20);
      return { held: keyed.values, open };
    }
    const whole = new SimDisk();
    whole.changesLeft = 100_000;
    await live(whole, 1);
    const steps = 100_000 - whole.changesLeft;
    expect(steps).toBeGreaterThan(60);
    for (let changes = 0; changes <= steps; changes++) {
      for (let seed = 1; seed <= 2; seed++) {
        const disk = new SimDisk();
        disk.changesLeft = changes;
        const { held, open } = await live(disk, seed);
        let draws = changes * 2 + seed;
        disk.crash((below) => {
          draws = (Math.imul(draws, 1_103_515_245) + 12_345) >>> 0;
          return Math.floor((draws / 2 ** 32) * below);
        });
        disk.changesLeft = Number.POSITIVE_INFINITY;
        const again = new KeyedLog(simulatedLog(disk, MIN));
        await again.open();
        const also = new Map(held);
        if (open !== undefined) also.set(...open);
        const wanted = [held, also].map((one) => Object.fromEntries(one));
        expect(wanted, `crash at change ${changes}, seed ${seed}`).toContainEqual(
          Object.fromEntries(again.values),
        );
        await again.put('after', 'the crash');
        await again.log.close();
        const third = new KeyedLog(simulatedLog(disk));
        await third.open();
        expect(third.values).toEqual(again.values);
      }
    }
  });
});

it('a frame is written with its place in the chain', () => {
  const records = [recordOf('k', 'v')];
  const first = encodeFrame(records, CHAIN_START);
  const second = encodeFrame(records, first.after);
  expect(FRAMES.next(second.frame, 0, first.after)).toEqual(second.after);
  expect(FRAMES.next(first.frame, 0, first.after)).toBeUndefined();
  expect(FRAMES.next(second.frame, 0, CHAIN_START)).toBeUndefined();
});
