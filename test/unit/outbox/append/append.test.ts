/** Events of a service become rows: their fields are checked and bounded before anything is
 *  written. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import {
  AGGREGATE_ID_BYTES_MAX,
  HEADERS_BYTES_MAX,
  HEADERS_MAX,
  type OutboxEvent,
} from '../../../../src/outbox/append/event.ts';
import { append } from '../../../../src/outbox/append/events.ts';
import {
  derivedAggregateId,
  headersText,
  parseHeaders,
} from '../../../../src/outbox/append/record-columns.ts';

const UUID = '01890a5d-ac96-774b-bcce-b302099a8057';

interface Call {
  readonly text: string;
  readonly params: readonly unknown[];
}

/** Transaction that keeps its statements and answers each guarded one as open. */
function transaction(fails?: Error) {
  const calls: Call[] = [];
  const query = async (text: string, params: readonly unknown[]) => {
    calls.push({ text, params });
    if (fails !== undefined) throw fails;
    return { rows: [{ open: 'true' }] };
  };
  return { calls, tx: { query } };
}

/** Columns of the only row that `append` writes for this event. */
async function rowOf(event: OutboxEvent): Promise<Readonly<Record<string, unknown>>> {
  const { calls, tx } = transaction();
  await append(tx, 'outbox', event);
  const [{ text, params }] = calls as [Call];
  const names = /INSERT INTO outbox \(([^)]*)\)/.exec(text)?.[1]?.split(', ') ?? [];
  return Object.fromEntries(names.map((name, i) => [name, (params[i] as readonly unknown[])[0]]));
}

async function refusalOf(event: unknown): Promise<{ code?: string | undefined; message?: string }> {
  const { calls, tx } = transaction();
  try {
    await append(tx, 'outbox', [event as OutboxEvent]);
    return {};
  } catch (thrown) {
    expect(calls).toEqual([]);
    return { code: findMillraceError(thrown)?.code, message: (thrown as Error).message };
  }
}

const base = { aggregateId: UUID, eventType: 'parcel.moved.v1', payload: { n: 1 } };

describe('ids of aggregates', () => {
  it('an aggregate whose id is a UUID has no further column', async () => {
    expect(Object.keys(await rowOf({ ...base, aggregateId: UUID.toUpperCase() }))).toEqual([
      'aggregate_id',
      'msg_id',
      'event_type',
      'payload',
    ]);
    expect(await rowOf({ ...base, aggregateId: UUID.toUpperCase() })).toMatchObject({ aggregate_id: UUID });
  });

  it.each(['p', 'parcel 17', 'Kunde/ä€😀', 'x'.repeat(AGGREGATE_ID_BYTES_MAX)])(
    'an aggregate with the text id %s keeps it, beside the digest that orders and shares its rows',
    async (aggregateId) => {
      const digest = createHash('sha256').update(aggregateId).digest('hex').slice(0, 32);
      const row = await rowOf({ ...base, aggregateId });
      expect(row['aggregate_key']).toBe(aggregateId);
      expect((row['aggregate_id'] as string).replaceAll('-', '')).toBe(digest);
      expect(derivedAggregateId(aggregateId)).toBe(row['aggregate_id']);
    },
  );

  it.each([
    ['an empty text', ''],
    ['one byte too many', 'x'.repeat(AGGREGATE_ID_BYTES_MAX + 1)],
    ['one byte too many in UTF-8', `${'ä'.repeat(AGGREGATE_ID_BYTES_MAX / 2)}x`],
    ['a NUL', 'a\u0000b'],
    ['half of a surrogate pair', 'a\ud800'],
    ['a number', 17],
    ['nothing', undefined],
  ])('an aggregate id that is %s is refused', async (_, aggregateId) => {
    expect(await refusalOf({ ...base, aggregateId })).toMatchObject({ code: 'bad_event' });
  });
});

describe('headers, topic and key', () => {
  it('an event keeps its headers, texts and bytes, its topic and its key', async () => {
    const headers = { tenant: 'größe "1"\n', trail: new Uint8Array([0, 255]), ['__proto__']: 'kept' };
    const row = await rowOf({ ...base, headers, topic: 'parcels.eu', partitionKey: 'customer 7' });
    expect(row).toMatchObject({ topic: 'parcels.eu', partition_key: 'customer 7', content_type: null });
    const parsed = parseHeaders(row['headers'] as string);
    expect([...(parsed ?? [])].map(([name, bytes]) => [name, Buffer.from(bytes).toString('latin1')])).toEqual(
      [
        ['tenant', Buffer.from('größe "1"\n').toString('latin1')],
        ['trail', '\u0000\u00ff'],
        ['__proto__', 'kept'],
      ],
    );
  });

  it.each([
    'ce_id',
    'CE_Extra',
    'relay_epoch',
    'millrace_x',
    'content-type',
    'Traceparent',
    '__value_schema_id',
    '__key_schema_id',
  ])('the reserved header %s is refused', async (name) => {
    const refusal = await refusalOf({ ...base, headers: { [name]: 'x' } });
    expect(refusal).toMatchObject({ code: 'bad_event' });
    expect(refusal.message).toContain(`the header ${name} of event 0 is reserved`);
  });

  const many = (count: number, value: string) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`h${i}`, value]));

  it('headers are accepted up to their limits', async () => {
    await rowOf({ ...base, headers: many(HEADERS_MAX, 'x') });
    await rowOf({ ...base, headers: { h: 'x'.repeat(HEADERS_BYTES_MAX - 1) } });
  });

  it.each([
    ['headers that are too many', { headers: many(HEADERS_MAX + 1, 'x') }],
    ['headers with too many bytes', { headers: { h: 'x'.repeat(HEADERS_BYTES_MAX) } }],
    ['headers with too many bytes in UTF-8', { headers: { h: 'ä'.repeat(HEADERS_BYTES_MAX / 2) } }],
    ['a list of headers', { headers: [['a', 'b']] }],
    ['a header name with a space', { headers: { 'a b': 'c' } }],
    ['an empty header name', { headers: { '': 'c' } }],
    ['a header that is a number', { headers: { a: 1 } }],
    ['a header that is null', { headers: { a: null } }],
    ['a header with half of a surrogate pair', { headers: { a: '\udc00' } }],
    ['a topic with a slash', { topic: 'a/b' }],
    ['the topic ..', { topic: '..' }],
    ['a long topic', { topic: 'x'.repeat(250) }],
    ['an empty key', { partitionKey: '' }],
    ['a key that is a number', { partitionKey: 1 }],
    ['a content type with a line break', { contentType: 'text/plain\nx' }],
    ['bytes that are not JSON', { payload: new Uint8Array([1]) }],
    [
      'bytes that are not JSON, of the type of JSON',
      { payload: new Uint8Array([1]), contentType: 'application/json' },
    ],
    ['a CloudEvent that is a text', { cloudEvent: 'yes' }],
    ['a CloudEvent with an unknown field', { cloudEvent: { sources: '/a' } }],
    ['a CloudEvent with a source that has a space', { cloudEvent: { source: 'a b' } }],
    ['a CloudEvent with an extension in capitals', { cloudEvent: { extensions: { Tenant: 'a' } } }],
    ['a CloudEvent with an attribute as an extension', { cloudEvent: { extensions: { id: 'a' } } }],
    ['a CloudEvent with an empty extension', { cloudEvent: { extensions: { tenant: '' } } }],
    ['a schema that cannot serialize', { payload: undefined, schema: {}, value: 1 }],
  ])('an event is refused before anything is written, with %s', async (_, fields) => {
    expect(await refusalOf({ ...base, ...fields })).toMatchObject({ code: 'bad_event' });
  });
});

describe('contents', () => {
  it('bytes with a content type may be anything, and a CloudEvent has the type of JSON', async () => {
    const payload = new Uint8Array([0, 1, 255]);
    expect(await rowOf({ ...base, payload, contentType: 'application/x-own' })).toMatchObject({
      payload: Buffer.from(payload),
      content_type: 'application/x-own',
    });
    expect(await rowOf({ ...base, cloudEvent: true })).toMatchObject({
      payload: Buffer.from('{"n":1}'),
      content_type: 'application/json',
      headers: null,
    });
  });

  it('the fields of a CloudEvent become headers', async () => {
    const cloudEvent = {
      source: '//shop/parcels',
      subject: 'parcel/17',
      dataSchema: 'https://shop.example/parcel.json',
      extensions: { tenant: 'eu' },
    };
    const row = await rowOf({ ...base, cloudEvent, headers: { own: '1' } });
    expect(JSON.parse(row['headers'] as string)).toEqual({
      ce_source: '//shop/parcels',
      ce_dataschema: 'https://shop.example/parcel.json',
      ce_subject: 'parcel/17',
      ce_tenant: 'eu',
      own: '1',
    });
  });

  it('a value with a schema is serialized after the schema was loaded, and its headers are kept', async () => {
    const steps: string[] = [];
    const schema = {
      format: 'PROTOBUF',
      headers: { __value_schema_id: new Uint8Array([1, 2]) },
      prefetch: async () => void steps.push('prefetch'),
      serialize: (value: { readonly n: number }) => {
        steps.push('serialize');
        return new Uint8Array([value.n]);
      },
    };
    const row = await rowOf({ aggregateId: UUID, eventType: 'a', schema, value: { n: 7 } });
    expect(steps).toEqual(['prefetch', 'serialize']);
    expect(row).toMatchObject({
      payload: Buffer.from([7]),
      content_type: 'application/protobuf',
      headers: '{"__value_schema_id":{"base64":"AQI="}}',
    });
  });

  it.each([
    ['AVRO', {}, 'application/avro'],
    ['JSON', {}, 'application/octet-stream'],
    ['JSON', { __value_schema_id: new Uint8Array([1]) }, 'application/json'],
    [undefined, {}, 'application/octet-stream'],
  ])(
    'a value of the format %s with the headers %o has a content type that is true',
    async (format, headers, type) => {
      const schema = { format: format as string, headers, serialize: () => Buffer.from('{}') };
      expect(await rowOf({ aggregateId: UUID, eventType: 'a', schema, value: 1 })).toMatchObject({
        content_type: type,
      });
    },
  );

  it('a schema beside a payload is refused, and errors of a serializer reach the caller before a write', async () => {
    const schema = {
      serialize: () => {
        throw new RangeError('no such field');
      },
    };
    expect(await refusalOf({ ...base, schema, value: 1 })).toMatchObject({ code: 'bad_event' });
    const { calls, tx } = transaction();
    await expect(
      append(tx, 'outbox', [{ aggregateId: UUID, eventType: 'a', schema, value: 1 }]),
    ).rejects.toThrow('no such field');
    expect(calls).toEqual([]);
  });

  it('a table without the columns is refused with the script that adds them', async () => {
    const { tx } = transaction(Object.assign(new Error('column "topic" does not exist'), { code: '42703' }));
    await expect(append(tx, 'outbox', { ...base, topic: 'a' })).rejects.toMatchObject({
      code: 'table_unusable',
      next: expect.stringContaining('outboxRecordSql'),
    });
  });
});

describe('text of headers', () => {
  it.each(['', '1', 'null', '[]', '{"a":1}', '{"a":null}', '{"a":{"base64":7}}', '{"a":{}}'])(
    'the text %s is not one of headers',
    (text) => {
      expect(parseHeaders(text)).toBeUndefined();
    },
  );

  it('the text of headers is read back as it was written', () => {
    const given = [
      ['b', 'text'],
      ['a', new Uint8Array([9])],
    ] as const;
    expect([...(parseHeaders(headersText(given)) ?? [])]).toEqual([
      ['b', Buffer.from('text')],
      ['a', Buffer.from([9])],
    ]);
  });
});
