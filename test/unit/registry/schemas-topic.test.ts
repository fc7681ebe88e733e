/** Replays records that the existing registries wrote: the state equals theirs, and our keys have
 *  the same bytes. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { silentLogger } from '../../../src/core/log.ts';
import type { LogRecord, LogRole, LogSink, RegistryLog } from '../../../src/registry/store/log.ts';
import { Registry } from '../../../src/registry/store/registry.ts';
import { decodeRecord, encodeKey } from '../../../src/registry/store/state/records.ts';
import { realClock } from '../../wait.ts';

interface Topic {
  readonly name: string;
  readonly source: string;
  readonly records: ReadonlyArray<{
    readonly key: string;
    readonly value: string | null;
    readonly exact?: boolean;
  }>;
  readonly expect: {
    /** `subject/version#id` */
    readonly live: readonly string[];
    readonly deleted: readonly string[];
    readonly globalLevel?: string;
    readonly levels?: Readonly<Record<string, string | null>>;
  };
}

const { topics } = JSON.parse(
  readFileSync(new URL('../../vectors/schemas-topic.json', import.meta.url), 'utf8'),
) as { readonly topics: readonly Topic[] };

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');
const recordsOf = (topic: Topic): LogRecord[] =>
  topic.records.map(({ key, value }) => ({ key: bytes(key), value: value === null ? null : bytes(value) }));

/** Log that contains these records and refuses appends. */
class Replay implements RegistryLog {
  readonly name = 'replay';
  private readonly records: readonly LogRecord[];
  constructor(records: readonly LogRecord[]) {
    this.records = records;
  }
  async open(sink: LogSink) {
    sink.apply(this.records);
    return { records: this.records.length, tornBytes: 0 };
  }
  append(): Promise<void> {
    return Promise.reject(new Error('this log refuses appends'));
  }
  async catchUp(): Promise<void> {}
  role(): LogRole {
    return { leader: true };
  }
  async close(): Promise<void> {}
}

it.each(topics.map((topic) => [topic.name, topic] as const))(
  'a recorded topic is replayed to the state of the registry that wrote it: %s',
  async (_, topic) => {
    const registry = await Registry.open(new Replay(recordsOf(topic)), silentLogger, { clock: realClock });
    const found = (deleted: 'no' | 'only'): string[] =>
      registry
        .browse({ prefix: '', deleted: true, latestOnly: false })
        .filter((version) => version.deleted === (deleted === 'only'))
        .map(({ subject, version, id }) => `${subject}/${version}#${id}`);
    expect(found('no')).toEqual(topic.expect.live);
    expect(found('only')).toEqual(topic.expect.deleted);
    if (topic.expect.globalLevel !== undefined) {
      expect(registry.config(undefined, true).compatibilityLevel).toBe(topic.expect.globalLevel);
    }
    for (const [subject, level] of Object.entries(topic.expect.levels ?? {})) {
      if (level !== null) expect(registry.config(subject, false).compatibilityLevel).toBe(level);
      else expect(() => registry.config(subject, false)).toThrow(/40408|compatibility|not/i);
    }
  },
);

it('the registry writes keys byte for byte as the other registries do', () => {
  let exact = 0;
  for (const topic of topics) {
    for (const [i, record] of recordsOf(topic).entries()) {
      if (topic.records[i]?.exact !== true) continue;
      const decoded = decodeRecord(record);
      if (!('record' in decoded)) throw new Error(`${topic.name}: ${decoded.unread}`);
      expect(encodeKey(decoded.record).toString()).toBe(topic.records[i]?.key);
      expect(decoded.keyIsExact).toBe(true);
      exact++;
    }
  }
  expect(exact).toBeGreaterThan(8);
});

it('every recorded topic names its source', () => {
  for (const topic of topics) expect(topic.source).toMatch(/^[\w.-]+\/[\w.-]+ |^our own/);
});
