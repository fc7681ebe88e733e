/** Reuse of Protobuf numbers on a running registry: a removed number is accepted only for the same
 *  field. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LEVELS, VERDICT_POLICIES } from '../../src/registry/compatibility/modes.ts';
import { Conformance } from './registry-http-kit.ts';

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
});
afterAll(() => api.close());

const KEPT = 'string id = 1;';
const proto3 = (fields: string, more = ''): string =>
  `syntax = "proto3"; message Order { ${KEPT} ${fields} } ${more}`;
const proto2 = (fields: string, more = ''): string =>
  `syntax = "proto2"; message Order { optional ${KEPT} ${fields} } ${more}`;

type Removal = 'kept' | 'softly deleted' | 'permanently deleted';
interface Case {
  readonly title: string;
  /** Version that had the field; the next version lacks it. */
  readonly had: string;
  readonly without?: string;
  readonly proposed: string;
  readonly status: 200 | 409;
  readonly removal?: Removal;
}

const ITEM = 'message Item { string sku = 1; }';
const INNER = (fields: string): string => proto3('Line line = 9;', `message Line { ${KEPT} ${fields} }`);
const NESTED = (fields: string): string => proto3(`message Line { ${KEPT} ${fields} } Line line = 9;`);
const STATUS = (values: string): string => `enum Status { NEW = 0; ${values} }`;

const CASES: readonly Case[] = [
  {
    title: 'the identical field',
    had: proto3('string phone = 2;'),
    proposed: proto3('string phone = 2;'),
    status: 200,
  },
  {
    title: 'the identical field with an additional new field',
    had: proto3('string phone = 2;'),
    proposed: proto3('string phone = 2; string mail = 3;'),
    status: 200,
  },
  {
    title: 'another name of the same type',
    had: proto3('string phone = 2;'),
    proposed: proto3('string mail = 2;'),
    status: 409,
  },
  {
    title: 'the same name with a type that reads the same bytes',
    had: proto3('int32 total = 2;'),
    proposed: proto3('int64 total = 2;'),
    status: 409,
  },
  {
    title: 'the same name with a type that reads other bytes',
    had: proto3('string total = 2;'),
    proposed: proto3('double total = 2;'),
    status: 409,
  },
  {
    title: 'the same name and type as a list',
    had: proto3('string tag = 2;'),
    proposed: proto3('repeated string tag = 2;'),
    status: 409,
  },
  {
    title: 'the same name and type with explicit presence',
    had: proto3('string phone = 2;'),
    proposed: proto3('optional string phone = 2;'),
    status: 200,
  },
  {
    title: 'the identical list, no longer packed',
    had: proto3('repeated int32 n = 2;'),
    proposed: proto3('repeated int32 n = 2 [packed = false];'),
    status: 200,
  },
  {
    title: 'the identical field of another message',
    had: INNER('int32 qty = 2;'),
    without: INNER(''),
    proposed: INNER('int32 qty = 2;'),
    status: 200,
  },
  {
    title: 'the identical field of a nested message',
    had: NESTED('int32 qty = 2;'),
    without: NESTED(''),
    proposed: NESTED('int32 qty = 2;'),
    status: 200,
  },
  {
    title: 'another name in a nested message',
    had: NESTED('int32 qty = 2;'),
    without: NESTED(''),
    proposed: NESTED('int32 count = 2;'),
    status: 409,
  },
  {
    title: 'the message that vanished with its fields',
    had: proto3('Item item = 2;', ITEM),
    proposed: proto3('Item item = 2;', ITEM),
    status: 200,
  },
  {
    title: 'the message that vanished, with a number renamed inside',
    had: proto3('Item item = 2;', ITEM),
    proposed: proto3('Item item = 2;', 'message Item { string name = 1; }'),
    status: 409,
  },
  {
    title: 'the same name with another message',
    had: proto3('Item item = 2;', ITEM),
    proposed: proto3('Part item = 2;', 'message Part { string sku = 1; }'),
    status: 409,
  },
  {
    title: 'the identical member of a oneof',
    had: proto3('oneof way { string mail = 2; string post = 3; }'),
    without: proto3('oneof way { string post = 3; }'),
    proposed: proto3('oneof way { string mail = 2; string post = 3; }'),
    status: 200,
  },
  {
    title: 'another member of a oneof',
    had: proto3('oneof way { string mail = 2; string post = 3; }'),
    without: proto3('oneof way { string post = 3; }'),
    proposed: proto3('oneof way { string fax = 2; string post = 3; }'),
    status: 409,
  },
  {
    title: 'the identical map',
    had: proto3('map<string, int32> counts = 2;'),
    proposed: proto3('map<string, int32> counts = 2;'),
    status: 200,
  },
  {
    title: 'a map with another key',
    had: proto3('map<int32, int32> counts = 2;'),
    proposed: proto3('map<int64, int32> counts = 2;'),
    status: 409,
  },
  {
    title: 'a map with another value',
    had: proto3('map<string, int32> counts = 2;'),
    proposed: proto3('map<string, int64> counts = 2;'),
    status: 409,
  },
  {
    title: 'the identical group',
    had: proto2('optional group Place = 2 { optional string city = 1; }'),
    proposed: proto2('optional group Place = 2 { optional string city = 1; }'),
    status: 200,
  },
  {
    title: 'a group as the message of its name',
    had: proto2('optional group Place = 2 { optional string city = 1; }'),
    proposed: proto2('message Place { optional string city = 1; } optional Place place = 2;'),
    status: 409,
  },
  {
    title: 'the identical enum field, whose enum got a value',
    had: proto3('Status status = 2;', STATUS('')),
    proposed: proto3('Status status = 2;', STATUS('PAID = 1;')),
    status: 200,
  },
  {
    title: 'the same name with another enum',
    had: proto3('Status status = 2;', STATUS('')),
    proposed: proto3('State status = 2;', 'enum State { NEW = 0; }'),
    status: 409,
  },
  {
    title: 'a value of an enum, under another name',
    had: proto3('Status status = 2;', STATUS('PAID = 1;')),
    without: proto3('Status status = 2;', STATUS('')),
    proposed: proto3('Status status = 2;', STATUS('SENT = 1;')),
    status: 200,
  },
  {
    title: 'a number that was reserved, as the identical field',
    had: proto3('string phone = 2;'),
    without: proto3('reserved 2; reserved "phone";'),
    proposed: proto3('string phone = 2; string mail = 3;'),
    status: 200,
  },
  {
    title: 'a number that was reserved, as another field',
    had: proto3('string phone = 2;'),
    without: proto3('reserved 2; reserved "phone";'),
    proposed: proto3('string mail = 2;'),
    status: 409,
  },
  {
    title: 'an extension that is identical',
    had: proto2('extensions 9;', 'extend Order { optional string note = 9; }'),
    without: proto2('extensions 9;'),
    proposed: proto2('extensions 9;', 'extend Order { optional string note = 9; }'),
    status: 200,
  },
  {
    title: 'an extension of another name',
    had: proto2('extensions 9;', 'extend Order { optional string note = 9; }'),
    without: proto2('extensions 9;'),
    proposed: proto2('extensions 9;', 'extend Order { optional string memo = 9; }'),
    status: 409,
  },
  ...(['softly deleted', 'permanently deleted'] as const).flatMap((removal): Case[] => [
    {
      title: 'the identical field',
      had: proto3('string phone = 2;'),
      proposed: proto3('string phone = 2; string mail = 3;'),
      status: 200,
      removal,
    },
    {
      title: 'another name',
      had: proto3('string phone = 2;'),
      proposed: proto3('string mail = 2;'),
      status: 409,
      removal,
    },
  ]),
];

const set = (subject: string, body: object): Promise<unknown> =>
  api.call('PUT', `/config/${subject}`, { body });

/** Registers the field, removes it, and deletes the version that had it. */
async function history(
  subject: string,
  { had, without = proto3(''), removal = 'kept' }: Case,
): Promise<void> {
  await set(subject, { compatibility: 'NONE' });
  await api.register(subject, had, { schemaType: 'PROTOBUF' });
  await api.register(subject, without, { schemaType: 'PROTOBUF' });
  if (removal === 'kept') return;
  await api.call('DELETE', `/subjects/${subject}/versions/1`);
  if (removal === 'permanently deleted')
    await api.call('DELETE', `/subjects/${subject}/versions/1?permanent=true`);
}

async function answers(subject: string, text: string): Promise<{ checked: unknown; status: number }> {
  const body = { schema: text, schemaType: 'PROTOBUF' };
  const checked = await api.call('POST', `/compatibility/subjects/${subject}/versions`, { body });
  const { status } = await api.call('POST', `/subjects/${subject}/versions`, { body });
  return { checked: (checked.body as { is_compatible: unknown }).is_compatible, status };
}

/** Changes the text, which would otherwise be answered as the existing version. */
const withAnother = (text: string): string =>
  `${text} message Another { ${text.includes('proto2') ? 'optional ' : ''}${KEPT} }`;

describe.each(VERDICT_POLICIES)('number history under NONE and %s', (policy) => {
  it.each(CASES.map((one, i) => ({ ...one, i, removal: one.removal ?? 'kept' })))(
    'a number whose version was $removal is requested by $title and answered with $status',
    async ({ i, ...one }) => {
      const subject = `${policy}-${i}`;
      const without = one.without ?? (one.had.includes('proto2') ? proto2('') : proto3(''));
      await history(subject, { ...one, had: withAnother(one.had), without });
      await set(subject, { verdictPolicy: policy });
      expect(await answers(subject, one.proposed)).toEqual({
        checked: one.status === 200,
        status: one.status,
      });
    },
  );
});

describe.each(LEVELS)('number history under %s', (level) => {
  it.each(VERDICT_POLICIES)(
    'the identical field returns and another field does not under policy %s',
    async (policy) => {
      const subject = `${level}-${policy}`;
      await history(subject, {
        title: '',
        had: proto3('string phone = 2;'),
        proposed: '',
        status: 200,
      });
      await set(subject, { compatibility: level, verdictPolicy: policy });
      expect(await answers(subject, proto3('string mail = 2;'))).toEqual({ checked: false, status: 409 });
      expect(await answers(subject, proto3('string phone = 2; string mail = 3;'))).toEqual({
        checked: true,
        status: 200,
      });
    },
  );
});
