/** The effective verdict policy: the setting, or without a setting the policy of the registry that
 *  wrote the log. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { decodeRecord, encodeRecord } from '../../../../src/registry/store/state/records.ts';
import { exportStore, importStore } from '../../../../src/registry/store/transfer.ts';
import { realClock } from '../../../wait.ts';
import { avro, SharedLog, TestLog } from './store-kit.ts';

const schema = (extra?: Readonly<Record<string, string>>): LogRecord =>
  encodeRecord({
    kind: 'schema',
    subject: 's',
    version: 1,
    value: {
      id: 1,
      format: 'AVRO',
      text: avro('x'),
      references: [],
      deleted: false,
      ...(extra === undefined ? {} : { extra }),
    },
  });
const NOOP = { key: Buffer.from('{"keytype":"NOOP","magic":0}'), value: null };
const DAMAGED = { key: Buffer.from('{"keytype":"ELSE"}'), value: Buffer.from('{}') };

const opened = async (log: TestLog, records: readonly LogRecord[] = []): Promise<Registry> => {
  log.records.push(...records);
  return Registry.open(log, silentLogger, { clock: realClock });
};
const inForce = (registry: Registry, subject?: string): unknown => registry.verdictPolicy(subject);
const kinds = (log: TestLog): unknown[] =>
  log.records.map((record) => {
    const decoded = decodeRecord(record);
    return 'record' in decoded ? decoded.record.kind : decoded.unread;
  });

describe('default policy', () => {
  it.each<readonly [what: string, log: () => TestLog, records: readonly LogRecord[], policy: unknown]>([
    ['an empty log of our own', () => new TestLog(), [], 'PROVEN'],
    ['a log of our own', () => new TestLog(), [schema()], 'PROVEN'],
    ['a log with properties of another registry', () => new TestLog(), [schema({ md5: 'x' })], 'STRICT'],
    ['a log with a plain NOOP', () => new TestLog(), [schema(), NOOP], 'STRICT'],
    ['a log with unknown records', () => new TestLog(), [DAMAGED], 'STRICT'],
    ['an empty topic', () => new SharedLog(), [], 'PROVEN'],
    ['a topic with records', () => new SharedLog(), [schema()], 'STRICT'],
  ])('the policy without a setting is as specified for %s', async (_what, log, records, policy) => {
    const registry = await opened(log(), records);
    expect(inForce(registry)).toBe(policy);
    for (const shown of [false, true])
      expect(registry.config(undefined, shown)).toEqual({ compatibilityLevel: 'BACKWARD' });
  });
});

it('a topic that began empty is marked as our own by a single record', async () => {
  const log = new SharedLog();
  const registry = await opened(log);
  await registry.register('a', { text: avro('x') }, {});
  await registry.register('a', { text: avro('x', 'y') }, {});
  expect(kinds(log)).toEqual(['schema', 'origin', 'schema']);
  expect(inForce(registry)).toBe('PROVEN');
  const other = new SharedLog();
  expect(inForce(await opened(other, log.records))).toBe('PROVEN');
  // Later records of another registry do not change the policy.
  other.sink?.apply([NOOP]);
});

it('a topic of another registry keeps its policy after our writes', async () => {
  const log = new SharedLog();
  const registry = await opened(log, [schema()]);
  await registry.register('a', { text: avro('x') }, {});
  expect(kinds(log)).toEqual(['schema', 'schema']);
  expect(inForce(await opened(new SharedLog(), log.records))).toBe('STRICT');
});

it('a policy setting takes precedence for the subject, its context or all', async () => {
  const registry = await opened(new SharedLog(), [schema()]);
  await registry.setConfig(undefined, { verdictPolicy: 'proven' });
  expect(inForce(registry, 'a')).toBe('PROVEN');
  await registry.setConfig(':.c:', { verdictPolicy: 'STRICT' });
  expect([inForce(registry, ':.c:a'), inForce(registry, 'a')]).toEqual(['STRICT', 'PROVEN']);
  await registry.setConfig(':.c:a', { verdictPolicy: 'PROVEN' });
  expect(inForce(registry, ':.c:a')).toBe('PROVEN');
  await registry.deleteConfig(undefined);
  expect(inForce(registry, 'a')).toBe('STRICT');
});

describe('copied store', () => {
  const copyOf = async (from: TestLog, to: TestLog): Promise<Registry> => {
    const lines: string[] = [];
    await exportStore(from, async (line) => void lines.push(line.trimEnd()));
    const source = async function* (): AsyncGenerator<string> {
      yield* lines;
    };
    const open = (): TestLog => Object.assign(to, { sink: undefined });
    await importStore(open, source(), realClock);
    return Registry.open(to, silentLogger, { clock: realClock });
  };

  it.each<readonly [what: string, from: () => TestLog, to: () => TestLog, policy: unknown]>([
    ['of a topic in a file', () => new SharedLog(), () => new TestLog(), 'STRICT'],
    ['of a file in a topic', () => new TestLog(), () => new SharedLog(), 'PROVEN'],
  ])('a copy %s keeps its verdict policy', async (_what, from, to, policy) => {
    const log = from();
    log.records.push(schema());
    expect(inForce(await copyOf(log, to()))).toBe(policy);
  });
});
