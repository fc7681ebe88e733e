/** Orders of the benchmark in two shapes of about 512 B, with the schemas of their writer and of a
 *  newer reader, in both formats.
 *
 *  S has 12 fields and three items with long names, L has 7 fields and 18 items with short names.
 *  Account ids stay below 2^53: peers that read 64-bit integers as numbers refuse larger ones. */
import { DEFAULT_ORDERS, type LogicalOrder, OrderGenerator } from '../../src/gen/order.ts';
import { orderAsWritten, orderSchema } from '../../src/gen/order-versions.ts';

export type SerdeFormat = 'AVRO' | 'PROTOBUF';
export type SerdeOrder = Readonly<Record<string, unknown>>;

/** Texts of the schema that wrote the records, and of the schema that the reader wants. */
export interface SchemaPair {
  readonly writer: string;
  readonly reader: string;
}

export interface Shape {
  readonly name: 'S' | 'L';
  /** Values as Millrace returns them: 64-bit integers are bigint. */
  readonly orders: readonly SerdeOrder[];
  readonly schemas: Readonly<Record<SerdeFormat, SchemaPair>>;
  /** Numbers of two top-level fields of the Avro schema: the key and the value of a window job. */
  readonly twoFields: readonly [number, number];
}

const SEED = 16n;
const MANY_ITEMS = 18;
/** Bytes of the name of an item in L, and in S. */
const SHORT_NAME = 18;

interface AvroFieldText {
  name: string;
  type: unknown;
  default?: unknown;
  aliases?: string[];
}

/** Fields that the shape L keeps. */
const FEW_FIELDS: readonly string[] = [
  'order_id',
  'account_id',
  'status',
  'amount_cents',
  'currency',
  'ts',
  'items',
];

const avroText = (fields: readonly AvroFieldText[]): string =>
  JSON.stringify({ type: 'record', name: 'Order', namespace: 'shop.orders', fields });

const avroFields = (): AvroFieldText[] =>
  (JSON.parse(orderSchema(1, 'avro')) as { fields: AvroFieldText[] }).fields;

/** The reader's fields: wider quantities, a renamed and a removed field where the writer has them,
 *  and a new field with a default. */
function readerFields(writer: readonly AvroFieldText[]): AvroFieldText[] {
  const kept = writer.filter(({ name }) => name !== 'note');
  const fields = (JSON.parse(JSON.stringify(kept)) as AvroFieldText[]).map((field) => {
    if (field.name === 'ship_to') return { ...field, name: 'shipping_address', aliases: ['ship_to'] };
    if (field.name !== 'items') return field;
    const { items } = field.type as { items: { fields: AvroFieldText[] } };
    const wider = items.fields.map((one) => (one.name === 'qty' ? { ...one, type: 'long' } : one));
    return { ...field, type: { type: 'array', items: { ...items, fields: wider } } };
  });
  return [...fields, { name: 'discount_cents', type: 'long', default: 0 }];
}

function avroPair(isWide: boolean): SchemaPair {
  const writer = avroFields().filter(({ name }) => isWide || FEW_FIELDS.includes(name));
  return { writer: avroText(writer), reader: avroText(readerFields(writer)) };
}

const protoText = (fields: string, quantity: string): string => `syntax = "proto3";

package shop.orders;

message Order {
  string order_id = 1;
  int64 account_id = 2;
  Status status = 3;
  int64 amount_cents = 4;
  string currency = 5;
  int64 ts = 6;
  repeated Item items = 7;
${fields}
  enum Status {
    PLACED = 0;
    PAID = 1;
    SHIPPED = 2;
  }

  message Item {
    string sku = 1;
    ${quantity} qty = 2;
    int64 price_cents = 3;
  }
}
`;

const TEXT_FIELDS = `  string channel = 8;
  string customer_ref = 9;
  string ship_to = 10;
  string note = 11;
  string trace_id = 12;
`;
const TEXT_FIELDS_READ = `  string channel = 8;
  string customer_ref = 9;
  string shipping_address = 10;
  reserved 11;
  reserved "note";
  string trace_id = 12;
`;
const NEW_FIELD = '  int64 discount_cents = 13;\n';

const protoPair = (isWide: boolean): SchemaPair => ({
  writer: protoText(isWide ? TEXT_FIELDS : '', 'int32'),
  reader: protoText(`${isWide ? TEXT_FIELDS_READ : ''}${NEW_FIELD}`, 'int64'),
});

const schemasOf = (isWide: boolean): Shape['schemas'] => ({
  AVRO: avroPair(isWide),
  PROTOBUF: protoPair(isWide),
});

/** The order with many items of short names in place of its own. */
function manyItems(order: Partial<LogicalOrder>, of: OrderGenerator, index: number): SerdeOrder {
  const items = Array.from({ length: MANY_ITEMS }, (_, item) => {
    const { order_id: id, amount_cents: cents } = of.order(MANY_ITEMS * (index + 1) + item);
    return {
      sku: `sku-${id.replaceAll('-', '')}`.slice(0, SHORT_NAME),
      qty: 1 + ((index + item) % 9),
      price_cents: cents % 100_000n,
    };
  });
  const few = Object.fromEntries(Object.entries(order).filter(([name]) => FEW_FIELDS.includes(name)));
  return { ...few, items };
}

/** Makes both shapes. @param count orders of each */
export function shapesOf(count: number): readonly Shape[] {
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: SEED, accountBase: 1n });
  const small = Array.from({ length: count }, (_, index) => orderAsWritten(generator.order(index), 1));
  const positions = avroFields().map(({ name }) => name);
  const twoFields = [positions.indexOf('account_id'), positions.indexOf('amount_cents')] as const;
  return [
    { name: 'S', orders: small, schemas: schemasOf(true), twoFields },
    {
      name: 'L',
      orders: small.map((order, index) => manyItems(order, generator, index)),
      schemas: schemasOf(false),
      twoFields,
    },
  ];
}

/** The value with numbers for the 64-bit integers, as users of other codecs have it. */
export function withNumbers(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(withNumbers);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, withNumbers(inner)]));
}
