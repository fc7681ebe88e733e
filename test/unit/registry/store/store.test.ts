import { beforeEach, describe, expect, it } from 'vitest';
import { parseSchema } from '../../../../src/formats/schema.ts';
import type { LogRecord } from '../../../../src/registry/store/log.ts';
import type { Registry } from '../../../../src/registry/store/registry.ts';
import { encodeRecord } from '../../../../src/registry/store/state/records.ts';
import { CHECK_CHARS_MAX } from '../../../../src/registry/worker/checks.ts';
import { avro, code, everything, type Kit, openKit, proto, type TestLog, typed } from './store-kit.ts';

let registry: Registry;
let log: TestLog;
let put: Kit['put'];
let numbers: Kit['numbers'];
let replayed: Kit['replayed'];
const open = async (records?: readonly LogRecord[]): Promise<void> => {
  ({ registry, log, put, numbers, replayed } = await openKit(records));
};
beforeEach(() => open());

describe('ids and deduplication', () => {
  it('the same content gets the same id, within a subject and across subjects', async () => {
    expect(await put('a', avro('x'))).toMatchObject({ created: true, version: { id: 1, version: 1 } });
    const pretty = JSON.stringify(JSON.parse(avro('x')), null, 2);
    expect(await put('a', pretty)).toMatchObject({ created: false, version: { id: 1, version: 1 } });
    expect(await put('b', avro('x'))).toMatchObject({ created: true, version: { id: 1, version: 1 } });
    expect(await put('b', avro('x', 'y'))).toMatchObject({ version: { id: 2, version: 2 } });
    expect(registry.uses(1, { deleted: false }).map(({ subject }) => subject)).toEqual(['a', 'b']);
    expect(registry.maxId('.')).toBe(2);
  });

  it('metadata and rules count for identity, and are inherited from the previous version', async () => {
    const text = avro('x');
    await put('a', { text, metadata: { properties: { owner: 'me' } } });
    expect(await put('a', { text, metadata: { properties: { owner: 'you' } } })).toMatchObject({
      version: { id: 2, version: 2 },
    });
    expect(await put('a', text)).toMatchObject({ created: false, version: { version: 2 } });
    expect(await put('a', { text, ruleSet: { domainRules: [{ name: 'r' }] } })).toMatchObject({
      version: { id: 3, content: { metadata: { properties: { owner: 'you' } } } },
    });
    const wanted = new Map([['owner', 'me']]);
    expect(registry.latestWithMetadata('a', wanted, false)).toMatchObject({ version: 1 });
    expect(await code(() => registry.latestWithMetadata('a', new Map([['owner', 'x']]), false))).toBe(
      'metadata_not_found',
    );
    expect(await put('a', { text: '', metadata: { tags: { x: ['PII'] } } })).toMatchObject({
      version: { version: 4, content: { text: expect.stringContaining('Order') } },
    });
  });

  it('a text that the subject already has is answered before any check, also an older one', async () => {
    await registry.setConfig('a', { compatibility: 'NONE' });
    await put('a', typed('int'));
    await put('a', typed('string'));
    await registry.setConfig('a', { compatibility: 'FULL' });
    expect(await put('a', typed('int'))).toMatchObject({ created: false, version: { version: 1 } });
    expect(await code(put('a', typed('double')))).toBe('incompatible');
    await registry.setMode('a', 'READONLY', false);
    expect(await put('a', typed('int'))).toMatchObject({ created: false, version: { version: 1 } });
    expect(await code(put('a', avro('y')))).toBe('not_permitted');
  });

  it('a look-up finds a text that another registry stored in another spelling', async () => {
    const text = '{ "type": "string" }';
    await open([
      encodeRecord({
        kind: 'schema',
        subject: 'a',
        version: 1,
        value: { id: 5, format: 'AVRO', text, references: [], deleted: false },
      }),
    ]);
    expect(await put('a', '"string"')).toMatchObject({ created: false, version: { id: 5 } });
    expect(registry.lookup('a', { text: '{"type":"string"}' }, {})).toMatchObject({ id: 5 });
    expect(registry.schema(5).content.text).toBe(text);
  });

  it('the ids of a context are separate', async () => {
    await put('a', avro('x'));
    expect(await put(':.c:a', avro('y'))).toMatchObject({ version: { id: 1, context: '.c' } });
    expect(await put(':.c:b', avro('x'))).toMatchObject({ version: { id: 2 } });
    expect(await put(':.:b', avro('z'))).toMatchObject({ version: { id: 2, subject: 'b', context: '.' } });
    expect(registry.contexts()).toEqual(['.', '.c']);
    expect(registry.schema(1).content.text).toContain('"x"');
    expect(registry.schema(1, ':.c:').content.text).toContain('"y"');
    await put(':.c:q', avro('q'));
    expect(registry.schema(3, 'q')).toMatchObject({ context: '.c' });
    expect(await code(() => registry.schema(3))).toBe('schema_not_found');
    const guid = registry.schema(1).guid;
    expect(registry.idsOfGuid(guid)).toEqual([
      { context: '.', id: 1 },
      { context: '.c', id: 2 },
    ]);
    expect(registry.schemaByGuid(guid)).toMatchObject({ id: 1, context: '.' });
    expect(registry.subjects({ prefix: ':*:', deleted: 'no' })).toEqual([
      ':.c:a',
      ':.c:b',
      ':.c:q',
      'a',
      'b',
    ]);
  });

  it('a thousand writers of one subject get ids and versions without gaps or repeats', async () => {
    await registry.setConfig('a', { compatibility: 'NONE' });
    const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => put('a', avro(`f${i}`))));
    const wanted = Array.from({ length: 1000 }, (_, i) => i + 1);
    expect(new Set(all.map(({ version }) => version.id))).toEqual(new Set(wanted));
    expect(numbers('a')).toEqual(wanted);
    expect(log.appends.length).toBeLessThan(200);
    expect(everything(await replayed())).toEqual(everything(registry));
  });

  it('ids stay without gaps or repeats for 64 writers over 20 subjects that share texts', async () => {
    const writers = Array.from({ length: 64 }, async (_, w) => {
      for (let i = 0; i < 8; i++) await put(`s${(w + i) % 20}`, avro(`f${(w * 7 + i) % 30}`));
    });
    await Promise.all(writers);
    const versions = registry.browse({ prefix: '', deleted: false, latestOnly: false });
    for (const subject of registry.subjects({ prefix: '', deleted: 'no' }))
      expect(numbers(subject)).toEqual(numbers(subject).map((_, i) => i + 1));
    const idByText = new Map<string, number>();
    for (const { content, id } of versions)
      expect(idByText.get(content.text) ?? idByText.set(content.text, id).get(content.text)).toBe(id);
    expect([...idByText.values()].sort((a, b) => a - b)).toEqual(Array.from({ length: 30 }, (_, i) => i + 1));
    expect(everything(await replayed())).toEqual(everything(registry));
  });

  it.each(['', 'a\u0000b', '__GLOBAL', '__EMPTY', 'x'.repeat(2000)])(
    'the subject %j cannot be registered',
    async (subject) => {
      expect(await code(put(subject, avro('x')))).toBe('invalid_subject');
    },
  );

  it.each([
    [{ text: '' }, 'invalid_schema'],
    [{ text: '{"type":"nothing"}' }, 'invalid_schema'],
    [{ text: '"int"', format: 'XML' }, 'invalid_schema'],
    [{ text: '"int"', references: [{ name: 'n', subject: 'no', version: 1 }] }, 'invalid_schema'],
    [{ text: '"int"', version: 3 }, 'invalid_schema'],
    [{ text: '"int"', id: 3 }, 'not_permitted'],
  ])('the registration %j is refused', async (input, wanted) => {
    expect(await code(put('a', input))).toBe(wanted);
    expect(log.records).toEqual([]);
  });
});

describe('deletion', () => {
  const restart = async (): Promise<void> => {
    expect(everything(await replayed())).toEqual(everything(registry));
  };

  it('a soft delete hides a subject, keeps its ids, and returns the id for the same content', async () => {
    await put('a', avro('x'));
    await put('a', avro('x', 'y'));
    await registry.setConfig('a', { compatibility: 'FULL' });
    expect(await code(registry.deleteSubject('a', true))).toBe('subject_not_soft_deleted');
    expect(await registry.deleteSubject('a', false)).toEqual([1, 2]);
    expect(await code(registry.deleteSubject('a', false))).toBe('subject_soft_deleted');
    expect(await code(() => registry.versions('a', 'no'))).toBe('subject_not_found');
    expect(numbers('a', 'also')).toEqual([1, 2]);
    expect(registry.subjects({ prefix: '', deleted: 'only' })).toEqual(['a']);
    expect(registry.schema(1).content.text).toContain('"x"');
    expect(registry.uses(1, { deleted: false })).toEqual([]);
    expect(registry.uses(1, { deleted: true })).toHaveLength(1);
    expect(await code(() => registry.config('a', false))).toBe('subject_level_not_set');
    await restart();
    expect(await put('a', avro('x'))).toMatchObject({ created: true, version: { id: 1, version: 3 } });
    expect(numbers('a', 'also')).toEqual([2, 3]);
    await restart();
  });

  it('a permanent delete restarts versions at 1 with new ids', async () => {
    await put('a', avro('x'));
    await put('a', avro('x', 'y'));
    await registry.deleteSubject('a', false);
    expect(await registry.deleteSubject('a', true)).toEqual([1, 2]);
    expect(await code(registry.deleteSubject('a', true))).toBe('subject_not_found');
    expect(await code(() => registry.schema(1))).toBe('schema_not_found');
    await restart();
    expect(await put('a', avro('x'))).toMatchObject({ version: { id: 3, version: 1 } });
  });

  it.each([
    ['no such subject', 'none', '1', false, 'subject_not_found'],
    ['no such version', 'a', '9', false, 'version_not_found'],
    ['an unknown word', 'a', 'newest', false, 'invalid_version'],
    ['a version that is not soft-deleted', 'a', '1', true, 'version_not_soft_deleted'],
    ['a version that is deleted', 'a', '2', false, 'version_soft_deleted'],
    ['a deleted version, permanently', 'a', '2', true, 'done'],
    ['the latest', 'a', 'latest', false, 'done'],
    ['-1', 'a', '-1', false, 'done'],
    ['a version with a reference to it', 'b', '1', false, 'reference_exists'],
    ['a version whose referring schema is deleted', 'c', '1', false, 'done'],
  ])('a deletion answers with the right code for %s', async (_, subject, wanted, permanent, answer) => {
    for (const fields of [['x'], ['x', 'y'], ['x', 'y', 'z']]) await put('a', avro(...fields));
    await registry.deleteVersion('a', '2', false);
    for (const [to, from, name] of [
      ['b', 'rb', 'B'],
      ['c', 'rc', 'C'],
    ] as const) {
      await put(to, JSON.stringify({ type: 'enum', name, symbols: ['S'] }));
      const text = JSON.stringify({ type: 'record', name: 'R', fields: [{ name: 'f', type: name }] });
      await put(from, { text, references: [{ name, subject: to, version: 1 }] });
    }
    await registry.deleteSubject('rc', false);
    expect(await code(registry.deleteVersion(subject, wanted, permanent))).toBe(answer);
    await restart();
  });

  it('deleted versions are omitted from checks and look-ups', async () => {
    await put('a', typed('int'));
    await registry.deleteVersion('a', '1', false);
    expect(await code(() => registry.lookup('a', { text: typed('int') }, {}))).toBe('subject_not_found');
    expect(registry.lookup('a', { text: typed('int') }, { deleted: true })).toMatchObject({ version: 1 });
    expect(await put('a', typed('string'))).toMatchObject({ version: { version: 2 } });
    expect(await code(() => registry.version('a', '1'))).toBe('version_not_found');
    expect(registry.version('a', '1', { deleted: true })).toMatchObject({ deleted: true });
    expect(await code(() => registry.lookup('a', { text: avro('q') }, {}))).toBe('schema_not_found');
  });

  it('a version is removed under every spelling that its key has in the log', async () => {
    const value = Buffer.from('{"subject":"a","version":1,"id":1,"schema":"\\"int\\"","deleted":true}');
    const karapace = Buffer.from('{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}');
    await open([{ key: karapace, value }]);
    await registry.deleteVersion('a', '1', true);
    const removed = log.records.filter((record) => record.value === null).map(({ key }) => String(key));
    expect(removed).toEqual(['{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', String(karapace)]);
  });

  it('field numbers of permanently deleted versions count, and a deleted text may return', async () => {
    await registry.setConfig(undefined, { compatibility: 'NONE' });
    await put('p', proto('int32 a = 1; string b = 2;'));
    await put('p', proto('int32 a = 1;'));
    await registry.deleteSubject('p', false);
    expect(await put('p', proto('int32 a = 1; string b = 2;'))).toMatchObject({
      version: { version: 3, id: 1 },
    });
    await registry.deleteSubject('p', false);
    await registry.deleteSubject('p', true);
    registry = await replayed();
    expect(registry.counts()).toMatchObject({ versions: 0, schemas: 0 });
    expect(await code(put('p', proto('int64 b = 2; bytes a = 1;')))).toBe('incompatible');
    expect(await put('p', proto('int32 c = 3;'))).toMatchObject({ version: { version: 1 } });
  });
});

describe('references', () => {
  it('references are resolved in their context, with -1 for the latest, and referring schemas are listed', async () => {
    const part = JSON.stringify({ type: 'record', name: 'p.Part', fields: [] });
    const whole = JSON.stringify({ type: 'record', name: 'Whole', fields: [{ name: 'f', type: 'p.Part' }] });
    const references = [{ name: 'p.Part', subject: 'part', version: -1 }];
    expect(await code(put('whole', { text: whole, references }))).toBe('invalid_schema');
    // Both are decided in one batch.
    const [, made] = await Promise.all([put('part', part), put('whole', { text: whole, references })]);
    expect(made.version.content.references).toEqual([{ name: 'p.Part', subject: 'part', version: 1 }]);
    expect(registry.referencedBy('part', '1', false)).toEqual([made.version.id]);
    expect(await code(put(':.c:whole', { text: whole, references }))).toBe('invalid_schema');
    await put(':.c:part', part);
    expect(await put(':.c:whole', { text: whole, references })).toMatchObject({ created: true });
    expect(registry.referencedBy(':.c:part', 'latest', false)).toEqual([2]);
    expect(registry.textOf(made.version, 'resolved')).toContain('Part');
    const inlined = JSON.stringify({
      type: 'record',
      name: 'Whole',
      fields: [{ name: 'f', type: { type: 'record', name: 'p.Part', fields: [] } }],
    });
    expect(registry.lookup('whole', { text: inlined }, {})).toMatchObject({ version: 1 });
    await registry.deleteSubject('whole', false);
    expect(registry.referencedBy('part', '1', false)).toEqual([]);
    expect(registry.referencedBy('part', '1', true)).toEqual([made.version.id]);
  });

  it('a cycle of references from another registry ends the resolution', async () => {
    const value = (subject: string) => ({
      id: subject === 'a' ? 1 : 2,
      format: 'AVRO',
      text: '"int"',
      references: [{ name: 'x', subject, version: 1 }],
      deleted: false,
    });
    await open([
      encodeRecord({ kind: 'schema', subject: 'a', version: 1, value: value('b') }),
      encodeRecord({ kind: 'schema', subject: 'b', version: 1, value: value('a') }),
    ]);
    expect(await code(() => registry.textOf(registry.schema(1), 'resolved'))).toBe('invalid_schema');
  });
});

describe('field numbers', () => {
  it('field numbers of a deleted referenced schema still count, also after a restart', async () => {
    await put('part', {
      format: 'PROTOBUF',
      text: 'syntax = "proto3"; package p; message Part { int32 n = 1; }',
    });
    const text = 'syntax = "proto3"; import "part.proto"; message M { p.Part part = 1; string b = 2; }';
    const references = [{ name: 'part.proto', subject: 'part', version: 1 }];
    await put('p', { format: 'PROTOBUF', text, references });
    for (const subject of ['p', 'part']) {
      await registry.deleteSubject(subject, false);
      await registry.deleteSubject(subject, true);
    }
    await open(log.records);
    expect(await put('p', proto('fixed64 b = 2;')).then(String, String)).toContain('number 2 was string');
    expect(await put('p', proto('string b = 2;'))).toMatchObject({ version: { version: 1, id: 3 } });
  });

  it('field numbers count over existing versions under any level', async () => {
    await registry.setConfig('p', { compatibility: 'NONE' });
    for (const body of ['int32 a = 1; int32 b = 2;', 'int32 a = 1;']) await put('p', proto(body));
    expect(await code(put('p', proto('int32 a = 1; int32 bb = 2;')))).toBe('incompatible');
  });

  it('field numbers of two lives of a subject are separate', async () => {
    await registry.setConfig(undefined, { compatibility: 'NONE' });
    for (const body of ['int32 a = 1;', 'int32 a = 1; int32 b = 2;']) await put('p', proto(body));
    await registry.deleteSubject('p', false);
    await registry.deleteSubject('p', true);
    await put('p', proto('int32 a = 1;'));
    await registry.deleteVersion('p', '1', false);
    await registry.deleteVersion('p', '1', true);
    await open(log.records);
    // The field is in version 2 of the first life and missing in version 1 of the second life.
    expect(await code(put('p', proto('int32 a = 1; int32 bb = 2;')))).toBe('incompatible');
    expect(await put('p', proto('int32 a = 1; int32 c = 3;'))).toMatchObject({ created: true });
  });

  it('field numbers count after a subject was cleared for an import', async () => {
    await put('p', proto('int32 a = 1; int32 b = 2;'));
    await registry.deleteSubject('p', false);
    await registry.setMode('p', 'IMPORT', false);
    await registry.setMode('p', 'READWRITE', false);
    await open(log.records);
    expect(await code(put('p', proto('int32 a = 1; string c = 2;')))).toBe('incompatible');
  });

  interface Tombstone {
    readonly seq: number;
    readonly version: number;
    readonly last: boolean;
  }

  /** Tombstones that the log holds after compaction, in their order. */
  function tombstones(): Tombstone[] {
    const values = new Map(log.records.map(({ key, value }) => [String(key), value]));
    return [...values]
      .filter(([key, value]) => key.includes('"BURNED"') && value !== null)
      .map(([key, value]) => ({ ...JSON.parse(String(value)), seq: JSON.parse(key).seq }) as Tombstone)
      .sort((a, b) => a.seq - b.seq);
  }

  async function deleteForGood(subject: string): Promise<void> {
    await registry.deleteSubject(subject, false);
    await registry.deleteSubject(subject, true);
  }

  /** Text that is stored for the text of this message. */
  const keptText = (body: string): string => parseSchema('PROTOBUF', proto(body).text).text;

  const burnedRecord = (seq: number, text: string): LogRecord =>
    encodeRecord({
      kind: 'burned',
      subject: 'p',
      seq,
      value: { version: 1, format: 'PROTOBUF', text, references: [], last: true },
    });

  it('a text that is deleted permanently many times has one tombstone, at its last place', async () => {
    await registry.setConfig(undefined, { compatibility: 'NONE' });
    const [both, one] = ['int32 a = 1; string b = 2;', 'int32 a = 1;'] as const;
    for (let i = 0; i < 50; i++) {
      for (const body of [both, one]) await put('p', proto(body));
      await deleteForGood('p');
    }
    expect(tombstones()).toMatchObject([
      { version: 1, last: false, text: keptText(both) },
      { version: 2, last: true, text: keptText(one) },
    ]);
    const other = proto('int32 a = 1; string c = 2;');
    expect(await code(put('p', other))).toBe('incompatible');
    // The last deleted text has the number now, so another name renames its field.
    await put('p', proto(both));
    await deleteForGood('p');
    expect(tombstones()).toMatchObject([{ text: keptText(one) }, { text: keptText(both) }]);
    await open(log.records);
    expect(await put('p', other)).toMatchObject({ created: true });
  });

  it('a tombstone that ends a life of its subject leaves the end to the tombstone before it', async () => {
    await registry.setConfig(undefined, { compatibility: 'NONE' });
    // This mode checks no numbers.
    await registry.setMode(undefined, 'IMPORT', true);
    const moved = 'int32 a = 1; int32 z = 9;';
    const lives = [
      ['int32 a = 1;', 'int32 a = 1; string tel = 3;', moved],
      ['int32 a = 1; string cell = 3;', moved],
    ];
    let id = 0;
    for (const life of lives) {
      for (const [i, body] of life.entries()) await put('p', { ...proto(body), id: ++id, version: i + 1 });
      await deleteForGood('p');
    }
    expect(tombstones()).toMatchObject([
      { version: 1, last: false },
      { version: 2, last: true },
      { version: 1, last: false },
      { version: 2, last: true },
    ]);
    await registry.setMode(undefined, 'READWRITE', false);
    const first = proto('int32 a = 1; string tel = 3; int32 b = 4;');
    expect(await code(put('p', first))).toBe('incompatible');
    await open(log.records);
    expect(await code(put('p', first))).toBe('incompatible');
    expect(await code(put('p', proto('int32 a = 1; string cell = 3;')))).toBe('done');
  });

  it('a deletion drops equal tombstones of an earlier release, some each time', async () => {
    const text = keptText('int32 a = 1; string b = 2;');
    await open(Array.from({ length: 40 }, (_, i) => burnedRecord(i + 1, text)));
    const counts: number[] = [];
    for (let i = 0; i < 4; i++) {
      await put('p', proto('int32 a = 1; string b = 2;'));
      await deleteForGood('p');
      counts.push(tombstones().length);
    }
    expect(counts).toEqual([25, 10, 1, 1]);
    expect(await code(put('p', proto('int32 a = 1; int32 b = 2;')))).toBe('incompatible');
  });

  it('a history with more characters than one check reads is refused and names another subject', async () => {
    const chars = 1 << 20;
    const text = (i: number): string => `syntax = "proto3"; /* ${i} ${'x'.repeat(chars)} */ message M {}`;
    await open(Array.from({ length: CHECK_CHARS_MAX / chars }, (_, i) => burnedRecord(i + 1, text(i))));
    const refusal = {
      code: 'check_too_long',
      message: expect.stringMatching(/the limit check-chars.*register the schema under another subject$/),
    };
    await expect(put('p', proto('int32 a = 1;'))).rejects.toMatchObject(refusal);
    expect(() => registry.compatibility('p', undefined, proto('int32 a = 1;'), {})).toThrow(
      expect.objectContaining(refusal),
    );
    expect(await put('q', proto('int32 a = 1;'))).toMatchObject({ created: true });
  });
});
