/** A migrated registry contains texts that a stricter parser refuses. Producers register their text
 *  again at each start, so registration, lookup and check must find every such text. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LogSink, OpenReport } from '../../src/registry/store/log.ts';
import { MemoryLog } from '../../src/registry/store/log.ts';
import { Conformance, field, record } from './registry-http-kit.ts';

interface Held {
  readonly title: string;
  readonly schema: string;
  readonly schemaType?: 'PROTOBUF' | 'JSON';
  /** Another spelling of the same schema; absent: only the stored text is tested. */
  readonly respelled?: string;
}

const proto = (...lines: string[]): string => `syntax = "proto3";\n\n${lines.join('\n')}\n`;
const avro = (schema: unknown): string => JSON.stringify(schema);
const spaced = (schema: unknown): string => JSON.stringify(schema, null, 2);

const NULL_DEFAULT = { type: 'record', name: 'R', fields: [{ name: 'a', type: 'string', default: null }] };
const DASHED = { type: 'record', name: 'R', namespace: 'com.my-company', fields: [] };

const HELD: readonly Held[] = [
  {
    title: 'an Avro text whose default is of another type',
    schema: record('R', field('a', 'int', { default: 'none' })),
  },
  {
    title: 'an Avro text whose string has the default null',
    schema: avro(NULL_DEFAULT),
    respelled: spaced(NULL_DEFAULT),
  },
  {
    title: 'an Avro text whose default is of the second union branch',
    schema: record('R', field('a', ['null', 'string'], { default: '' })),
  },
  {
    title: 'an Avro text whose record default lacks a field',
    schema: record('R', field('a', JSON.parse(record('I', field('b', 'int'))), { default: {} })),
  },
  {
    title: 'an Avro text with a dash in its namespace',
    schema: avro(DASHED),
    respelled: spaced(DASHED),
  },
  {
    title: 'an Avro text with a dash in a qualified name',
    schema: avro({ ...DASHED, namespace: 'com.other-company' }),
    respelled: record('com.other-company.R'),
  },
  {
    title: 'an Avro text with a digit in front of a namespace part',
    schema: avro({ ...DASHED, namespace: 'com.3m' }),
    respelled: record('com.3m.R'),
  },
  { title: 'an Avro text with a dash in a field name', schema: record('R', field('order-id', 'string')) },
  {
    title: 'an Avro text whose enum has a symbol that is not a valid name',
    schema: avro({ type: 'enum', name: 'E', symbols: ['A-1'] }),
  },
  {
    title: 'an Avro text with an enum without symbols',
    schema: avro({ type: 'enum', name: 'E', symbols: [] }),
  },
  { title: 'an Avro text with a fixed of no bytes', schema: avro({ type: 'fixed', name: 'F', size: 0 }) },
  { title: 'an Avro text with an empty union', schema: record('R', field('a', [])) },
  {
    title: 'an Avro text with an alias that is not a valid name',
    schema: avro({ type: 'record', name: 'R', fields: [], aliases: ['a-b'] }),
  },
  {
    title: 'an Avro text with a repeated property',
    schema: '{"type":"record","name":"R","fields":[],"owner":"b"}',
    respelled: '{"type":"record","name":"R","fields":[],"owner":"a","owner":"b"}',
  },
  {
    title: 'a Protobuf text with an import that no reference has',
    schemaType: 'PROTOBUF',
    schema: proto('import "google/api/annotations.proto";', '', 'message M {', '  string a = 1;', '}'),
    respelled: 'syntax="proto3"; import "google/api/annotations.proto"; message M { string a = 1; }',
  },
  {
    title: 'a Protobuf text with a field whose type is in no reference',
    schemaType: 'PROTOBUF',
    schema: proto('import "other.proto";', '', 'message M {', '  Other a = 1;', '}'),
  },
  {
    title: 'a Protobuf text with a well-known type that it does not import',
    schemaType: 'PROTOBUF',
    schema: proto('message M {', '  google.protobuf.Timestamp a = 1;', '}'),
  },
  {
    title: 'a Protobuf text whose enum does not begin with zero',
    schemaType: 'PROTOBUF',
    schema: proto('message M {', '  E a = 1;', '}', 'enum E {', '  A = 1;', '}'),
  },
  {
    title: 'a Protobuf text with an option that nothing defines',
    schemaType: 'PROTOBUF',
    schema: proto('message M {', '  string a = 1 [(company.pii) = true];', '}'),
  },
  {
    title: 'a JSON Schema with a type that no draft has',
    schemaType: 'JSON',
    schema: '{"type":"any"}',
    respelled: '{ "type": "any" }',
  },
  {
    title: 'a JSON Schema whose properties are a list',
    schemaType: 'JSON',
    schema: '{"type":"object","properties":[]}',
  },
  {
    title: 'a JSON Schema with a negative length',
    schemaType: 'JSON',
    schema: '{"type":"string","maxLength":-1}',
  },
];

/** Log with records of another registry. */
class HoldingLog extends MemoryLog {
  private readonly held: ReadonlyArray<{ readonly subject: string; readonly version: number }>;

  constructor(
    held: ReadonlyArray<{
      subject: string;
      version: number;
      id: number;
      schema: string;
      references?: object;
    }>,
  ) {
    super();
    this.held = held;
  }
  override async open(sink?: LogSink): Promise<OpenReport> {
    const records = this.held.map((value) => {
      const { subject, version } = value;
      const key = JSON.stringify({ keytype: 'SCHEMA', subject, version, magic: 1 });
      return { key: Buffer.from(key), value: Buffer.from(JSON.stringify({ ...value, deleted: false })) };
    });
    sink?.apply(records);
    return { records: records.length, tornBytes: 0 };
  }
}

let api: Conformance;
const ids = new Map<string, number>();

beforeAll(async () => {
  api = await Conformance.start();
  await api.call('PUT', '/mode', { body: { mode: 'IMPORT' } });
  for (const [at, { title, schema, schemaType }] of HELD.entries())
    ids.set(title, await api.register(`held-${at}`, schema, { ...type(schemaType), id: at + 1, version: 1 }));
  await api.call('PUT', '/mode', { body: { mode: 'READWRITE' } });
});
afterAll(() => api.close());

const type = (schemaType: string | undefined): object => (schemaType === undefined ? {} : { schemaType });

describe.each(HELD.map((row, at) => ({ ...row, subject: `held-${at}` })))('$title', (row) => {
  const spellings = [row.schema, ...(row.respelled === undefined ? [] : [row.respelled])];
  const bodies = spellings.map((schema) => ({ schema, ...type(row.schemaType) }));

  it('a stored text that is registered again is answered with its id', async () => {
    for (const body of bodies)
      expect((await api.call('POST', `/subjects/${row.subject}/versions`, { body })).body).toEqual({
        id: ids.get(row.title),
      });
  });
  it('a look-up finds a stored text', async () => {
    for (const body of bodies)
      expect((await api.call('POST', `/subjects/${row.subject}`, { body })).body).toMatchObject({
        id: ids.get(row.title),
        version: 1,
        schema: row.schema,
      });
  });
  it('a stored text is compatible with itself', async () => {
    for (const body of bodies)
      for (const path of ['versions', 'versions/1', 'versions/latest'])
        expect(
          (await api.call('POST', `/compatibility/subjects/${row.subject}/${path}?verbose=true`, { body }))
            .body,
        ).toEqual({ is_compatible: true });
  });
  it('another subject accepts a stored text under the same id', async () => {
    const [body] = bodies;
    expect((await api.call('POST', `/subjects/other-${row.subject}/versions`, { body })).body).toEqual({
      id: ids.get(row.title),
    });
  });
  it('a stored text is accepted again after a soft delete', async () => {
    await api.call('DELETE', `/subjects/other-${row.subject}`);
    const [body] = bodies;
    expect((await api.call('POST', `/subjects/other-${row.subject}/versions`, { body })).body).toEqual({
      id: ids.get(row.title),
    });
  });
  it('a stored text can be compared with any other text of its format without an error', async () => {
    const proposals: Readonly<Record<string, string>> = {
      AVRO: record('R', field('z', 'long', { default: 0 })),
      PROTOBUF: 'syntax = "proto3"; message M { int64 z = 9; }',
      JSON: '{"type":"object"}',
    };
    const schemaType = row.schemaType ?? 'AVRO';
    for (const verdictPolicy of ['PROVEN', 'STRICT'])
      for (const compatibility of ['BACKWARD', 'FORWARD', 'FULL']) {
        await api.call('PUT', `/config/${row.subject}`, { body: { verdictPolicy, compatibility } });
        const body = { schema: proposals[schemaType], schemaType };
        const answer = await api.call(
          'POST',
          `/compatibility/subjects/${row.subject}/versions/1?verbose=true`,
          { body },
        );
        expect(answer.status, answer.text).toBe(200);
        const text = (answer.body as { messages?: string[] }).messages?.join() ?? '';
        expect(text).not.toMatch(/cannot be parsed|Unexpected/);
      }
    await api.call('DELETE', `/config/${row.subject}`);
  });
});

describe('unknown text', () => {
  it.each(HELD.filter(({ title }) => !/second union branch/.test(title)))(
    'a text that no version has is refused if it resembles $title',
    async ({ schema, schemaType }) => {
      const other = schema
        .replace('"R"', '"S"')
        .replace(/"E"|"F"/, '"G"')
        .replace('message M', 'message N');
      const changed = schemaType === 'JSON' ? other.replace(/}$/, ',"title":"new"}') : other;
      expect(changed).not.toBe(schema);
      const text = changed.replace('"owner"', '"owner":"a","owner"');
      const body = { schema: text, ...type(schemaType) };
      for (const path of ['/subjects/new/versions', '/compatibility/subjects/new/versions'])
        expect((await api.call('POST', path, { body })).body).toMatchObject({ error_code: 42201 });
    },
  );
});

describe('registry limits', () => {
  let small: Conformance;
  const LONG = record(
    'Long',
    field('a', 'string'),
    ...Array.from({ length: 30 }, (_, i) => field(`f${i}`, 'int')),
  );
  const DEEP = avro({ type: 'array', items: { type: 'array', items: { type: 'array', items: 'int' } } });
  const ORPHAN = record('R', field('a', 'Gone'));
  const REFERENCE = [{ name: 'Gone', subject: 'gone', version: 7 }];

  beforeAll(async () => {
    const log = new HoldingLog([
      { subject: 'long', version: 1, id: 1, schema: LONG },
      { subject: 'deep', version: 1, id: 2, schema: DEEP },
      { subject: 'orphan', version: 1, id: 3, references: REFERENCE, schema: ORPHAN },
    ]);
    small = await Conformance.start(
      { limits: { schemaMax: 300, nestingMax: 2, referencesMax: 32 } },
      { log },
    );
  });
  afterAll(() => small.close());

  it.each([
    ['long', LONG, 413],
    ['deep', DEEP, 422],
  ])('the limits do not refuse a %s text that is already stored', async (subject, schema, status) => {
    const body = { schema };
    for (const path of [
      `/subjects/${subject}/versions`,
      `/subjects/${subject}`,
      `/compatibility/subjects/${subject}/versions`,
    ])
      expect((await small.call('POST', path, { body })).status).toBe(200);
    expect((await small.call('POST', '/subjects/new/versions', { body })).status).toBe(status);
  });

  it('a text whose reference was deleted is found as it is stored', async () => {
    const body = { schema: ORPHAN, references: REFERENCE };
    expect((await small.call('POST', '/subjects/orphan/versions', { body })).body).toEqual({ id: 3 });
    expect((await small.call('POST', '/subjects/orphan', { body })).body).toMatchObject({ version: 1 });
    expect((await small.call('POST', '/compatibility/subjects/orphan/versions', { body })).body).toEqual({
      is_compatible: true,
    });
  });
});
