/** Random requests to every described operation. Each request gets a described answer, errors have
 *  one form, and no request makes the registry fail. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  Conformance,
  ORDER_1,
  ORDER_2,
  ORDER_BROKEN,
  PROTO,
  TYPE,
} from '../conformance/registry-http-kit.ts';
import { fastestDriver } from '../http-driver.ts';
import { runs } from '../tier.ts';

let api: Conformance;
let wire8: Conformance;
const SUBJECTS = ['orders', 'a/b', ':.ctx:s', ':.ctx:', ':*:', '__GLOBAL', '"{}', 'ü', '.', '..', '%2F'];

beforeAll(async () => {
  api = await Conformance.start();
  wire8 = await Conformance.start({ wire: 8, pageMax: 20 }, { driver: fastestDriver });
  for (const one of [api, wire8]) {
    await one.register('orders', ORDER_1);
    await one.register('orders', ORDER_2);
    await one.register('a/b', PROTO, { schemaType: 'PROTOBUF' });
    await one.register(':.ctx:s', ORDER_2);
  }
});
afterAll(async () => {
  await api.close();
  await wire8.close();
});

const wild = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('', '\u0000', '../..', '\u202e', '{{7*7}}', "';--", 'x'.repeat(2000), 'null', '-0', '1e9'),
);
const subject = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...SUBJECTS) },
  { weight: 1, arbitrary: wild },
);
const version = fc.constantFrom(
  '1',
  '2',
  'latest',
  '-1',
  '0',
  '99',
  '2147483648',
  '1.0',
  '0x1',
  ' 1',
  'LATEST',
);

const encoded = (text: string): string => {
  try {
    return encodeURIComponent(text);
  } catch {
    // Half of a surrogate pair, encoded as bytes that are not UTF-8.
    return '%ED%A0%80';
  }
};

/** Path segment: a plausible value, any text, or bytes that are not valid text. */
function segment(name: string): fc.Arbitrary<string> {
  const fitting =
    name === 'version'
      ? version
      : name === 'id'
        ? fc.oneof(fc.integer({ min: -2, max: 9 }).map(String), fc.constantFrom('9999999999', '1e3', '٣'))
        : name === 'context'
          ? fc.constantFrom('.ctx', 'ctx', '.', ':.ctx:', '.new', '*')
          : subject;
  const broken = fc.constantFrom(
    '%',
    '%zz',
    '%C3',
    '%00',
    '..',
    '%2e%2e',
    '%252F',
    '%2F',
    '',
    '//',
    ';a=b',
    '~',
  );
  return fc.oneof(
    { weight: 6, arbitrary: fitting.map(encoded) },
    { weight: 1, arbitrary: wild.map(encoded) },
    { weight: 1, arbitrary: broken },
  );
}

const value = fc.oneof(
  fc.constantFrom(
    'true',
    'false',
    'TRUE',
    '1',
    '-1',
    '0',
    '',
    ':*:',
    ':.ctx:',
    'resolved',
    'serialized',
    'qualified',
  ),
  wild,
);

function target(path: string, parameters: readonly string[]): fc.Arbitrary<string> {
  const parts = path
    .split('/')
    .slice(1)
    .map((part) => (part.startsWith('{') ? segment(part.slice(1, -1)) : fc.constant(part)));
  const names = fc.constantFrom(...parameters, 'unknown', '');
  const query = fc.array(fc.tuple(names, value), { maxLength: 3 });
  return fc.tuple(fc.tuple(...parts), query).map(([segments, pairs]) => {
    const text = pairs.map(([name, one]) => `${name}=${encoded(one)}`).join('&');
    return `/${segments.join('/')}${text === '' ? '' : `?${text}`}`;
  });
}

const schemaText = fc.oneof(
  fc.constantFrom(
    ORDER_1,
    ORDER_2,
    ORDER_BROKEN,
    PROTO,
    '"string"',
    '{}',
    '[]',
    '{"type":"record"}',
    'syntax = "proto3";',
  ),
  fc.json({ maxDepth: 4 }),
  wild,
  fc.integer({ min: 1, max: 20_000 }).map((depth) => '['.repeat(depth)),
  fc.integer({ min: 1, max: 5000 }).map((depth) => '{"type":'.repeat(depth)),
  fc.integer({ min: 1, max: 3000 }).map((depth) => `message M {${'message N {'.repeat(depth)}`),
);
const anything = fc
  .anything({ maxDepth: 3, withBigInt: false, withDate: false })
  .map((one) => JSON.stringify(one) ?? 'null');
const number = fc.oneof(
  fc.integer({ min: -2, max: 5 }),
  fc.constantFrom(null, 1.5, 2 ** 31, 1e308, '1', true),
);
const reference = fc.record(
  { name: fc.constantFrom('Order', 'x.proto', '', 'Ä'), subject, version: number },
  { requiredKeys: [] },
);
const document = fc.oneof(
  fc
    .record(
      {
        schema: fc.oneof({ weight: 5, arbitrary: schemaText }, fc.constantFrom(null, 7, {}, [])),
        schemaType: fc.constantFrom('AVRO', 'PROTOBUF', 'JSON', 'avro', '', null, 7, 'XML'),
        references: fc.oneof(fc.array(reference, { maxLength: 3 }), fc.constantFrom(null, 7, [7], [null])),
        metadata: fc.oneof(fc.object({ maxDepth: 3 }), fc.constantFrom(null, 'x', [])),
        ruleSet: fc.oneof(
          fc.object({ maxDepth: 3 }),
          fc.constantFrom(null, { domainRules: [null, 7, { type: 'CEL' }] }, { migrationRules: 'x' }),
        ),
        id: number,
        version: number,
        compatibility: fc.constantFrom('FULL', 'none', 'NONE', 'x', null, 7, ['FULL']),
        mode: fc.constantFrom('READWRITE', 'IMPORT', 'READONLY', 'x', null, 7),
        normalize: fc.constantFrom(true, false, 'x', null),
        alias: fc.constantFrom('orders', '', ':.ctx:s', 7, 'self'),
        compatibilityGroup: wild,
        defaultMetadata: fc.oneof(fc.object({ maxDepth: 2 }), fc.constantFrom(null, 7)),
        overrideRuleSet: fc.oneof(fc.object({ maxDepth: 2 }), fc.constantFrom(null, { domainRules: [7] })),
        ['__proto__']: fc.constant({ schema: 'x' }),
      },
      { requiredKeys: [] },
    )
    .map((one) => JSON.stringify(one)),
  anything,
);
const body: fc.Arbitrary<string | Uint8Array> = fc.oneof(
  { weight: 6, arbitrary: document },
  { weight: 1, arbitrary: schemaText },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('', '\ufeff{}', '{"schema":"\\ud800"}', '{"a":1}{"b":2}', 'x'.repeat(120_000)),
  },
);

const headers = fc.record(
  {
    accept: fc.constantFrom(
      TYPE,
      'application/json',
      '*/*',
      'text/html',
      ',;q=,',
      'application/json;q=9e9',
      'a'.repeat(5000),
    ),
    'content-type': fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(TYPE, 'application/json', 'application/octet-stream') },
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          'text/plain',
          'application/json; charset=utf-16',
          ';',
          'application/json;charset=',
        ),
      },
    ),
    'content-encoding': fc.constantFrom('gzip', 'identity'),
    'confluent-accept-unknown-properties': fc.constant('true'),
    'x-forward': fc.constantFrom('true', 'x'),
    'if-none-match': fc.constant('*'),
    range: fc.constant('bytes=0-1'),
  },
  { requiredKeys: [] },
);

it('every operation answers any request as described and without a failure of the registry', async () => {
  const operations = Object.entries(api.description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      parameters: operation.parameters.filter((one) => one.in === 'query').map(({ name }) => name),
    })),
  );
  const shot = fc.constantFrom(...operations).chain(({ method, path, parameters }) =>
    fc.record({
      method: fc.oneof(
        { weight: 9, arbitrary: fc.constant(method) },
        {
          weight: 1,
          arbitrary: fc.constantFrom('HEAD', 'OPTIONS', 'PATCH', 'PUT', 'DELETE', 'POST'),
        },
      ),
      target: target(path, parameters),
      headers,
      body: method === 'GET' ? fc.option(body, { nil: undefined, freq: 9 }) : body,
      late: fc.boolean(),
    }),
  );
  let answered = 0;
  const statuses = new Set<number>();
  await fc.assert(
    fc
      .asyncProperty(shot, async (one) => {
        const { status } = await (one.late ? wire8 : api).target(one.method, one.target, {
          headers: one.headers,
          ...(one.body === undefined ? {} : { body: one.body }),
        });
        statuses.add(status);
        answered++;
        expect(status).toBeLessThan(500);
      })
      // A mode that closes the registry would refuse all further requests.
      .beforeEach(async () => {
        if (answered % 25 !== 0) return;
        for (const server of [api, wire8]) {
          for (const path of ['/mode', '/mode/orders', '/contexts/.ctx/mode'])
            await server.call('PUT', `${path}?force=true`, { body: { mode: 'READWRITE' } });
          await server.call('DELETE', '/config');
        }
      }),
    { numRuns: runs(1500) },
  );
  for (const status of [200, 204, 400, 404, 405, 406, 413, 415, 422]) expect([...statuses]).toContain(status);
});
