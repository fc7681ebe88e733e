/** The addon in several threads of one process: loaded concurrently, used concurrently, and
 *  terminated in the middle of its work. */
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, it } from 'vitest';
import { loadKernels } from '../../src/addon/load.ts';
import { AdmittedBatch } from '../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { until } from '../wait.ts';
import { addonPath, raw, records, thrownBy } from './kit.ts';

const ROWS = 64;
const workers: Worker[] = [];
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.terminate()));
});

function start(
  mode: 'once' | 'forever' | 'forget' | 'fall' | 'scribble' | 'share' | 'share-forget',
  shared = records(ROWS, true),
): Worker {
  const worker = new Worker(fileURLToPath(new URL('./worker.mjs', import.meta.url)), {
    workerData: {
      path: addonPath,
      mode,
      rows: ROWS,
      records: shared.buffer,
      events: EventBatch.create(ROWS, true).buffer,
      ...admittedRows(),
    },
  });
  workers.push(worker);
  return worker;
}

/** Events of many keys at time 0, all admitted. */
function admittedRows() {
  const [decoded, admitted] = [EventBatch.create(ROWS), AdmittedBatch.create(ROWS)];
  for (let row = 0; row < ROWS; row++) {
    decoded.columns.accountId[row] = BigInt(row);
    admitted.columns.row[row] = row;
  }
  decoded.rowCount = ROWS;
  admitted.rowCount = ROWS;
  return { decodedEvents: decoded.buffer, admitted: admitted.buffer };
}

const message = (worker: Worker): Promise<unknown> =>
  new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
const exit = (worker: Worker): Promise<number> => new Promise((resolve) => void worker.once('exit', resolve));

/** Result that this thread computes from the same batch. */
function expected() {
  const kernels = loadKernels('native');
  const events = EventBatch.create(ROWS);
  const owners = new Int32Array(ROWS);
  const decoded = kernels.decodeEvents(records(ROWS), events);
  kernels.shardOf(events, 7, owners);
  return { decoded, owners: [...owners], code: 'ERR_INVALID_ARG_TYPE', name: 'TypeError' };
}

const threads = (): number => readdirSync('/proc/self/task').length;

describe('addon in several threads', () => {
  it('the addon loads in many threads concurrently, and each thread computes the same', async () => {
    const running = Array.from({ length: 6 }, () => start('once'));
    const answers = await Promise.all(running.map(message));
    expect(answers).toEqual(running.map(expected));
  });

  it('the addon loads again in a new thread after the last thread that used it ended', async () => {
    for (let round = 0; round < 5; round++) {
      const worker = start('once');
      const ended = exit(worker);
      expect(await message(worker)).toEqual(expected());
      expect(await ended).toBe(0);
    }
  });

  it('the addon survives threads that are terminated in the middle of their work', async () => {
    for (let round = 0; round < 4; round++) {
      const running = Array.from({ length: 4 }, () => start('forever'));
      expect(await Promise.all(running.map(message))).toEqual(running.map(() => 'working'));
      expect(expected().decoded).toBe(ROWS);
      expect(await Promise.all(running.map((worker) => worker.terminate()))).toEqual([1, 1, 1, 1]);
    }
    expect(expected().decoded).toBe(ROWS);
  });

  it('the addon stays inside its buffers while another thread overwrites header and spans', async () => {
    const batch = records(ROWS, true);
    expect(await message(start('scribble', batch))).toBe('scribbling');
    const bytes = new Uint8Array(batch.buffer);
    const calls = [
      () => raw['decodeEvents']?.(bytes, new Uint8Array(EventBatch.create(ROWS).buffer)),
      () => raw['scanFrames']?.(bytes, true, new Uint8Array(FrameBatch.create(ROWS).buffer)),
      () => raw['writeFrames']?.(bytes, Uint32Array.of(0), Int32Array.of(9), 1, 7, null, bytes),
    ];
    const answers = new Set<string>();
    for (let i = 0; i < 30_000 || (answers.size < 2 && i < 3_000_000); i++)
      answers.add(thrownBy(calls[i % 3] as () => unknown)?.code ?? 'done');
    // Both outcomes occurred, so the two threads did overlap.
    expect([...answers].sort()).toEqual(['done', 'layout_mismatch']);
  });

  it.each(['share', 'share-forget'] as const)(
    'a thread that ends without closing its states (%s) ends the threads of their shards',
    async (mode) => {
      // Batches of this test are small, and the machine may have one core.
      raw['tuneWorkers']?.(1, 4);
      const before = threads();
      const running = [start(mode), start(mode)];
      const ended = running.map(exit);
      expect(await Promise.all(running.map(message))).toEqual(['shared', 'shared']);
      raw['tuneWorkers']?.(2048, 0);
      if (mode === 'share-forget') {
        // Two workers, each with three threads that its states and its decoder share.
        expect(threads()).toBeGreaterThanOrEqual(before + 2 + 2 * 3);
        for (const worker of running) void worker.terminate();
      }
      await Promise.all(ended);
      await until('no thread of a forgotten state', () => threads() <= before);
    },
  );

  it('a state and a decoder end their threads when they are closed', async () => {
    const f = (name: string) => raw[name] as (...args: readonly unknown[]) => unknown;
    f('tuneWorkers')(1, 4);
    const { decodedEvents, admitted } = admittedRows();
    const before = threads();
    const opened = [
      ['window', f('windowOpen')(10, 4, null)],
      ['session', f('sessionOpen')(10, 4, null)],
    ] as const;
    for (const [kind, state] of opened)
      f(`${kind}Accumulate`)(state, decodedEvents, admitted, null, null, null, null);
    const decoder = f('eventDecoderOpen')(4);
    const into = EventBatch.create(5000);
    f('eventDecoderDecode')(decoder, records(5000).buffer, into.buffer);
    f('tuneWorkers')(2048, 0);
    expect(threads()).toBeGreaterThanOrEqual(before + 3);
    for (const [kind, state] of opened) f(`${kind}Close`)(state);
    f('eventDecoderClose')(decoder);
    f('eventDecoderClose')(decoder);
    await until('no thread of a closed state', () => threads() <= before);
    expect(thrownBy(() => f('eventDecoderDecode')(decoder, records(5000).buffer, into.buffer))?.code).toBe(
      'closed',
    );
  });

  it.each(['forget', 'fall'] as const)(
    'a thread that ends without closing its handles (%s) closes them and stops their threads',
    async (mode) => {
      // The first client starts threads that stay; the count must include them.
      const first = start('fall');
      await message(first);
      await first.terminate();
      const before = threads();
      const running = [start(mode), start(mode)];
      const ended = running.map(exit);
      expect(await Promise.all(running.map(message))).toEqual([2, 2]);
      if (mode === 'forget') {
        expect(threads()).toBeGreaterThan(before + 2);
        for (const worker of running) void worker.terminate();
      }
      await Promise.all(ended);
      await until('no thread of a forgotten client', () => threads() <= before);
    },
  );
});
