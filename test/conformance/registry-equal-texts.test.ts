/** Texts that are stored unchanged but equal for a lookup. They differ in JSON names of a
 *  descriptor that follow from the field names, or in the order of Avro properties, which the
 *  format leaves open. And equal texts of two formats, which have one guid and are two schemas. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseSchema, schemaText } from '../../src/formats/schema.ts';
import { Conformance } from './registry-http-kit.ts';

interface Row {
  readonly title: string;
  readonly schemaType: 'AVRO' | 'PROTOBUF';
  readonly stored: string;
  readonly sent: string;
  /** Text that is stored if the sent text is new. */
  readonly kept: string;
}

const proto = (...lines: readonly string[]): string => ['syntax = "proto3";', '', ...lines, ''].join('\n');
const message = (...fields: readonly string[]): string =>
  proto('message M {', ...fields.map((one) => `  ${one}`), '}');
/** Descriptor as a compiler generates it, with every JSON name. */
const descriptorOf = (text: string): string => schemaText(parseSchema('PROTOBUF', text), 'serialized');

/** Texts without JSON names, each with the text that the existing registries store for its
 *  descriptor. */
const DESCRIPTORS: ReadonlyArray<readonly [title: string, plain: string, kept: string]> = [
  ['one field', message('string id = 1;'), message('string id = 1 [json_name = "id"];')],
  [
    'a name of two words',
    message('string order_id = 1;'),
    message('string order_id = 1 [json_name = "orderId"];'),
  ],
  ['a name with a digit', message('string line_2 = 1;'), message('string line_2 = 1 [json_name = "line2"];')],
  ['a name that ends with a dash', message('string id_ = 1;'), message('string id_ = 1 [json_name = "id"];')],
  ['an optional field', message('optional int32 n = 1;'), message('optional int32 n = 1 [json_name = "n"];')],
  ['a list', message('repeated string tags = 1;'), message('repeated string tags = 1 [json_name = "tags"];')],
  [
    'an additional option',
    message('string id = 1 [deprecated = true];'),
    message('string id = 1 [', '  deprecated = true,', '  json_name = "id"', '];'),
  ],
  [
    'a stated name that differs from the derived name',
    message('string id = 1 [json_name = "key"];', 'string a = 2;'),
    message('string id = 1 [json_name = "key"];', 'string a = 2 [json_name = "a"];'),
  ],
  [
    'a oneof',
    message('', 'oneof kind {', '  string a_b = 1;', '  int32 c = 2;', '}').replace('{\n  \n', '{\n'),
    message(
      '',
      'oneof kind {',
      '  string a_b = 1 [json_name = "aB"];',
      '  int32 c = 2 [json_name = "c"];',
      '}',
    ).replace('{\n  \n', '{\n'),
  ],
  [
    'a message inside',
    message('.M.I i = 1;', '', 'message I {', '  int32 n = 1;', '}').replace('\n  \n', '\n\n'),
    message(
      '.M.I i = 1 [json_name = "i"];',
      '',
      'message I {',
      '  int32 n = 1 [json_name = "n"];',
      '}',
    ).replace('\n  \n', '\n\n'),
  ],
  [
    'proto2 with a default',
    '\nmessage M {\n  optional int32 a_b = 1 [default = 3];\n}\n',
    '\nmessage M {\n  optional int32 a_b = 1 [\n    default = 3,\n    json_name = "aB"\n  ];\n}\n',
  ],
];

const avro = (...more: readonly string[]): string =>
  `{"type":"record","name":"R","fields":[{"name":"a","type":"int"${more[0] ?? ''}}]${more[1] ?? ''}}`;

const PROPERTIES: ReadonlyArray<readonly [title: string, stored: string, sent: string]> = [
  ['of a record', avro('', ',"owner":"x","team":"y"'), avro('', ',"team":"y","owner":"x"')],
  ['of a field', avro(',"pii":true,"tag":"t"'), avro(',"tag":"t","pii":true')],
  ['of both', avro(',"b":1,"c":2', ',"d":3,"e":4'), avro(',"c":2,"b":1', ',"e":4,"d":3')],
  ['inside a property', avro('', ',"meta":{"a":1,"b":2}'), avro('', ',"meta":{"b":2,"a":1}')],
  ['deep inside a property', avro('', ',"m":[{"a":{"x":1,"y":2}}]'), avro('', ',"m":[{"a":{"y":2,"x":1}}]')],
  [
    'of a logical type',
    avro().replace('"int"', '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}'),
    avro().replace('"int"', '{"type":"bytes","scale":2,"precision":9,"logicalType":"decimal"}'),
  ],
  [
    'of an enum',
    '{"type":"enum","name":"E","symbols":["A"],"x":1,"y":2}',
    '{"type":"enum","name":"E","symbols":["A"],"y":2,"x":1}',
  ],
  [
    'of a fixed',
    '{"type":"fixed","name":"F","size":2,"x":1,"y":2}',
    '{"type":"fixed","name":"F","size":2,"y":2,"x":1}',
  ],
  [
    'of a list',
    avro().replace('"int"', '{"type":"array","items":"int","x":1,"y":2}'),
    avro().replace('"int"', '{"type":"array","items":"int","y":2,"x":1}'),
  ],
  [
    'in the default of a map',
    avro(',"default":{"a":1,"b":2}').replace('"int"', '{"type":"map","values":"int"}'),
    avro(',"default":{"b":2,"a":1}').replace('"int"', '{"type":"map","values":"int"}'),
  ],
];

const ROWS: readonly Row[] = [
  ...DESCRIPTORS.flatMap(([title, plain, kept]): Row[] => [
    {
      title: `a descriptor of ${title}, stored as a text`,
      schemaType: 'PROTOBUF',
      stored: plain,
      sent: descriptorOf(plain),
      kept,
    },
    {
      title: `a descriptor of ${title}, stored as a descriptor`,
      schemaType: 'PROTOBUF',
      stored: descriptorOf(plain),
      sent: descriptorOf(plain),
      kept,
    },
    {
      title: `a text of ${title}, stored as a descriptor`,
      schemaType: 'PROTOBUF',
      stored: descriptorOf(plain),
      sent: plain,
      kept: plain,
    },
    {
      title: `the text that is kept of the descriptor of ${title}`,
      schemaType: 'PROTOBUF',
      stored: descriptorOf(plain),
      sent: kept,
      kept,
    },
  ]),
  ...PROPERTIES.map(
    ([title, stored, sent]): Row => ({
      title: `Avro properties ${title} in another order`,
      schemaType: 'AVRO',
      stored,
      sent,
      kept: sent,
    }),
  ),
];

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
});
afterAll(() => api.close());

describe.each(ROWS.map((row, at) => ({ ...row, subject: `s-${at}` })))(
  '$title',
  ({ subject, schemaType, stored, sent, kept }) => {
    it('a look-up finds the stored version and creates none', async () => {
      const id = await api.register(subject, stored, { schemaType });
      const body = { schema: sent, schemaType };
      expect((await api.call('POST', `/subjects/${subject}/versions`, { body })).body).toEqual({ id });
      expect((await api.call('POST', `/subjects/${subject}`, { body })).body).toMatchObject({
        id,
        version: 1,
      });
      const path = `/compatibility/subjects/${subject}/versions/latest?verbose=true`;
      expect((await api.call('POST', path, { body })).body).toEqual({ is_compatible: true });
      expect((await api.call('GET', `/subjects/${subject}/versions`)).body).toEqual([1]);
    });

    it('a new text is stored as the existing registries print it', async () => {
      await api.register(`new-${subject}`, sent, { schemaType });
      const { body } = await api.call('GET', `/subjects/new-${subject}/versions/1`);
      expect((body as { schema: string }).schema).toBe(kept);
    });
  },
);

it('a JSON name that does not follow from the field name creates another schema', async () => {
  await api.call('PUT', '/config/other', { body: { compatibility: 'NONE' } });
  const first = await api.register('other', message('string id = 1;'), { schemaType: 'PROTOBUF' });
  const next = message('string id = 1 [json_name = "key"];');
  expect(await api.register('other', next, { schemaType: 'PROTOBUF' })).not.toBe(first);
});

it('a property with another value creates another schema', async () => {
  const first = await api.register('value', avro('', ',"a":1,"b":2'));
  expect(await api.register('value', avro('', ',"a":2,"b":1'))).not.toBe(first);
  expect(await api.register('value', avro('', ',"a":[1,2]'))).not.toBe(
    await api.register('value', avro('', ',"a":[2,1]')),
  );
});

describe.each(['own', 7, 8] as const)('one text in two formats, with wire %s', (wire) => {
  const textOf = (title: string): string => JSON.stringify({ type: 'string', title });
  const FORMATS = ['AVRO', 'JSON'] as const;
  /** Type in an answer; wire 7 omits the type of Avro. */
  const typeOf = (schemaType: string): string | undefined =>
    wire === 7 && schemaType === 'AVRO' ? undefined : schemaType;

  let own: Conformance;
  beforeAll(async () => {
    own = await Conformance.start({ wire });
  });
  afterAll(() => own.close());

  const shown = async (path: string): Promise<unknown> => {
    const { body } = await own.call('GET', path);
    return (body as { schemaType?: string }).schemaType;
  };

  it.each([
    [0, 1],
    [1, 0],
  ] as const)('each id has the format of its own schema, asked in the order %i, %i', async (...order) => {
    const ids: number[] = [];
    for (const schemaType of FORMATS)
      ids.push(await own.register(`${schemaType}-${order}`, textOf(`${order}`), { schemaType }));
    expect(new Set(ids).size).toBe(2);
    for (const query of ['', '?format=serialized', '?subject=:.:'])
      for (const i of [...order, ...order])
        expect(await shown(`/schemas/ids/${ids[i]}${query}`), query).toBe(typeOf(FORMATS[i] as string));
  });

  it('an id that was deleted permanently leaves no answer for the next schema of its guid', async () => {
    const text = textOf('count');
    const first = await own.register('first', text, { schemaType: 'AVRO' });
    const { guid } = own.registry.schema(first);
    expect(await shown(`/schemas/ids/${first}`)).toBe(typeOf('AVRO'));
    const second = await own.register('second', text, { schemaType: 'JSON' });
    for (const query of ['', '?permanent=true']) await own.call('DELETE', `/subjects/first${query}`);
    expect(await shown(`/schemas/ids/${second}`)).toBe('JSON');
    // The content that is left is found by its guid and by its text.
    expect(await shown(`/schemas/guids/${guid}`)).toBe('JSON');
    const again = await own.register('third', text, { schemaType: 'JSON' });
    expect(again).toBe(second);
    const later = await own.register('fourth', text, { schemaType: 'AVRO' });
    expect(await shown(`/schemas/ids/${later}`)).toBe(typeOf('AVRO'));
  });
});
