import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { exportToStream, transfer } from '../../../../src/bin/registry/transfer.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import type { FileLog } from '../../../../src/registry/store/file/log.ts';
import type { LogRecord, RegistryLog } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { encodeRecord, type StoreRecord } from '../../../../src/registry/store/state/records.ts';
import { exportStore, importStore } from '../../../../src/registry/store/transfer.ts';
import { realClock } from '../../../wait.ts';
import { fileLog } from './file-kit.ts';
import { avro, code, everything, TestLog, typed } from './store-kit.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'millrace-transfer-'));
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

const file = (name: string): FileLog => fileLog(join(dir, name));

/** Log that keeps its records when it is reopened, as a topic does. */
class SharedLog extends TestLog {
  constructor(records: LogRecord[]) {
    super();
    this.records = records;
  }
}

async function exported(log: RegistryLog): Promise<string[]> {
  const lines: string[] = [];
  await exportStore(log, async (line) => {
    lines.push(line.slice(0, -1));
  });
  return lines;
}

async function* linesOf(lines: readonly string[]): AsyncIterable<string> {
  yield* lines;
}

const shown = async (log: RegistryLog): Promise<unknown> => {
  const registry = await Registry.open(log, silentLogger, { clock: realClock });
  const all = [
    everything(registry),
    registry.config(undefined, false),
    registry.config('a', true),
    registry.mode('b', true),
    registry.counts(),
  ];
  await registry.close();
  return all;
};

async function fillStore(log: RegistryLog): Promise<void> {
  const registry = await Registry.open(log, silentLogger, { clock: realClock });
  await registry.setConfig(undefined, { compatibility: 'NONE' });
  for (const subject of ['a', 'b', ':.c:a', 'q"{é☃'])
    for (const text of [avro('x'), avro(subject === 'b' ? 'q' : 'y'), typed('int')])
      await registry.register(subject, { text, metadata: { properties: { of: subject } } }, {});
  await registry.setConfig('a', { compatibility: 'FULL', verdictPolicy: 'STRICT' });
  await registry.setMode('b', 'READONLY', false);
  await registry.deleteVersion('a', '2', false);
  await registry.deleteSubject('q"{é☃', false);
  await registry.deleteSubject('q"{é☃', true);
  await registry.deleteSubject(':.c:a', false);
  await registry.close();
}

describe('export', () => {
  it('an export does not restore a version that a replaced tombstone had deleted', async () => {
    const registry = await Registry.open(file('one'), silentLogger, { clock: realClock });
    await registry.setConfig('s', { compatibility: 'NONE' });
    await registry.register('s', { text: avro('a') }, {});
    await registry.register('s', { text: avro('b') }, {});
    await registry.deleteSubject('s', false);
    await registry.setMode('s', 'IMPORT', false);
    await registry.register('s', { text: avro('a'), version: 1, id: 1 }, {});
    await registry.deleteSubject('s', false);
    await registry.close();
    const before = await shown(file('one'));
    await importStore(() => file('two'), linesOf(await exported(file('one'))), realClock);
    expect(await shown(file('two'))).toEqual(before);
  });
});

const UNKNOWN_RECORDS: readonly LogRecord[] = [
  { key: Buffer.from([0xff, 0x00, 0x41]), value: Buffer.from([0xc3]), ts: 12 },
  { key: Buffer.from('{"keytype":"ASSOC","x":1}'), value: Buffer.from('{"later": true }') },
  { key: Buffer.from('{"magic":0,"keytype":"NOOP"}'), value: Buffer.from('') },
];

describe('transfer commands', () => {
  const options = (store: string, over: { readonly out?: string; readonly in?: string } = {}) => ({
    store: store === 'memory' ? store : `file:${join(dir, store)}`,
    out: over.out ?? '-',
    in: over.in,
    log: silentLogger,
    clock: realClock,
    openLog: () => file(store),
  });

  it('the export command writes a file atomically, and the import command fills a store from it', async () => {
    await fillStore(file('one'));
    const out = join(dir, 'export.jsonl');
    expect(await transfer('export', options('one', { out }))).toBe(0);
    expect(readdirSync(dir).sort()).toEqual(['export.jsonl', 'one']);
    expect(await transfer('import', options('two', { in: out }))).toBe(0);
    expect(await transfer('import', options('two', { in: out }))).toBe(0);
    expect(await exported(file('two'))).toEqual(readFileSync(out, 'utf8').trimEnd().split('\n'));
  });

  it.each([
    ['export', 'memory', {}, 'bad_value'],
    ['import', 'memory', { in: 'x' }, 'bad_value'],
    ['export', 'no-store', {}, 'bad_value'],
    ['export', 'one', { out: '/proc/millrace/x' }, 'not_writable'],
    ['import', 'two', {}, 'usage'],
    ['import', 'two', { in: '/proc/millrace/x' }, 'bad_file'],
    ['import', 'two', { in: '/dev/null' }, 'malformed_export'],
  ] as const)('the command %s of %s with %j answers %s', async (action, store, over, wanted) => {
    await fillStore(file('one'));
    expect(await code(transfer(action, options(store, over)))).toBe(wanted);
    expect(readdirSync(dir)).toEqual(['one']);
  });
});

describe('export target', () => {
  const command = (out: string) =>
    transfer('export', {
      store: `file:${join(dir, 'one')}`,
      out,
      in: undefined,
      log: silentLogger,
      clock: realClock,
      openLog: () => file('one'),
    });

  it('an export into a pipe does not replace the pipe', async () => {
    await fillStore(file('one'));
    const pipe = join(dir, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const read = readFile(pipe, 'utf8');
    expect(await command(pipe)).toBe(0);
    expect((await read).trimEnd().split('\n')).toEqual(await exported(file('one')));
    expect(statSync(pipe).isFIFO()).toBe(true);
    expect(readdirSync(dir).sort()).toEqual(['one', 'pipe']);
  });

  it.each(['a file', 'nothing'])(
    'an export to a link to %s writes its target and keeps the link',
    async (what) => {
      await fillStore(file('one'));
      const target = join(dir, 'target');
      const link = join(dir, 'link');
      if (what === 'a file') writeFileSync(target, 'old');
      symlinkSync(target, link);
      expect(await command(link)).toBe(0);
      expect(lstatSync(link).isSymbolicLink()).toBe(true);
      expect(readFileSync(target, 'utf8').trimEnd().split('\n')).toEqual(await exported(file('one')));
      expect(readdirSync(dir).sort()).toEqual(['link', 'one', 'target']);
    },
  );

  it('an export to a folder or a full stream is refused in one line', async () => {
    await fillStore(file('one'));
    expect(await code(command(dir))).toBe('not_writable');
    const full = new Writable({
      write: (_chunk, _encoding, done) =>
        done(Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC', syscall: 'write' })),
    });
    await expect(exportToStream(full, file('one'))).rejects.toThrow('cannot write stdout: ENOSPC');
  });
});

describe('export and import', () => {
  it('an import makes two stores equal in ids, versions, deletions, settings and unknown records', async () => {
    await fillStore(file('one'));
    const withUnknown = file('one');
    await withUnknown.open({ apply: () => {} });
    await withUnknown.append(UNKNOWN_RECORDS);
    await withUnknown.close();
    const lines = await exported(file('one'));
    expect(lines.filter((line) => line.includes('Base64'))).toHaveLength(1);

    expect(await importStore(() => file('two'), linesOf(lines), realClock)).toMatchObject({
      written: lines.length - 2,
    });
    expect(await exported(file('two'))).toEqual(lines);

    const topic: LogRecord[] = [];
    await importStore(() => new SharedLog(topic), linesOf(lines), realClock);
    expect(await exported(new SharedLog(topic))).toEqual(lines);

    const wanted = await shown(file('one'));
    expect(await shown(file('two'))).toEqual(wanted);
    expect(await shown(new SharedLog(topic))).toEqual(wanted);
    const registry = await Registry.open(file('two'), silentLogger, { clock: realClock });
    const one = await Registry.open(file('one'), silentLogger, { clock: realClock });
    const register = (into: Registry) => into.register('fresh', { text: '"bytes"' }, {});
    expect((await register(registry)).version.id).toBe((await register(one)).version.id);
    await registry.close();
    await one.close();
  });

  it('an import into an equal store does nothing, and into a different one is refused', async () => {
    await fillStore(file('one'));
    const lines = await exported(file('one'));
    await importStore(() => file('two'), linesOf(lines), realClock);
    expect(await importStore(() => file('two'), linesOf(lines), realClock)).toMatchObject({ written: 0 });
    const registry = await Registry.open(file('two'), silentLogger, { clock: realClock });
    await registry.register('another', { text: '"int"' }, {});
    await registry.close();
    const before = await exported(file('two'));
    expect(await code(importStore(() => file('two'), linesOf(lines), realClock))).toBe('store_not_empty');
    expect(await exported(file('two'))).toEqual(before);
  });

  it('an interrupted import resumes in a store without atomic writes', async () => {
    await fillStore(file('one'));
    const lines = await exported(file('one'));
    const topic: LogRecord[] = [];
    await importStore(() => new SharedLog(topic), linesOf(lines), realClock);
    topic.splice(5);
    expect(await importStore(() => new SharedLog(topic), linesOf(lines), realClock)).toMatchObject({
      written: lines.length - 2 - 5,
    });
    expect(await exported(new SharedLog(topic))).toEqual(lines);
  });

  it('a truncated, changed or foreign export is refused, and nothing is written', async () => {
    await fillStore(file('one'));
    const lines = await exported(file('one'));
    const last = lines.length - 1;
    const bad: readonly (readonly string[])[] = [
      [],
      lines.slice(0, last),
      lines.slice(1),
      [...lines.slice(0, 3), ...lines.slice(4)],
      lines.map((line, i) => (i === 4 ? line.replace('schema', 'schemb') : line)),
      [...lines, '{}'],
      [lines[0] as string, 'no JSON', ...lines.slice(1)],
      [lines[0] as string, '{"value":"x"}', ...lines.slice(1)],
      [lines[0] as string, '[]', ...lines.slice(1)],
      ['{"millrace":"registry","format":2}', ...lines.slice(1)],
    ];
    for (const given of bad)
      expect(await code(importStore(() => file('two'), linesOf(given), realClock))).toBe('malformed_export');
    expect(await exported(file('two'))).toHaveLength(2);
  });

  it('an export states the greatest id although the log holds only its tombstone', async () => {
    const record = (value: Extract<StoreRecord, { kind: 'schema' }>['value']): LogRecord =>
      encodeRecord({ kind: 'schema', subject: 'a', version: 1, value });
    const topic = [
      record({ id: 41, format: 'AVRO', text: '"int"', references: [], deleted: false }),
      record(null),
    ];
    const lines = await exported(new SharedLog(topic));
    await importStore(() => file('two'), linesOf(lines), realClock);
    const registry = await Registry.open(file('two'), silentLogger, { clock: realClock });
    expect(registry.counts().versions).toBe(0);
    expect((await registry.register('b', { text: '"int"' }, {})).version.id).toBe(42);
    await registry.close();
  });

  it('an import accepts repeated or removed keys and never assigns their ids again', async () => {
    const line = (version: number, id: number | null, type = 'int'): string =>
      JSON.stringify({
        key: JSON.stringify({ keytype: 'SCHEMA', subject: 's', version, magic: 1 }),
        value:
          id === null
            ? null
            : JSON.stringify({ subject: 's', version, id, schema: `"${type}"`, deleted: false }),
      });
    const noop = '{"key":"{\\"keytype\\":\\"NOOP\\",\\"magic\\":0}","value":null}';
    const body = [
      '{"millrace":"registry","format":1}',
      noop,
      line(1, 3),
      line(2, 9),
      line(1, 4),
      line(2, null),
    ];
    const sha256 = createHash('sha256')
      .update(`${body.join('\n')}\n`)
      .digest('hex');
    const lines = [...body, JSON.stringify({ records: body.length - 1, sha256 })];
    await importStore(() => file('made'), linesOf(lines), realClock);
    const registry = await Registry.open(file('made'), silentLogger, { clock: realClock });
    expect(registry.versions('s', 'also').map(({ version, id }) => [version, id])).toEqual([[1, 4]]);
    expect(await registry.register('t', { text: '"long"' }, {})).toMatchObject({ version: { id: 10 } });
    await registry.close();
  });

  it('an import detects that the store lacks a written record', async () => {
    await fillStore(file('one'));
    const lines = await exported(file('one'));
    const topic: LogRecord[] = [];
    const losing = (): RegistryLog => {
      const log = new SharedLog(topic);
      log.append = async (records) => {
        topic.push(...records.slice(1));
      };
      return log;
    };
    expect(await code(importStore(losing, linesOf(lines), realClock))).toBe('store_corrupt');
  });
});
