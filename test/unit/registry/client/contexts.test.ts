/** Schemas of records in the client library: ids of a context, guids in headers, and references of
 *  a written schema. */
import { describe, expect, it } from 'vitest';
import { framePrefix } from '../../../../src/addon/reference/frame.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { Deserializer, type DeserializerOptions } from '../../../../src/registry/client/deserializer.ts';
import { serdeTimes } from '../../../../src/registry/client/serde-metrics.ts';
import { Serializer, type SerializerOptions } from '../../../../src/registry/client/serializer.ts';
import { RegistryClient } from '../../../../src/serde/client.ts';
import { idHeaderOf, VALUE_ID_HEADER } from '../../../../src/serde/frame.ts';
import type { TransportAnswer } from '../../../../src/serde/transport.ts';
import { UNKNOWN_IDS_BURST } from '../../../../src/serde/unknown-ids.ts';
import { SeededRandom } from '../../../../src/sim/clock.ts';
import { realClock } from '../../../wait.ts';

/** Clock at which the limit of unknown ids does not refill. */
const clock = { ...realClock, monotonicMs: () => 0 };
const ok = (document: unknown): TransportAnswer => ({ status: 200, body: JSON.stringify(document) });
const NOT_FOUND: TransportAnswer = { status: 404, body: '{"error_code":40403,"message":"not found"}' };
const NO_SUBJECT: TransportAnswer = { status: 404, body: '{"error_code":40401,"message":"not found"}' };

/** Registry with these answers by path, and objects of the library over one client. */
function setUp(answers: Readonly<Record<string, TransportAnswer>>) {
  const asked: string[] = [];
  const metrics = new Metrics();
  const client = new RegistryClient({
    transport: {
      request(_method, path) {
        asked.push(path);
        const missing = path.startsWith('/subjects/') ? NO_SUBJECT : NOT_FOUND;
        return Promise.resolve(answers[path] ?? missing);
      },
    },
    clock,
    random: new SeededRandom(1),
    metrics,
    unknownForMs: 60_000,
    retries: 0,
    retryDelayMs: 1,
  });
  const times = serdeTimes(metrics, clock);
  return {
    asked,
    client,
    serializer: (options: SerializerOptions) => new Serializer(client, options, times),
    deserializer: (options: DeserializerOptions) => new Deserializer(client, options, times),
  };
}

const record = (name: string, field: string, type: unknown = 'int'): string =>
  JSON.stringify({ type: 'record', name, fields: [{ name: field, type }] });
/** Record of schema id 2 with the integer 1. */
const framed = Buffer.concat([framePrefix(2, null), Buffer.of(2)]);

describe('ids of a context', () => {
  const answers = {
    '/schemas/ids/2': ok({ schema: record('R', 'main') }),
    '/schemas/ids/2?subject=%3A.c%3A': ok({ schema: record('R', 'staged') }),
    '/subjects/%3A.c%3At-value/versions': { status: 200, body: '[1]' },
    '/subjects/%3A.c%3At-value/versions/1': ok({
      subject: ':.c:t-value',
      version: 1,
      id: 1,
      schema: JSON.stringify({
        type: 'record',
        name: 'R',
        fields: ['main', 'staged'].map((name) => ({ name, type: 'int', default: 0 })),
      }),
    }),
    '/subjects/alias/versions/1': ok({
      subject: ':.c:t-value',
      version: 1,
      id: 2,
      schema: record('R', 'staged'),
    }),
  };
  const version = (subject: string) => ({ readerVersion: { subject, version: 1 } });

  it.each<readonly [string, DeserializerOptions, unknown]>([
    ['no option', {}, { main: 1 }],
    ['a context', { context: '.c' }, { staged: 1 }],
    ['a reader version of a context', version(':.c:t-value'), { main: 0, staged: 1 }],
    ['a reader version behind an alias', version('alias'), { staged: 1 }],
    [
      'a reader version of one context and records of another',
      { ...version(':.c:t-value'), context: '.' },
      undefined,
    ],
  ])('a deserializer with %s resolves ids in its context', async (_what, options, value) => {
    const inDefault = { '/schemas/ids/2?subject=%3A.%3A': answers['/schemas/ids/2'] };
    const { deserializer } = setUp({ ...answers, ...inDefault });
    const expected = value ?? { main: 1, staged: 0 };
    expect(await deserializer(options).deserialize(framed)).toEqual(expected);
    expect(await deserializer(options).deserializeBatch([framed])).toEqual([{ value: expected }]);
  });

  it('a prefetched subject of a context serves the ids of that context without a request', async () => {
    const { client, deserializer, asked } = setUp(answers);
    await client.prefetch(':.c:t-value');
    asked.length = 0;
    const own = Buffer.concat([framePrefix(1, null), Buffer.of(4, 6)]);
    expect(deserializer({ context: '.c' }).deserializeSync(own)).toEqual({ main: 2, staged: 3 });
    expect(() => deserializer({}).deserializeSync(own)).toThrow('the schema 1 is not loaded');
    expect(asked).toEqual([]);
  });

  it.each(['staging', ':.staging:', 5])('a deserializer refuses the context %s', (context) => {
    const { deserializer } = setUp({});
    expect(() => deserializer({ context } as never)).toThrow(expect.objectContaining({ code: 'bad_option' }));
  });
});

describe('references of a written schema', () => {
  const leaf = (subject: string, type: string) =>
    ok({ subject, version: 1, id: 1, schema: record('Leaf', 'x', type) });
  const references = [{ name: 'Leaf', subject: 'leaf', version: 1 }];
  const answers = {
    '/subjects/leaf/versions/1?deleted=true': leaf('leaf', 'string'),
    '/subjects/%3A.c%3Aleaf/versions/1?deleted=true': leaf(':.c:leaf', 'int'),
    '/subjects/%3A.c%3At/versions': ok({ id: 3 }),
    '/subjects/%3A.c%3AR/versions': ok({ id: 3 }),
  };

  it.each([
    ['ignores the name of the record', () => ':.c:t'],
    ['needs the name of the record', (name: string | undefined) => `:.c:${(name as string).slice()}`],
  ])('a subject function that %s decides the context of references', async (_what, subjectFor) => {
    const { serializer } = setUp(answers);
    const one = serializer({
      topic: 't',
      schema: record('R', 'leaf', 'Leaf'),
      references,
      autoRegister: true,
      subject: ({ recordName }) => subjectFor(recordName),
    });
    await one.prefetch();
    expect([...one.serialize({ leaf: { x: 1 } })]).toEqual([0, 0, 0, 0, 3, 2]);
  });
});

it('a batch with unknown guids in headers sends a bounded number of requests', async () => {
  const { deserializer, asked } = setUp({ '/schemas/ids/2': ok({ schema: record('R', 'main') }) });
  const garbage = Array.from({ length: 1024 }, (_, i) => {
    const guid = `00000000-0000-0000-0000-${String(i).padStart(12, '0')}`;
    return { bytes: framed, headers: { [VALUE_ID_HEADER]: idHeaderOf(guid, null) } };
  });
  const results = await deserializer({}).deserializeBatch([...garbage, framed]);
  expect(results.at(-1)).toEqual({ value: { main: 1 } });
  const reasons = results.slice(0, -1).map(({ error }) => error?.row.reason);
  expect(new Set(reasons)).toEqual(new Set(['unknown_schema_id']));
  expect(asked).toHaveLength(1 + UNKNOWN_IDS_BURST);
});
