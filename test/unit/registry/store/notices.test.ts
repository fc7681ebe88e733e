/** Notices for an operator about the content of a log and about failed writes. */
import { describe, expect, it } from 'vitest';
import type { LogFields, Logger } from '../../../../src/core/log.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { encodeRecord, type SchemaFields } from '../../../../src/registry/store/state/records.ts';
import { realClock } from '../../../wait.ts';
import { avro, code, TestLog } from './store-kit.ts';

interface Notice extends LogFields {
  readonly level: string;
  readonly message: string;
}

async function opened(records: readonly LogRecord[] = []) {
  const said: Notice[] = [];
  const at =
    (level: string) =>
    (fields: LogFields, message: string): void =>
      void said.push({ ...fields, level, message });
  const logger: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    child: () => logger,
  };
  const log = new TestLog();
  log.records.push(...records);
  let now = 0;
  const clock = { ...realClock, wallNowMs: () => now, monotonicMs: () => now };
  const registry = await Registry.open(log, logger, { clock });
  return {
    registry,
    log,
    warnings: () => said.filter(({ level }) => level === 'warn'),
    pass: (ms: number) => {
      now += ms;
    },
  };
}

const raw = (key: string, value: string): LogRecord => ({ key: Buffer.from(key), value: Buffer.from(value) });
const config = (subject: string | null, level: string): LogRecord =>
  raw(
    JSON.stringify({ keytype: 'CONFIG', subject, magic: 0 }),
    JSON.stringify({ compatibilityLevel: level }),
  );

describe('records without effect', () => {
  it('ineffective records are counted, and the first of them are reported with position and key', async () => {
    const good = encodeRecord({ kind: 'context', context: '.c', value: true }, 1);
    const bad = Array.from({ length: 30 }, (_, i) => raw(`no json ${i} ${'x'.repeat(500)}`, '{}'));
    const { registry, warnings } = await opened([good, ...bad]);
    expect(registry.storeFaults().unread).toBe(30);
    expect(warnings()).toHaveLength(20);
    expect(warnings()[0]).toMatchObject({ record: 2, key: `no json 0 ${'x'.repeat(190)}` });
    expect(warnings()[19]?.message).toContain('further ones are only counted');
  });
});

describe('unknown compatibility level', () => {
  it('an unknown compatibility level is logged once, and the next outer level applies', async () => {
    const { registry, warnings } = await opened([
      config(null, 'FULL'),
      config('a', 'WEIRD'),
      config('b', 'WEIRD'),
    ]);
    expect(registry.config('a', true)).toEqual({ compatibilityLevel: 'FULL' });
    expect(registry.compatibility('a', undefined, { text: avro('x') }, {}).level).toBe('FULL');
    expect(warnings()).toHaveLength(1);
    expect(warnings()[0]).toMatchObject({ subject: 'a', compatibilityLevel: 'WEIRD' });
    await registry.deleteConfig('a');
    expect(await code(registry.deleteConfig('a'))).toBe('subject_not_found');
  });
});

describe('failed writes', () => {
  it('a failed write is counted, logged occasionally, and cleared by the next successful write', async () => {
    const { registry, log, warnings, pass } = await opened();
    log.failure = registryError('store_failed', 'no space', { cause: new Error('ENOSPC: no space left') });
    const put = (subject: string): Promise<string> =>
      code(registry.register(subject, { text: avro('x') }, {}));
    for (let i = 0; i < 5; i++) expect(await put(`s${i}`)).toBe('store_failed');
    expect(registry.storeFaults()).toMatchObject({ failures: 5, failing: true });
    expect(warnings()).toHaveLength(1);
    expect(warnings()[0]).toMatchObject({ store: 'test', cause: 'Error: ENOSPC: no space left' });
    pass(10_000);
    await put('s6');
    expect(warnings().map(({ failures }) => failures)).toEqual([1, 5]);
    log.failure = undefined;
    expect(await put('s7')).toBe('done');
    expect(registry.storeFaults()).toMatchObject({ failures: 6, failing: false });
  });

  it('a write refused because another instance leads is not a failure', async () => {
    const { registry, log, warnings } = await opened();
    log.failure = registryError('not_leader', 'another one writes');
    expect(await code(registry.register('s', { text: avro('x') }, {}))).toBe('not_leader');
    expect(registry.storeFaults()).toMatchObject({ failures: 0, failing: false });
    expect(warnings()).toEqual([]);
  });
});

describe('messages', () => {
  it('messages name an unknown stored type, and no context where it has no name', async () => {
    const value: SchemaFields = {
      id: 1,
      format: 'THRIFT',
      text: 'struct A {}',
      references: [],
      deleted: false,
    };
    const { registry, warnings } = await opened([
      encodeRecord({ kind: 'schema', subject: 'a', version: 1, value }, 1),
      encodeRecord({ kind: 'mode', subject: 'gap', value: 'READONLY' }),
      encodeRecord({ kind: 'mode', subject: ':.c:gap', value: 'READONLY' }),
    ]);
    const { comparisons } = registry.compatibility('a', undefined, { text: avro('x') }, {});
    expect(comparisons[0]?.findings[0]?.message).toBe(
      'the stored schema of version 1 is of the type THRIFT, which is not known here, so nothing can be said about it',
    );
    expect(warnings()[0]?.message).toContain('has an unknown type');
    const refused = (subject: string) => registry.register(subject, { text: avro('x') }, {});
    await expect(refused('gap')).rejects.toThrow('Subject gap is in read-only mode');
    await expect(refused(':.c:gap')).rejects.toThrow('Subject :.c:gap in context :.c: is in read-only mode');
  });
});
