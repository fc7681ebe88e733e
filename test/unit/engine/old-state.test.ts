/** State folders of the previous form, written by a build with that form: this build resumes from
 *  them.
 *
 *  The vector contains, by path, the files that runs over the first events below left behind, with
 *  one character per byte. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { PIECE_FAMILIES, PieceStore } from '../../../src/engine/durability/spill/pieces.ts';
import { type Job, pieceOrderOf, stateOf } from '../../../src/engine/job.ts';
import type { EngineParts } from '../../../src/engine/parts.ts';
import { rocksdbDriver } from '../../../src/io/rocksdb/addon.ts';
import { KV_BUDGET_MIN_BYTES } from '../../../src/io/rocksdb/port.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import {
  drawFrom,
  engineIn,
  KERNELS,
  MemorySink,
  MemorySource,
  type TestEvent,
} from '../../property/engine-kit.ts';

const VECTOR = new URL('../../vectors/engine-state-5.json.br', import.meta.url);
const SHARED = { topic: 'events', skewMs: 4, latenessMs: 6, watermark: 'partition' } as const;
const JOBS = {
  mem: { ...SHARED, window: 'sliding', sizeMs: 30, slideMs: 20 },
  disk: { ...SHARED, window: 'session', gapMs: 20 },
} as const satisfies Record<string, Job>;
type Kind = keyof typeof JOBS;
const draw = drawFrom(7);
/** The run that wrote the folder read the first 180 events. */
const EVENTS = Array.from(
  { length: 240 },
  (_, i): TestEvent => ({
    partition: i % 2,
    accountId: BigInt(draw(9)),
    value: BigInt(draw(100)),
    eventTs: BigInt(i + draw(12) - draw(40)),
    broken: i % 50 === 49,
  }),
);

type Files = Readonly<Record<string, string>>;
interface Folder {
  readonly files: Files;
  readonly spill: Files;
  /** Results that had left the engine. */
  readonly rows: readonly string[];
}

const dir = mkdtempSync(join(tmpdir(), 'engine-old-state-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const unpacked = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'));

/** Reads all events from the position of the folder, and fires everything. */
async function run(kind: Kind, disk: SimDisk, spill: string) {
  const job: Job = JOBS[kind];
  const sink = new MemorySink();
  const source = new MemorySource(EVENTS, 2, 30);
  const options = { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES };
  const store = kind === 'disk' ? await rocksdbDriver.open(spill, options) : undefined;
  const pieces = store && (await PieceStore.open(async () => store, pieceOrderOf(job)));
  const onDisk: Partial<EngineParts> =
    pieces === undefined
      ? {}
      : {
          spill: { pieces, bytesMax: 0 },
          openState: () => stateOf(job, KERNELS, 2, pieces),
          sleep: () => new Promise((resolve) => setImmediate(resolve)),
        };
  const world = { job, partitions: 2, shards: 2, disk, sink, source, checkpointIntervalMs: 40 };
  const engine = engineIn(world, onDisk);
  await engine.restore();
  const { consumed, accepted, droppedLate, invalid } = await engine.run(new AbortController().signal);
  await store?.close();
  return { rows: sink.sorted(), totals: { consumed, accepted, droppedLate, invalid } };
}

const vector = JSON.parse(brotliDecompressSync(readFileSync(VECTOR)).toString()) as Record<Kind, Folder>;

describe('state folder of form 5', () => {
  for (const kind of ['mem', 'disk'] as const) {
    it(`a folder ${kind === 'mem' ? 'with state in memory' : 'with state on disk'} is read, and the run resumes exactly from there`, async () => {
      const { files, spill, rows } = vector[kind];
      const disk = new SimDisk();
      for (const [name, bytes] of Object.entries(files)) disk.put(name, unpacked(bytes));
      const folder = join(dir, kind);
      for (const [path, bytes] of Object.entries(spill)) {
        mkdirSync(dirname(join(folder, path)), { recursive: true });
        writeFileSync(join(folder, path), unpacked(bytes));
      }
      const after = await run(kind, disk, folder);
      const whole = await run(kind, new SimDisk(), join(dir, `${kind}-whole`));
      expect(after.totals).toEqual(whole.totals);
      expect(rows.length).toBeGreaterThan(0);
      expect(after.rows.length).toBeLessThan(whole.rows.length);
      expect([...new Set([...rows, ...after.rows])].sort()).toEqual(whole.rows);
    });
  }
});
