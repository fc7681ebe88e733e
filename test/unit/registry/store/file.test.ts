import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LogFields, type Logger, silentLogger } from '../../../../src/core/log.ts';
import { CHAIN_START, encodeFrame, FRAMES, judgeTail } from '../../../../src/registry/store/file/frames.ts';
import { REGISTRY_LOG_FILE } from '../../../../src/registry/store/file/log.ts';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { encodeRecord } from '../../../../src/registry/store/state/records.ts';
import { realClock } from '../../../wait.ts';
import { fileLog, frameEnds } from './file-kit.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'millrace-registry-'));
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

const schema = (...fields: readonly string[]): string =>
  JSON.stringify({
    type: 'record',
    name: 'Order',
    fields: fields.map((name) => ({ name, type: 'string', default: '' })),
  });
const code = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'done',
    (thrown: { code?: string }) => thrown.code ?? String(thrown),
  );
const register = (registry: Registry, subject: string, ...fields: readonly string[]) =>
  registry.register(subject, { text: schema(...fields) }, {});
const subjects = (registry: Registry): readonly string[] => registry.subjects({ prefix: '', deleted: 'no' });
const path = (): string => join(dir, REGISTRY_LOG_FILE);

async function withFile<T>(
  work: (registry: Registry) => T | Promise<T>,
  logger: Logger = silentLogger,
): Promise<T> {
  const registry = await Registry.open(fileLog(dir), logger, { clock: realClock });
  try {
    return await work(registry);
  } finally {
    await registry.close();
  }
}

/** Opens the folder and collects the warnings. */
async function reopened<T>(work: (registry: Registry) => T): Promise<{ result: T; warnings: LogFields[] }> {
  const warnings: LogFields[] = [];
  const logger: Logger = { ...silentLogger, warn: (fields) => warnings.push(fields), child: () => logger };
  return { result: await withFile(work, logger), warnings };
}

/** File of format 2, gzipped, as the previous release wrote it: versions 1 (deleted) and 2 of `a`
 *  at level NONE, and a permanently deleted Protobuf schema of `p`. */
const OLD_FILE = gunzipSync(
  Buffer.from(
    [
      'H4sIAAAAAAAAA92TMWzTQBSGHwxIhIW1gsF6K1bVJEhFrlqpSZ0QlNhRmkClXihX55Ia7HOwL1GCZWBjhYWBrYhKrMDKhOjCxIaE',
      'xNIZkOiKRJCdgBLSQESYuOV0793du+//3xVKJTWbzyY+A4D/Yn9Fe/a8dwEA9iAcdy9/e9lJ+XiDdUW3yVDB9fRFtbCKMnqt7evM',
      'EKggRRnbzPVMh6MSl9GmDdNAJR74v9lk1qLJM3aYTVFBn2BYgaBC0GWG49YIygQ5tfuxUrSsm8yqeQSVTX8o14lyP497wjV5I4rV',
      'WJ22LBGFCQbVAGWsMYsJVkOlTi2PBbGQ/Pb+49PxvVt8FvLENOSJPnniH5F3ZyL/BADVe4V88eSVRyH5k//fc+G2WBDbAYD5O6/P',
      'Hv/w9ZUMAOcmgKd1LZPLjoEPYBfGYA3HblJhbpuWKbp51mYWKqjpmopB7D0AfDmotncXF96GYj+YXuzmNGL/uikUO/lD7HL/7mJJ',
      'L+upSgaHTPC6XNCOtCwRbLqOcJIElwgn3GaeRxtMKkg+4ZJkcpFMSA2HM2lZWlwiPCD8iJa6BgAfD0+cOth4evU8AJyZQLmm5tWy',
      'urVeSV1S0+Ux2iMVHiUMYg+PAbxLH+bmdp03KwAwN6GWpuvFoTtltE3LcqkR5gqrG1u5tcg6LlgnLDOPgT+yDI92cqGcQQYA7v9F',
      'mVSlpKlrY5geu/knG+uOa1Mx6t3gZbM557I6cxk3mIfKZlVGi3pi8D/C9uz1er1Z2zP2HXrPQ51dBgAA',
    ].join(''),
    'base64',
  ),
);

describe('registry file store', () => {
  it('a file of the previous release is opened and rewritten completely in the present format', async () => {
    const look = (registry: Registry): unknown => [
      registry.versions('a', 'also').map(({ version, id, deleted, ts }) => [version, id, deleted, ts]),
      registry.config('a', true).compatibilityLevel,
      subjects(registry),
      registry.maxId('.'),
    ];
    const versions = [
      [1, 1, true, 1_700_000_000_000],
      [2, 2, false, 1_700_000_000_000],
    ];
    writeFileSync(path(), OLD_FILE);
    for (let start = 0; start < 2; start++) {
      await withFile(async (registry) => {
        expect(look(registry)).toEqual([versions, 'NONE', ['a'], 3]);
        const other = 'syntax = "proto3"; message M { string other = 7; }';
        expect(await code(registry.register('p', { format: 'PROTOBUF', text: other }, {}))).toBe(
          'incompatible',
        );
      });
      expect(readFileSync(path()).subarray(0, FRAMES.magic.length)).toEqual(FRAMES.magic);
    }
  });

  it('the file store restores everything after a restart', async () => {
    const before = await withFile(async (registry) => {
      await register(registry, 'a/b c"{é', 'x');
      await register(registry, 'a/b c"{é', 'x', 'y');
      await register(registry, ':.ctx:s', 'x');
      await registry.setConfig('a/b c"{é', { compatibility: 'FULL_TRANSITIVE', lossy: 'reject' });
      await registry.setConfig(undefined, { compatibility: 'NONE' });
      await registry.setMode('frozen', 'READONLY', false);
      await registry.register(
        'p',
        { format: 'PROTOBUF', text: 'syntax = "proto3"; message M { int32 a = 1; }' },
        {},
      );
      await registry.deleteVersion('a/b c"{é', '1', false);
      return registry.browse({ prefix: '', deleted: true, latestOnly: false });
    });
    await withFile(async (registry) => {
      expect(registry.browse({ prefix: '', deleted: true, latestOnly: false })).toEqual(before);
      expect(before.every(({ ts }) => ts > 1.7e12)).toBe(true);
      expect(registry.config('a/b c"{é', false)).toEqual({
        compatibilityLevel: 'FULL_TRANSITIVE',
        lossy: 'REJECT',
      });
      expect(registry.config(undefined, true)).toEqual({ compatibilityLevel: 'NONE' });
      expect(registry.mode('frozen', false)).toBe('READONLY');
      expect(registry.contexts()).toEqual(['.', '.ctx']);
      const again = await registry.register(
        'p',
        { format: 'PROTOBUF', text: 'syntax="proto3";\n// again\nmessage M{int32 a=1;}' },
        {},
      );
      expect(again).toMatchObject({ created: false, version: { version: 1 } });
    });
  });

  it('an id is never assigned twice, although its schema was deleted permanently', async () => {
    await withFile(async (registry) => {
      await register(registry, 'a', 'x');
      await register(registry, 'b', 'y');
      await registry.deleteSubject('b', false);
      await registry.deleteSubject('b', true);
    });
    await withFile(async (registry) => {
      expect((await register(registry, 'c', 'z')).version.id).toBe(3);
    });
  });

  it('an incomplete last append is truncated with a warning, and acknowledged appends stay', async () => {
    await withFile((registry) => register(registry, 'a', 'x'));
    const whole = readFileSync(path());
    const records = [
      encodeRecord({ kind: 'config', subject: 'a', value: { compatibilityLevel: 'NONE' } }),
      encodeRecord({ kind: 'mode', subject: 'a', value: 'READONLY' }),
    ];
    const torn = encodeFrame(records, CHAIN_START).frame;
    for (let cut = 1; cut < torn.length; cut++) {
      for (const room of [torn.length - cut, 700]) {
        writeFileSync(path(), Buffer.concat([whole, torn.subarray(0, cut), Buffer.alloc(room)]));
        const { result, warnings } = await reopened((registry) => [
          ...subjects(registry),
          registry.config('a', true).compatibilityLevel,
          registry.mode('a', true),
        ]);
        expect(result).toEqual(['a', 'BACKWARD', 'READWRITE']);
        expect(warnings).toHaveLength(1);
        expect(warnings[0]?.['tornBytes']).toBeLessThanOrEqual(cut);
        expect(readFileSync(path())).toEqual(whole);
      }
    }
  });

  it('a file that ends inside an append is refused, because appends are written into allocated space', async () => {
    await withFile(async (registry) => {
      for (let i = 0; i < 3; i++) await register(registry, `s${i}`, 'x');
    });
    const whole = readFileSync(path());
    const borders = new Set([0, ...frameEnds(whole)]);
    for (let cut = 1; cut < whole.length; cut += 3) {
      if (borders.has(cut)) continue;
      const short = whole.subarray(0, cut);
      writeFileSync(path(), short);
      expect(await code(Registry.open(fileLog(dir), silentLogger, { clock: realClock })), `byte ${cut}`).toBe(
        'store_corrupt',
      );
      expect(readFileSync(path())).toEqual(short);
    }
  });

  it('zeros after the last append are treated as allocated space, not as a write', async () => {
    await withFile((registry) => register(registry, 'a', 'x'));
    const whole = readFileSync(path());
    writeFileSync(path(), Buffer.concat([whole, Buffer.alloc(5000)]));
    const { result, warnings } = await reopened(subjects);
    expect(result).toEqual(['a']);
    expect(warnings).toEqual([]);
    expect(readFileSync(path())).toEqual(whole);
  });

  it.each(['the first', 'the last'])(
    'a flipped bit in %s append is refused, and the file stays unchanged',
    async (which) => {
      await withFile(async (registry) => {
        await register(registry, 'a', 'x');
        await register(registry, 'b', 'y');
      });
      const whole = readFileSync(path());
      const first = frameEnds(whole)[1] as number;
      const [from, to] = which === 'the first' ? [8, first] : [first, whole.length];
      for (let at = from; at < to; at += 3) {
        const damaged = Buffer.from(whole);
        damaged[at] = (damaged[at] as number) ^ (1 << (at % 8));
        writeFileSync(path(), damaged);
        expect(
          await code(Registry.open(fileLog(dir), silentLogger, { clock: realClock })),
          `byte ${at}`,
        ).toBe('store_corrupt');
        expect(readFileSync(path())).toEqual(damaged);
      }
    },
  );

  it('a file that is no registry log is refused', async () => {
    writeFileSync(path(), 'something else entirely');
    expect(await code(Registry.open(fileLog(dir), silentLogger, { clock: realClock }))).toBe('store_corrupt');
  });

  it('appends larger than the read buffer are read', async () => {
    const big = 'x'.repeat(400_000);
    const log = fileLog(dir);
    await log.open({ apply: () => {} });
    const records: LogRecord[] = Array.from({ length: 24 }, (_, i) => ({
      key: Buffer.from(`{"keytype":"NOOP","magic":0,"n":${i}}`),
      value: Buffer.from(JSON.stringify(big)),
    }));
    await log.append(records.slice(0, 20));
    await log.append(records.slice(20));
    await log.close();
    const again = fileLog(dir);
    let read = 0;
    await again.open({
      apply: (batch) => {
        for (const { key, value } of batch) {
          const wanted = records[read++];
          expect(Buffer.compare(key, wanted?.key as Uint8Array)).toBe(0);
          expect(Buffer.compare(value as Uint8Array, wanted?.value as Uint8Array)).toBe(0);
        }
      },
    });
    await again.close();
    expect(read).toBe(records.length);
  });

  it('a second registry on the folder of a running one is refused, whatever the lock file contains', async () => {
    await withFile(async () => {
      await expect(Registry.open(fileLog(dir), silentLogger, { clock: realClock })).rejects.toMatchObject({
        code: 'store_locked',
        message: expect.stringContaining(`process ${process.pid} on ${hostname()}`),
      });
      // A process of another PID namespace sees a pid that does not exist there.
      writeFileSync(join(dir, 'lock'), JSON.stringify({ pid: 2 ** 22 + 1, host: hostname() }));
      expect(await code(Registry.open(fileLog(dir), silentLogger, { clock: realClock }))).toBe(
        'store_locked',
      );
    });
    await withFile((registry) => expect(subjects(registry)).toEqual([]));
  });

  it('a folder with lock files of another host or an earlier release is opened', async () => {
    const owner = JSON.stringify({ pid: 1, host: 'another-machine', started: '' });
    for (const name of ['lock', 'registry.lock']) writeFileSync(join(dir, name), owner);
    await withFile((registry) => expect(subjects(registry)).toEqual([]));
  });

  it.each([
    ['plain', 'is a file, and the registry store is a folder'],
    ['plain/sub', 'one of the folders above it is a file'],
  ])('the path %s is refused as a folder, because a file is in the way', async (name, why) => {
    writeFileSync(join(dir, 'plain'), '');
    const opened = Registry.open(fileLog(join(dir, name)), silentLogger, { clock: realClock });
    await expect(opened).rejects.toMatchObject({
      code: 'not_writable',
      message: expect.stringContaining(why),
    });
  });

  it('a store below a file system that accepts no folders is refused immediately', async () => {
    expect(await code(Registry.open(fileLog('/proc/millrace/sub'), silentLogger, { clock: realClock }))).toBe(
      'not_writable',
    );
  });

  it('a log is written whole or not at all', async () => {
    const records = Array.from({ length: 50 }, (_, i) =>
      encodeRecord({ kind: 'context', context: `.c${i}`, value: true }, 5),
    );
    const log = fileLog(dir);
    await log.open({ apply: () => {} });
    mkdirSync(`${path()}.new`);
    expect(await code(log.fill(records))).toBe('store_failed');
    rmSync(`${path()}.new`, { recursive: true });
    expect(statSync(path()).size).toBe(8);
    await log.fill(records);
    await log.append([encodeRecord({ kind: 'context', context: '.later', value: true }, 6)]);
    await log.close();
    await withFile((registry) => expect(registry.contexts()).toHaveLength(52));
  });
});

describe('end of the file', () => {
  const { frame } = encodeFrame(
    [{ key: Buffer.from('{"keytype":"NOOP","magic":0}'), value: Buffer.from('x'.repeat(3000)) }],
    CHAIN_START,
  );
  const zeroed = (from: number, to: number): Buffer => Buffer.from(frame).fill(0, from, to);
  const flipped = (at: number): Buffer => {
    const bytes = Buffer.from(frame);
    bytes[at] = (bytes[at] as number) ^ 1;
    return bytes;
  };
  const room = Buffer.alloc(2000);

  it.each([
    ['nothing', Buffer.alloc(0), 'clean'],
    ['room', room, 'clean'],
    ['one byte, and the end of the file', frame.subarray(0, 1), 'cut'],
    ['a header alone, and the end of the file', frame.subarray(0, FRAMES.headerBytes), 'cut'],
    [
      'a header alone, and room',
      Buffer.concat([frame.subarray(0, FRAMES.headerBytes), Buffer.alloc(4000)]),
      'torn',
    ],
    ['a part of a header, and room', Buffer.concat([frame.subarray(0, 7), room]), 'torn'],
    ['a part of a payload, and the end of the file', frame.subarray(0, 900), 'cut'],
    [
      'a part of a payload, too little room, and the end',
      Buffer.concat([frame.subarray(0, 900), room]),
      'cut',
    ],
    [
      'a part of a payload, and room',
      Buffer.concat([frame.subarray(0, 900), Buffer.alloc(frame.length - 900)]),
      'torn',
    ],
    ['a sector that was never written', Buffer.concat([zeroed(1024, 1536), room]), 'torn'],
    ['a first sector that was never written', zeroed(0, 512), 'torn'],
    ['zeros that fill no sector', zeroed(1030, 1500), 'damaged'],
    ['a flipped bit of the payload', Buffer.concat([flipped(2000), room]), 'damaged'],
    ['a flipped bit of the header', Buffer.concat([flipped(1), room]), 'damaged'],
    [
      'an unwritten sector with later bytes',
      Buffer.concat([zeroed(1024, 1536), room, Buffer.from('x')]),
      'damaged',
    ],
    ['a flipped bit and a valid later append', Buffer.concat([flipped(2000), frame]), 'damaged'],
    ['a part of an append and a valid later append', Buffer.concat([zeroed(1024, 1536), frame]), 'damaged'],
  ])('the end of a file with %s is classified correctly', (_, bytes, verdict) => {
    expect(judgeTail(bytes, 0)).toBe(verdict);
  });
});

/** Limits the size of files of this process; Linux treats the limit like a full disk. */
function limitFiles(bytes: number | 'unlimited'): void {
  execFileSync('prlimit', ['--pid', String(process.pid), `--fsize=${bytes}:`]);
}

describe('full disk', () => {
  it('a full disk refuses writes that do not fit, keeps the others, and accepts writes again when there is room', async () => {
    const kept = await withFile(async (registry) => {
      const acknowledged: number[] = [];
      let refused = 0;
      limitFiles(128 << 10);
      try {
        for (let i = 0; i < 200; i++) {
          const done = await code(
            register(registry, `s${i}`, `f${i}`, 'x'.repeat(1000)).then(({ version }) =>
              acknowledged.push(version.id),
            ),
          );
          if (done === 'done') continue;
          expect(done).toBe('store_failed');
          refused++;
        }
      } finally {
        limitFiles('unlimited');
      }
      expect(refused).toBeGreaterThan(0);
      expect(acknowledged.length).toBeGreaterThan(20);
      expect(registry.counts().versions).toBe(acknowledged.length);
      acknowledged.push((await register(registry, 'roomy', 'again')).version.id);
      expect(acknowledged).toEqual(acknowledged.map((_, i) => i + 1));
      return acknowledged.length;
    });
    const { result, warnings } = await reopened((registry) => registry.counts());
    expect(result).toMatchObject({ versions: kept, schemas: kept });
    expect(warnings).toEqual([]);
  });
});
