/** Checkpoints: what is written comes back; what was torn, cut, flipped or lost is named and never used. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { decodeManifest, manifestName } from '../../src/engine/checkpoint/manifest.ts';
import { decodeSections, encodeSections, type Section } from '../../src/engine/checkpoint/sections.ts';
import { CHECKPOINTS_KEPT, CheckpointStore, type Cut } from '../../src/engine/checkpoint/store.ts';
import { MemoryDisk } from '../property/engine-kit.ts';

const section = (windowStart: number, rowCount: number): Section => {
  const rows = new Uint8Array(rowCount * 64).map((_, i) => (i * 7 + windowStart) & 0xff);
  return { windowStart, windowEnd: windowStart + 10, rowCount, rows: rows.buffer };
};

const cutAt = (offset: number, over: Partial<Cut> = {}): Cut => ({
  ts: 1000 + offset,
  job: { topic: 't', window: 'tumbling', sizeMs: 10, skewMs: 1, latenessMs: 2, watermark: 'partition' },
  clusterId: 'c',
  shards: 2,
  watermark_ms: null,
  fired_ms: -10,
  dropped_late: 3,
  partitions: [
    {
      partition: 0,
      offset,
      maxSeenTs: Number.NEGATIVE_INFINITY,
      consumed: offset,
      accepted: offset - 3,
      droppedLate: 3,
      invalid: 0,
    },
  ],
  state: [section(-20, 3), section(0, 1)],
  fired: [section(offset * 10, 2)],
  forgetBefore: Number.NEGATIVE_INFINITY,
  ...over,
});

async function written(count: number): Promise<MemoryDisk> {
  const disk = new MemoryDisk();
  const store = new CheckpointStore(disk, silentLogger);
  for (let i = 1; i <= count; i++) await store.write(cutAt(i * 100));
  return disk;
}

const open = (disk: MemoryDisk) => new CheckpointStore(disk, silentLogger).restore();

describe('sections', () => {
  it('come back as they were written', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: -1e12, max: 1e12 }), fc.nat(5)), { maxLength: 5 }),
        (shapes) => {
          const sections = shapes.map(([start, rows]) => section(start, rows));
          const bytes = new Uint8Array(Buffer.concat(encodeSections(sections)));
          expect(decodeSections(bytes)).toEqual({ sections });
        },
      ),
    );
  });

  it('name a fault for any bytes, and never throw', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), (bytes) => {
        expect(decodeSections(bytes)).toHaveProperty('fault');
      }),
    );
  });
});

describe('checkpoint store', () => {
  it('restores nothing from an empty folder, and from one with files but no manifest', async () => {
    const disk = new MemoryDisk();
    expect(await open(disk)).toBeUndefined();
    disk.files.set('state-00000001.rows', new Uint8Array(3));
    disk.files.set('checkpoint-00000001.manifest.tmp', new Uint8Array(3));
    expect(await open(disk)).toBeUndefined();
  });

  it('restores the newest, with fired windows of those before, in order', async () => {
    const restored = await open(await written(2));
    expect(restored?.manifest.id).toBe(2);
    expect(restored?.manifest.partitions[0]).toEqual(cutAt(200).partitions[0]);
    expect(restored?.state).toEqual(cutAt(200).state);
    expect(restored?.fired.map((one) => one.windowStart)).toEqual([1000, 2000]);
    expect(restored?.refused).toEqual([]);
  });

  it('keeps a few, removes what none of them names, and goes on numbering after a restart', async () => {
    const disk = await written(CHECKPOINTS_KEPT + 2);
    const store = new CheckpointStore(disk, silentLogger);
    await store.restore();
    await store.write(cutAt(9900, { forgetBefore: 2000, fired: [] }));
    const manifests = [...disk.files.keys()].filter((name) => name.endsWith('.manifest'));
    expect(manifests.sort()).toEqual([4, 5, 6].map(manifestName));
    expect([...disk.files.keys()].filter((name) => name.startsWith('state')).length).toBe(3);
    expect((await open(disk))?.fired.map((one) => one.windowStart)).toEqual([2000, 3000, 4000, 5000]);
  });

  it('refuses a newest that is damaged anywhere, names it, and falls back to the one before', async () => {
    const clean = await written(2);
    const own = ['state-00000002.rows', 'fired-00000002.rows', manifestName(2)];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...own),
        fc.constantFrom('cut', 'flip', 'lose', 'grow'),
        fc.nat(),
        fc.nat(7),
        async (name, damage, place, bit) => {
          const disk = new MemoryDisk();
          for (const [file, bytes] of clean.files) disk.files.set(file, bytes.slice());
          const bytes = disk.files.get(name) as Uint8Array<ArrayBuffer>;
          const at = place % bytes.length;
          if (damage === 'lose') disk.files.delete(name);
          else if (damage === 'cut') disk.files.set(name, bytes.slice(0, at));
          else if (damage === 'grow')
            disk.files.set(name, new Uint8Array(Buffer.concat([bytes, Buffer.from('x')])));
          else bytes[at] = (bytes[at] as number) ^ (1 << bit);
          const restored = await open(disk);
          expect(restored?.manifest.id).toBe(1);
          // A manifest that is gone leaves no trace to name.
          if (damage !== 'lose' || !name.endsWith('.manifest')) {
            expect(restored?.refused).toHaveLength(1);
            expect(restored?.refused[0]).toContain(name);
          }
        },
      ),
      { numRuns: 300 },
    );
  });

  it('refuses to start empty where checkpoints exist and none verifies', async () => {
    const disk = await written(2);
    for (const name of disk.files.keys())
      if (name.startsWith('state')) disk.files.set(name, new Uint8Array(10));
    await expect(open(disk)).rejects.toMatchObject({ code: 'state_corrupt', row: { exit: 1 } });
    await expect(open(disk)).rejects.toThrow(/state-00000002.*state-00000001/);
  });

  it('refuses a manifest of a later form', async () => {
    const disk = await written(1);
    const text = new TextDecoder().decode(disk.files.get(manifestName(1)));
    expect(decodeManifest(new TextEncoder().encode(text))).toHaveProperty('manifest');
    const { crc32 } = await import('node:zlib');
    const body = text.slice(0, text.lastIndexOf('\ncrc32')).replace('"version": 1', '"version": 2');
    const later = new TextEncoder().encode(`${body}\ncrc32 ${crc32(body).toString(16).padStart(8, '0')}\n`);
    expect(decodeManifest(later)).toEqual({ fault: expect.stringContaining('this build reads') });
  });
});
