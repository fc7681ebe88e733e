/** Store on a disk: killed during writes, damaged, locked, out of space, and with bounded
 *  memory. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { rocksdbDriver } from '../../src/io/rocksdb/addon.ts';
import { KV_BUDGET_MIN_BYTES } from '../../src/io/rocksdb/port.ts';
import { itFull } from '../tier.ts';
import { ALL, code, MIB, OPTIONS, pair, records, scanned, spans, text } from './kv-kit.ts';

const root = mkdtempSync(join(tmpdir(), 'kv-disk-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let count = 0;
const newFolder = (): string => join(root, `store-${count++}`);
const child = fileURLToPath(new URL('./kv.child.mjs', import.meta.url));

/** Runs a case; `onLine` may end it.
 *  @returns the lines of its output */
async function run(
  name: string,
  folder: string,
  onLine: (line: string, kill: () => void) => void,
  fileKib?: number,
): Promise<readonly string[]> {
  const command = [process.execPath, child, name, folder];
  const limited = ['bash', '-c', `ulimit -f ${fileKib}; exec "$@"`, 'bash', ...command];
  const [program, ...args] = (fileKib === undefined ? command : limited) as [string, ...string[]];
  const held = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(held, 'exit');
  const lines: string[] = [];
  for await (const line of createInterface({ input: held.stdout })) {
    lines.push(line);
    onLine(line, () => held.kill('SIGKILL'));
  }
  await ended;
  return lines;
}

const tables = (folder: string): string[] => readdirSync(folder).filter((name) => name.endsWith('.sst'));

/** Writes a store with a run of several blocks and closes it.
 *  @returns the folder and its only file */
async function written(): Promise<readonly [folder: string, file: string]> {
  const folder = newFolder();
  const store = await rocksdbDriver.open(folder, OPTIONS);
  const one = store.openRun('runs');
  await one.append(
    records(
      'r',
      Array.from({ length: 20_000 }, (_, i) => BigInt(i * i + i)),
    ),
  );
  await one.finish();
  await store.close();
  const [name] = tables(folder);
  return [folder, join(folder, name as string)];
}

async function readWhole(folder: string): Promise<number> {
  const store = await rocksdbDriver.open(folder, OPTIONS);
  try {
    return (await scanned(store, 'runs')).length;
  } finally {
    await store.close();
  }
}

describe('killed process', () => {
  it.each(['page 1 3', 'page 2 9', 'last 2', 'run 3'])(
    'a process killed at "%s" leaves only whole runs',
    async (moment) => {
      const folder = newFolder();
      const lines = await run('runs', folder, (line, kill) => {
        if (line === moment) kill();
      });
      const reported = lines.filter((line) => line.startsWith('run ')).length;
      const store = await rocksdbDriver.open(folder, OPTIONS);
      const rows = new Map<string, number>();
      for (const [key] of await scanned(store, 'runs'))
        rows.set(key.slice(0, 12), (rows.get(key.slice(0, 12)) ?? 0) + 1);
      expect([...rows.values()].filter((found) => found !== 20_000)).toEqual([]);
      // A run whose report the signal cut off may exist too.
      expect([reported, reported + 1]).toContain(rows.size);
      expect(readdirSync(join(folder, 'incoming'))).toEqual([]);
      expect(tables(folder).length).toBe(rows.size);
      await store.close();
    },
  );

  it('a killed process keeps what a log or a flush made durable', async () => {
    const folder = newFolder();
    await run('logs', folder, (_, kill) => kill());
    const store = await rocksdbDriver.open(folder, OPTIONS);
    const keys = async (family: string): Promise<string> =>
      (await scanned(store, family)).map(([key]) => Buffer.from(key, 'hex').toString()).join('');
    expect([await keys('rows'), await keys('runs')]).toEqual(['a', 'cd']);
    await store.close();
  });

  it('a running process locks other processes out of its store', async () => {
    const folder = newFolder();
    const lines: string[] = [];
    let refused: unknown;
    let files: readonly string[] = [];
    let left: readonly string[] = [];
    await run('hold', folder, (line, kill) => {
      lines.push(line);
      files = readdirSync(folder);
      rocksdbDriver
        .open(folder, OPTIONS)
        .catch((error: unknown) => {
          refused = error;
        })
        .finally(() => {
          left = readdirSync(folder);
          kill();
        });
    });
    expect(lines).toEqual(['open']);
    expect(refused).toEqual(code('kv_locked'));
    expect((refused as Error).message).toContain(folder);
    expect(left, 'its files stay as they are, the LOG too').toEqual(files);
    await (await rocksdbDriver.open(folder, OPTIONS)).close();
  });
});

describe('damaged file', () => {
  it('opening a store with a truncated file fails and names the file', async () => {
    const [folder, file] = await written();
    truncateSync(file, statSync(file).size - 100);
    await expect(readWhole(folder)).rejects.toThrow(code('kv_corrupt'));
    await expect(readWhole(folder)).rejects.toThrow(file.slice(folder.length));
  });

  it('opening a store with a missing file fails and names the file', async () => {
    const [folder, file] = await written();
    unlinkSync(file);
    await expect(readWhole(folder)).rejects.toThrow(code('kv_corrupt'));
    await expect(readWhole(folder)).rejects.toThrow(file.slice(folder.length));
  });

  it('a scan of a file with one flipped bit fails and names the file, wherever the bit is', async () => {
    const [folder, file] = await written();
    const bytes = readFileSync(file);
    const places = [10, bytes.length >> 2, bytes.length >> 1, bytes.length - 5];
    for (const at of places) {
      const copy = newFolder();
      cpSync(folder, copy, { recursive: true });
      const spoilt = Buffer.from(bytes);
      spoilt[at] = (spoilt[at] as number) ^ 0x10;
      writeFileSync(join(copy, file.slice(folder.length)), spoilt);
      const outcome = await readWhole(copy).then(
        (rows) => `read ${rows}`,
        (error: { code: string; message: string }) =>
          `${error.code} ${error.message.includes(file.slice(folder.length + 1))}`,
      );
      expect(outcome, `byte ${at} of ${bytes.length}`).toBe('kv_corrupt true');
    }
    expect(await readWhole(folder)).toBe(20_000);
  });

  it('a missing manifest pointer is an error, and no new store is created over the rest', async () => {
    const [folder] = await written();
    unlinkSync(join(folder, 'CURRENT'));
    await expect(readWhole(folder)).rejects.toThrow(code('kv_corrupt'));
    expect(tables(folder).length).toBe(1);
  });
});

describe('store folder', () => {
  it('a folder of another version or of a foreign store is refused and left unchanged', async () => {
    const [folder] = await written();
    const mark = join(folder, 'MILLRACE-KV');
    const ours = readFileSync(mark, 'utf8');
    writeFileSync(mark, ours.replace(/\d+/, '99'));
    await expect(readWhole(folder)).rejects.toThrow(code('kv_version'));
    await expect(readWhole(folder)).rejects.toThrow(/millrace-kv 99/);
    unlinkSync(mark);
    await expect(readWhole(folder)).rejects.toThrow(code('kv_version'));
    writeFileSync(mark, ours);
    expect(await readWhole(folder)).toBe(20_000);
  });

  it('a folder that cannot be created is reported as not writable', async () => {
    const file = newFolder();
    writeFileSync(file, 'a file');
    await expect(rocksdbDriver.open(join(file, 'store'), OPTIONS)).rejects.toThrow(code('not_writable'));
  });

  it('an open removes only the unfinished files of a dead process', async () => {
    const [folder] = await written();
    mkdirSync(join(folder, 'incoming'), { recursive: true });
    writeFileSync(join(folder, 'incoming', '1.sst'), 'half a run');
    expect(await readWhole(folder)).toBe(20_000);
    expect(readdirSync(join(folder, 'incoming'))).toEqual([]);
  });
});

it('a checkpoint shares its files with the store and outlives the store', async () => {
  const [folder, file] = await written();
  const store = await rocksdbDriver.open(folder, OPTIONS);
  const copy = newFolder();
  const files = await store.checkpoint(copy);
  const name = file.slice(folder.length + 1);
  expect(files.find((one) => one.name === name)?.bytes).toBe(statSync(file).size);
  expect(statSync(join(copy, name)).ino).toBe(statSync(file).ino);
  await store.deleteRange('runs', ALL, 'off');
  await store.close();
  rmSync(folder, { recursive: true });
  expect(await readWhole(copy)).toBe(20_000);
});

it('a full disk is an error of its own, for runs and for puts', {
  timeout: 300_000,
}, async () => {
  const lines = await run('full', newFolder(), () => {}, 400);
  expect(lines).toEqual(['run kv_full', 'put kv_full']);
});

itFull('memory stays under the budget while many times as much is written and read', async () => {
  const [line] = await run('budget', newFolder(), () => {});
  const { before, after, written: out, read, files, stats } = JSON.parse(line as string);
  const budget = 32 * MIB;
  expect(out).toBeGreaterThan(10 * budget);
  // Four rounds of 104 MiB, each read with the earlier rounds; a run of 80 MiB has more than one
  // file.
  expect(read).toBe((1 + 2 + 3 + 4) * 104 * MIB);
  expect(files).toBe(8);
  expect(stats.cacheBytes + stats.memtableBytes).toBeLessThanOrEqual(budget);
  expect(stats.tableReaderBytes).toBeLessThan(MIB);
  // Memory in addition to the budget: a file that is being written, read-ahead of the compaction,
  // and the allocator's reserve.
  expect(after.peak - before.rss).toBeLessThan(budget + 64 * MIB);
});

it('a scan waits for a put and reads it from the files too', async () => {
  const folder = newFolder();
  const store = await rocksdbDriver.open(folder, { ...OPTIONS, budgetBytes: KV_BUDGET_MIN_BYTES });
  // More rows than the memtables hold, so that files and memory both have rows.
  const value = new Uint8Array(1000).map((_, i) => (i * 31) ^ (i >> 3));
  for (let batch = 0; batch < 20; batch++) {
    const pairs = Array.from(
      { length: 300 },
      (_, i) => [text(`k${1000 + ((i * 7) % 300)}-${batch}`), value] as const,
    );
    await store.put('rows', spans(pairs), 'off');
  }
  await store.put('rows', spans([pair('a', '1')]), 'off');
  expect((await scanned(store, 'rows')).length).toBe(6001);
  expect(tables(folder).length).toBeGreaterThan(0);
  await store.close();
});
