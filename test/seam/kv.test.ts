/** The state addon at its boundary: its exports, the arguments that it refuses, and threads that
 *  end in the middle of its work. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterAll, describe, expect, it } from 'vitest';
import { findStateAddon, loadStateAddon } from '../../src/addon/state.ts';
import { STATE_ABI } from '../../src/addon/state-functions.ts';
import { projectRoot } from '../repository/root.ts';
import { until } from '../wait.ts';
import { addonPath, type RawFunction, thrownBy } from './kit.ts';

const path = findStateAddon() ?? '';
const raw = createRequire(import.meta.url)(path) as Record<string, RawFunction>;
const root = mkdtempSync(join(tmpdir(), 'kv-seam-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let count = 0;
const newFolder = (): string => {
  const folder = join(root, `store-${count++}`);
  mkdirSync(folder);
  return folder;
};

const code = (expected: string) => expect.objectContaining({ name: 'MillraceError', code: expected });
const open = (folder: string): unknown =>
  raw['stateOpen']?.(folder, 16 << 20, ['rows'], Uint8Array.of(1), true);

describe('state addon', () => {
  it('the state addon exports what state-functions.ts declares, in that order', () => {
    const text = readFileSync(join(projectRoot, 'src', 'addon', 'state-functions.ts'), 'utf8');
    const body = /interface StateAddon \{\n(.*?)^\}/ms.exec(text)?.[1] as string;
    const declared = [...body.matchAll(/^ {2}(?:readonly )?(\w+)[(:]/gm)].map(([, name]) => name);
    expect(Object.keys(raw)).toEqual(declared);
    expect(raw['stateAbi']).toBe(STATE_ABI);
    expect(loadStateAddon()).toBe(loadStateAddon());
  });

  it('the state addon shows the process its two entry points, and only this addon links the store', () => {
    const inspect = (of: string, tool: string, ...args: readonly string[]): string =>
      spawnSync(tool, [...args, of], { encoding: 'utf8' }).stdout;
    const shown = inspect(path, 'nm', '-D', '--defined-only').trim().split('\n');
    expect(shown.map((line) => line.split(' ').at(-1)).sort()).toEqual([
      'napi_register_module_v1',
      'node_api_module_get_api_version_v1',
    ]);
    expect(inspect(path, 'readelf', '-dW')).toMatch(/\(NEEDED\) .*\[librocksdb\.so/);
    expect(inspect(addonPath, 'readelf', '-dW')).not.toMatch(/rocksdb/);
  });

  it('the loader refuses a state addon that is missing, no addon at all, or built from other sources', () => {
    expect(() => loadStateAddon(null)).toThrow(code('addon_missing'));
    expect(() => loadStateAddon(null)).toThrow(
      expect.objectContaining({ next: expect.stringContaining('librocksdb') }),
    );
    expect(() => loadStateAddon(join(projectRoot, 'LICENSE'))).toThrow(code('addon_missing'));
    expect(() => loadStateAddon(addonPath)).toThrow(code('addon_mismatch'));
  });
});

const detached = new Uint8Array(8);
structuredClone(detached.buffer, { transfer: [detached.buffer] });
const HOSTILE: readonly unknown[] = [
  undefined,
  null,
  true,
  -1,
  1e99,
  Number.NaN,
  'x',
  'y'.repeat(10_000),
  {},
  [],
  [1, 2],
  () => {},
  new Uint8Array(3),
  new Uint32Array(3),
  detached,
  Symbol('s'),
  7n,
];
const functions = Object.entries(raw).filter(([, value]) => typeof value === 'function');
const REFUSED = ['ERR_INVALID_ARG_TYPE', 'out_of_range', 'closed'];

describe('state addon calls', () => {
  it.each(functions)(
    'the function %s throws a coded error for any foreign value as argument',
    async (_, call) => {
      for (const value of HOSTILE)
        for (let length = 0; length <= 13; length++)
          expect(REFUSED).toContain(thrownBy(() => call(...new Array(length).fill(value)))?.code);
    },
  );

  it("hostile arguments behind an open store's handle throw coded errors, and the store continues to work", async () => {
    const store = open(newFolder());
    expect(REFUSED).toContain(thrownBy(() => raw['stateFlush']?.(store))?.code);
    expect(await raw['stateStart']?.(store)).toEqual([null, null]);
    for (const [name, call] of functions) {
      if (name === 'stateClose') continue;
      // stateCheckpoint accepts a short text as a path.
      for (const value of HOSTILE.filter((one) => name !== 'stateCheckpoint' || one !== 'x'))
        for (let length = 2; length <= 13; length++)
          expect(REFUSED, name).toContain(
            thrownBy(() => call(store, ...new Array(length - 1).fill(value)))?.code,
          );
    }
    expect(await raw['stateFlush']?.(store)).toEqual([null, null]);
    expect(await raw['stateLeave']?.(store)).toEqual([null, null]);
    raw['stateClose']?.(store);
    raw['stateClose']?.(store);
    expect(thrownBy(() => raw['stateFlush']?.(store))?.code).toBe('closed');
  });

  it('the state addon stays inside a buffer that another thread changes concurrently', async () => {
    const store = open(newFolder());
    await raw['stateStart']?.(store);
    const shared = new SharedArrayBuffer(4096);
    const bytes = new Uint8Array(shared, 0, 2048);
    const ends = new Uint32Array(shared, 2048, 512);
    const outcomes = new Set<unknown>();
    for (let turn = 0; turn < 300; turn++) {
      for (let i = 0; i < 512; i++) ends[i] = i * 4 + 4;
      const put = raw['statePut']?.(store, 0, 0, bytes, ends, null, null, 256, 0, 0, 0, 1) as Promise<
        [unknown]
      >;
      for (let i = 0; i < 512; i++) ends[(i * 77) & 511] = (turn * 2_654_435_761 + i * 40_503) >>> 0;
      const [error] = await put;
      outcomes.add(error === null ? null : (error as [number])[0]);
    }
    for (const outcome of outcomes) expect([null, 10]).toContain(outcome);
    await raw['stateLeave']?.(store);
    raw['stateClose']?.(store);
  });
});

describe('thread with open stores', () => {
  /** Number of threads without those of the store's own pool. How many of these run depends on how
   *  far the worker got. */
  const threads = (): number =>
    readdirSync('/proc/self/task').filter((id) => {
      try {
        return !readFileSync(`/proc/self/task/${id}/comm`, 'utf8').startsWith('rocksdb:');
      } catch {
        return false;
      }
    }).length;

  /** Ends a worker in the middle of its work and then reopens its folder. */
  async function endWorker(how: 'terminated' | 'left'): Promise<void> {
    const folder = newFolder();
    const worker = new Worker(fileURLToPath(new URL('./kv.worker.mjs', import.meta.url)), {
      workerData: { path, folder, exits: how === 'left' },
    });
    await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    if (how === 'terminated') await worker.terminate();
    else await new Promise((resolve) => worker.once('exit', resolve));
    const store = raw['stateOpen']?.(folder, 16 << 20, ['rows'], Uint8Array.of(1), false);
    expect(await raw['stateStart']?.(store)).toEqual([null, null]);
    await raw['stateLeave']?.(store);
    raw['stateClose']?.(store);
  }

  it.each(['terminated', 'left'] as const)(
    'a thread with open stores that is %s in the middle releases its threads and its folder',
    async (how) => {
      // The store starts a thread pool of its own at the first use and keeps it.
      await endWorker(how);
      const before = threads();
      for (let i = 0; i < 3; i++) await endWorker(how);
      await until('no thread of an ended worker', () => threads() <= before);
    },
  );
});
