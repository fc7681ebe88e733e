/** New Avro texts that releases of the existing registries accept: always, or under STRICT, with
 *  -wire=7 and with the setting. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { realClock } from '../wait.ts';
import { Conformance, field, record } from './registry-http-kit.ts';

type Row = readonly [title: string, schema: unknown];

const text = (schema: unknown): string => (typeof schema === 'string' ? schema : JSON.stringify(schema));
const union = (type: readonly unknown[], value: unknown): string =>
  record('R', field('a', type, { default: value }));
const named = (namespace: string): object => ({ type: 'record', name: 'R', namespace, fields: [] });

/** Texts that Avro 1.12 accepts too. */
const ANY_BRANCH: readonly Row[] = [
  ['a string after null', union(['null', 'string'], '')],
  ['a number after null', union(['null', 'int'], 0)],
  ['null after a string', union(['string', 'null'], null)],
  ['null after two types', union(['string', 'int', 'null'], null)],
  ['a double after an int', union(['int', 'double'], 1.5)],
  ['a long beyond the range of int', union(['int', 'long'], 3_000_000_000)],
  ['a list after null', union(['null', { type: 'array', items: 'int' }], [])],
  ['a list of a later branch inside a list', union([{ type: 'array', items: ['null', 'int'] }], [1, null])],
  ['a map after null', union(['null', { type: 'map', values: 'string' }], {})],
  [
    'a record after null',
    union(['null', { type: 'record', name: 'I', fields: [{ name: 'b', type: 'int' }] }], { b: 1 }),
  ],
  ['a symbol after null', union(['null', { type: 'enum', name: 'E', symbols: ['A'] }], 'A')],
  ['a fixed after null', union(['null', { type: 'fixed', name: 'F', size: 2 }], 'ab')],
  ['a boolean after a string', union(['string', 'boolean'], false)],
];

/** Texts that releases up to 7.9 accept. */
const UNVALIDATED: readonly Row[] = [
  ['an int with a text as default', record('R', field('a', 'int', { default: 'x' }))],
  ['a string with null as default', record('R', field('a', 'string', { default: null }))],
  ['a boolean with a number as default', record('R', field('a', 'boolean', { default: 3 }))],
  ['an int with a number out of range', record('R', field('a', 'int', { default: 3_000_000_000 }))],
  ['an int with a fraction', record('R', field('a', 'int', { default: 1.5 }))],
  [
    'a list with null as default',
    record('R', field('a', { type: 'array', items: 'int' }, { default: null })),
  ],
  ['a map with a list as default', record('R', field('a', { type: 'map', values: 'int' }, { default: [] }))],
  [
    'an enum whose field has a default that is not a symbol',
    record('R', field('a', { type: 'enum', name: 'E', symbols: ['A'] }, { default: 'B' })),
  ],
  [
    'a fixed with a default of another length',
    record('R', field('a', { type: 'fixed', name: 'F', size: 2 }, { default: 'a' })),
  ],
  [
    'a record with a default that lacks a field',
    record('R', field('a', JSON.parse(record('I', field('b', 'int'))), { default: {} })),
  ],
  ['a union with a default of no branch', union(['null', 'int'], 'x')],
  ['a dash in the namespace', named('com.my-company')],
  ['a digit in front of a namespace part', named('com.3m')],
  ['an empty part in the namespace', named('com..company')],
  ['a blank in the namespace', named('com.my company')],
  ['a dash in the namespace of a qualified name', record('com.my-company.R')],
  [
    'a dash in the namespace of a type that is named',
    { ...named('a-b'), fields: [field('a', JSON.parse(record('I'))), field('b', 'a-b.I')] },
  ],
];

/** Texts that no release accepts. */
const REFUSED: readonly Row[] = [
  ['a dash in a name', record('R-1')],
  ['a dash in a field', record('R', field('a-b', 'int'))],
  ['a dash in a symbol', { type: 'enum', name: 'E', symbols: ['a-b'] }],
  ['a namespace that is a number', { type: 'record', name: 'R', namespace: 1, fields: [] }],
  ['a type that is not defined', record('R', field('a', 'com.my-company.Other'))],
  ['an enum whose default is not a symbol', { type: 'enum', name: 'E', symbols: ['A'], default: 'B' }],
  ['a record without fields', { type: 'record', name: 'R' }],
];

let own: Conformance;
let seven: Conformance;
beforeAll(async () => {
  own = await Conformance.start();
  seven = await Conformance.start(
    { wire: 7 },
    { registry: { clock: realClock, validatesNewSchemas: false } },
  );
});
afterAll(async () => {
  await own.close();
  await seven.close();
});

let subjects = 0;
/** Returns the status of a registration, and checks that the compatibility check and the lookup
 *  agree with it. */
async function registered(api: Conformance, schema: unknown, config: object): Promise<number> {
  const subject = `s-${++subjects}`;
  await api.call('PUT', `/config/${subject}`, { body: { compatibility: 'FULL', ...config } });
  const body = { schema: text(schema) };
  const { status } = await api.call('POST', `/compatibility/subjects/${subject}/versions`, { body });
  expect((await api.call('POST', `/subjects/${subject}/versions`, { body })).status).toBe(status);
  expect((await api.call('POST', `/subjects/${subject}`, { body })).status).toBe(status === 200 ? 200 : 404);
  await api.call('DELETE', `/subjects/${subject}`);
  await api.call('DELETE', `/subjects/${subject}?permanent=true`);
  return status;
}

const STRICT = { verdictPolicy: 'STRICT' };
const PROVEN = { verdictPolicy: 'PROVEN' };

describe('union defaults', () => {
  it.each(ANY_BRANCH)('a default of any branch of a union is accepted: %s', async (_title, schema) => {
    for (const config of [PROVEN, STRICT, { ...STRICT, validateNewSchemas: true }])
      expect(await registered(own, schema, config)).toBe(200);
    expect(await registered(seven, schema, PROVEN)).toBe(200);
  });
  it.each(ANY_BRANCH)(
    'a reader with a union default is compatible with a writer without the field: %s',
    async (title, schema) => {
      const subject = `added ${title}`;
      await own.register(subject, record('R'));
      await own.register(subject, text(schema));
    },
  );
});

describe('unvalidated defaults and namespaces', () => {
  it.each(UNVALIDATED)('STRICT accepts a text that is not validated: %s', async (_title, schema) => {
    expect(await registered(own, schema, STRICT)).toBe(200);
  });
  it.each(UNVALIDATED)(
    'a registry with -wire=7 accepts a text that is not validated: %s',
    async (_title, schema) => {
      expect(await registered(seven, schema, PROVEN)).toBe(200);
    },
  );
  it.each(UNVALIDATED)(
    'a subject with validateNewSchemas=false accepts a text that is not validated: %s',
    async (_title, schema) => {
      expect(await registered(own, schema, { validateNewSchemas: false })).toBe(200);
    },
  );
});

describe('validated defaults and namespaces', () => {
  it.each(UNVALIDATED)('PROVEN refuses a text that fails validation: %s', async (_title, schema) => {
    expect(await registered(own, schema, {})).toBe(422);
  });
  it.each(UNVALIDATED)(
    'a subject with validateNewSchemas=true refuses a text that fails validation, whatever the other settings: %s',
    async (_title, schema) => {
      expect(await registered(own, schema, { ...STRICT, validateNewSchemas: true })).toBe(422);
      expect(await registered(seven, schema, { validateNewSchemas: true })).toBe(422);
    },
  );
});

it.each(REFUSED)('no policy accepts %s', async (_title, schema) => {
  expect(await registered(own, schema, { ...STRICT, validateNewSchemas: false })).toBe(422);
  expect(await registered(seven, schema, {})).toBe(422);
});

it('the global setting applies if a subject has no setting', async () => {
  const [, schema] = UNVALIDATED[0] as Row;
  await own.call('PUT', '/config', { body: { validateNewSchemas: false } });
  expect(await registered(own, schema, {})).toBe(200);
  expect(await registered(own, schema, { validateNewSchemas: true })).toBe(422);
  await own.call('PUT', '/config', { body: { validateNewSchemas: null } });
  expect(await registered(own, schema, {})).toBe(422);
});

it('PROVEN refuses a version whose default would be needed and does not fit', async () => {
  await own.call('PUT', '/config/needed', { body: { validateNewSchemas: false } });
  await own.register('needed', record('R'));
  const schema = record('R', field('a', 'int', { default: 'x' }));
  expect((await own.call('POST', '/subjects/needed/versions', { body: { schema } })).status).toBe(409);
});
