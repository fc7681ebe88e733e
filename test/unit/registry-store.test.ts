import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LogFields, type Logger, silentLogger } from '../../src/core/log.ts';
import { FileLog, MemoryLog, Registry, type RegistryLog } from '../../src/registry/index.ts';
import type { RegistryEvent } from '../../src/registry/store/event.ts';
import { encodeRecord, REGISTRY_LOG_FILE } from '../../src/registry/store/file-log.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'millrace-registry-'));
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

const record = (...fields: readonly string[]): string =>
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

async function withFile<T>(
  work: (registry: Registry) => Promise<T>,
  logger: Logger = silentLogger,
): Promise<T> {
  const registry = await Registry.open(new FileLog(dir), logger);
  try {
    return await work(registry);
  } finally {
    await registry.close();
  }
}

describe('registering', () => {
  const open = (log: RegistryLog = new MemoryLog()): Promise<Registry> => Registry.open(log, silentLogger);

  it('gives the same content the same id, in the subject and across subjects', async () => {
    const registry = await open();
    const first = await registry.register('a', 'AVRO', record('x'));
    expect(first).toMatchObject({ id: 1, version: 1, created: true });
    expect(
      await registry.register('a', 'AVRO', JSON.stringify(JSON.parse(record('x')), null, 2)),
    ).toMatchObject({ id: 1, version: 1, created: false });
    expect(await registry.register('b', 'AVRO', record('x'))).toMatchObject({
      id: 1,
      version: 1,
      created: true,
    });
    expect(await registry.register('b', 'AVRO', record('x', 'y'))).toMatchObject({ id: 2, version: 2 });
    expect(registry.schema(1).uses).toEqual([
      { subject: 'a', version: 1 },
      { subject: 'b', version: 1 },
    ]);
  });

  it('answers a text the subject already has before any check', async () => {
    const registry = await open();
    const typed = (type: string): string =>
      JSON.stringify({ type: 'record', name: 'Order', fields: [{ name: 'x', type }] });
    await registry.setLevel('a', 'NONE');
    await registry.register('a', 'AVRO', typed('int'));
    await registry.register('a', 'AVRO', typed('string'));
    await registry.setLevel('a', 'FULL');
    expect(await registry.register('a', 'AVRO', typed('int'))).toMatchObject({ id: 1, version: 1 });
    expect(await code(registry.register('a', 'AVRO', typed('double')))).toBe('incompatible');
  });

  it('gives ids without gaps or repeats when many register at once', async () => {
    const registry = await open();
    const all = await Promise.all(
      Array.from({ length: 50 }, (_, i) => registry.register(`s${i % 5}`, 'AVRO', record(`f${i % 10}`))),
    );
    expect(new Set(all.map(({ id }) => id))).toEqual(new Set(Array.from({ length: 10 }, (_, i) => i + 1)));
    for (const subject of registry.subjects()) {
      expect(registry.versionsOf(subject).map(({ version }) => version)).toEqual([1, 2]);
    }
  });

  it.each(['', 'a\u0000b', '__GLOBAL', '__EMPTY', 'x'.repeat(2000)])(
    'refuses the subject %j',
    async (subject) => {
      expect(await code((await open()).register(subject, 'AVRO', record('x')))).toBe('invalid_subject');
    },
  );

  it('shows nothing of a write that was not kept', async () => {
    const failing: RegistryLog = {
      name: 'failing',
      open: async () => ({ events: [], tornBytes: 0 }),
      append: async () => {
        throw new Error('disk full');
      },
      close: async () => {},
    };
    const registry = await open(failing);
    expect(await code(registry.register('a', 'AVRO', record('x')))).toMatch(/disk full/);
    expect(registry.subjects()).toEqual([]);
  });
});

describe('the file store', () => {
  it('gives everything back after a restart', async () => {
    await withFile(async (registry) => {
      await registry.register('a/b c', 'AVRO', record('x'));
      await registry.setLevel('a/b c', 'FULL_TRANSITIVE');
      await registry.setLevel(null, 'NONE');
      await registry.register('p', 'PROTOBUF', 'syntax = "proto3"; message M { int32 a = 1; }');
    });
    await withFile(async (registry) => {
      expect(registry.subjects()).toEqual(['a/b c', 'p']);
      expect(registry.level('a/b c', false)).toBe('FULL_TRANSITIVE');
      expect(registry.level(null, true)).toBe('NONE');
      expect(registry.version('p', 'latest')).toMatchObject({ id: 2, version: 1 });
      expect(
        await registry.register('p', 'PROTOBUF', 'syntax="proto3";\n// again\nmessage M{int32 a=1;}'),
      ).toMatchObject({ id: 2, created: false });
    });
  });

  it('cuts off a last record that stops at any byte, says so, and keeps what was acknowledged', async () => {
    await withFile(async (registry) => {
      await registry.register('a', 'AVRO', record('x'));
    });
    const path = join(dir, REGISTRY_LOG_FILE);
    const whole = readFileSync(path);
    const next: RegistryEvent = { kind: 'level', subject: 'a', level: 'NONE' };
    const torn = encodeRecord(next);
    for (let cut = 1; cut < torn.length; cut++) {
      writeFileSync(path, Buffer.concat([whole, torn.subarray(0, cut)]));
      const warnings: LogFields[] = [];
      const logger: Logger = {
        ...silentLogger,
        warn: (fields) => warnings.push(fields),
        child: () => logger,
      };
      await withFile(async (registry) => {
        expect(registry.subjects()).toEqual(['a']);
        expect(registry.level('a', true)).toBe('BACKWARD');
      }, logger);
      expect(warnings).toEqual([expect.objectContaining({ tornBytes: cut })]);
      expect(readFileSync(path)).toEqual(whole);
    }
  });

  it('cuts off a last record of zeros, as a crash of the machine may leave it', async () => {
    await withFile((registry) => registry.register('a', 'AVRO', record('x')));
    const path = join(dir, REGISTRY_LOG_FILE);
    const whole = readFileSync(path);
    writeFileSync(path, Buffer.concat([whole, Buffer.alloc(100)]));
    await withFile(async (registry) => expect(registry.subjects()).toEqual(['a']));
    expect(readFileSync(path)).toEqual(whole);
  });

  it('refuses a damaged record with sound ones behind it, and changes nothing', async () => {
    await withFile(async (registry) => {
      await registry.register('a', 'AVRO', record('x'));
      await registry.register('b', 'AVRO', record('y'));
    });
    const path = join(dir, REGISTRY_LOG_FILE);
    const whole = readFileSync(path);
    const middle = whole.length / 2;
    for (let at = 8; at < middle - 8; at += 7) {
      const damaged = Buffer.from(whole);
      damaged[at] = (damaged[at] as number) ^ 0x10;
      writeFileSync(path, damaged);
      expect(await code(Registry.open(new FileLog(dir), silentLogger))).toBe('store_corrupt');
      expect(readFileSync(path)).toEqual(damaged);
    }
  });

  it('refuses a file that is no registry log', async () => {
    writeFileSync(join(dir, REGISTRY_LOG_FILE), 'something else entirely');
    expect(await code(Registry.open(new FileLog(dir), silentLogger))).toBe('store_corrupt');
  });

  it('refuses a second owner while the first lives, and takes over from a dead one', async () => {
    await withFile(async () => {
      expect(await code(Registry.open(new FileLog(dir), silentLogger))).toBe('store_locked');
    });
    const lock = join(dir, 'registry.lock');
    writeFileSync(lock, JSON.stringify({ pid: 2 ** 22 + 1, host: hostname(), started: '1' }));
    await withFile(async (registry) => expect(registry.subjects()).toEqual([]));
    // The pid lives, but it is not the process that took the lock.
    writeFileSync(lock, JSON.stringify({ pid: process.pid, host: hostname(), started: '1' }));
    await withFile(async (registry) => expect(registry.subjects()).toEqual([]));
    writeFileSync(lock, JSON.stringify({ pid: 1, host: 'another-machine', started: '' }));
    expect(await code(Registry.open(new FileLog(dir), silentLogger))).toBe('store_locked');
  });

  it('refuses a folder that cannot be made', async () => {
    writeFileSync(join(dir, 'plain'), '');
    expect(await code(Registry.open(new FileLog(join(dir, 'plain', 'sub')), silentLogger))).toBe(
      'not_writable',
    );
  });

  it('refuses one in a file system that takes no folders, at once', async () => {
    expect(await code(Registry.open(new FileLog('/proc/millrace/sub'), silentLogger))).toBe('not_writable');
  });
});
