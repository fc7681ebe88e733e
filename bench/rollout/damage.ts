/** Changes that a subject refuses even under NONE, and what they would do: the new schema is
 *  registered on a second subject, and its orders are read with each version of the first one. */
import { DEFAULT_ORDERS, OrderGenerator, type OrderShape } from '../../src/gen/order.ts';
import { ORDER_VERSIONS, orderAsWritten, orderSchema } from '../../src/gen/order-versions.ts';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { ask, registration } from '../registry-server.ts';
import type { Change } from './cells.ts';
import { decodeOrders } from './decode.ts';

const ORDERS = 200;

export interface Misreading {
  /** Version of the reader. */
  readonly reader: OrderShape;
  readonly orders: number;
  /** Orders that a decoder of Protobuf alone refuses, and those that it reads wrongly. */
  readonly unreadable: number;
  readonly misread: number;
  readonly shown: string;
  /** Orders that the deserializer of the library refuses, because it checks the schemas. */
  readonly refused: number;
}

export interface Damage extends Change {
  /** Answer of the registry under NONE. */
  readonly refusal: string;
  /** Readers of the first subject that read the orders wrongly or not at all. */
  readonly misreadings: readonly Misreading[];
}

const body = (schema: string): string =>
  JSON.stringify({ ...(JSON.parse(registration(schema)) as object), schemaType: 'PROTOBUF' });

/** Registers all versions up to `from` and then the new schema on one subject set to NONE.
 *  @returns undefined if NONE accepts the new schema */
export async function damageOf(
  registry: string,
  subject: string,
  change: Change,
): Promise<Damage | undefined> {
  const { format, from, to } = change;
  if (format !== 'protobuf') return undefined;
  const target = { url: registry };
  const earlier = ORDER_VERSIONS.filter((version) => version <= (from as number));
  await ask(target, 'PUT', `/config/${subject}`, JSON.stringify({ compatibility: 'NONE' }));
  for (const version of earlier)
    await ask(target, 'POST', `/subjects/${subject}/versions`, body(orderSchema(version, format)));
  const text = orderSchema(to, format);
  const answer = (await ask(target, 'POST', `/subjects/${subject}/versions`, body(text), [200, 409])) as {
    readonly message?: string;
  };
  if (answer.message === undefined) return undefined;
  await ask(target, 'POST', `/subjects/${subject}-apart/versions`, body(text));
  const records = await recordsOf(registry, `${subject}-apart`, to);
  const misreadings: Misreading[] = [];
  for (const reader of earlier) {
    const { unreadable, misread, shown } = decodeOrders(format, to, reader, ORDERS);
    const refused = await refusedBy(registry, subject, reader, records);
    if (shown !== undefined || refused > 0)
      misreadings.push({ reader, orders: ORDERS, unreadable, misread, shown: shown ?? '', refused });
  }
  return { ...change, refusal: answer.message, misreadings };
}

/** Framed orders of a registered schema. */
async function recordsOf(url: string, subject: string, shape: OrderShape): Promise<readonly Buffer[]> {
  const schema = orderSchema(shape, 'protobuf');
  const options = { topic: subject, subject: () => subject, schema, format: 'PROTOBUF' } as const;
  const serializer = await new SchemaRegistry({ url }).serializer(options).prefetch();
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 1n });
  return Array.from({ length: ORDERS }, (_, index) =>
    serializer.serialize(orderAsWritten(generator.order(index), shape)),
  );
}

async function refusedBy(
  url: string,
  subject: string,
  version: number,
  records: readonly Buffer[],
): Promise<number> {
  const deserializer = new SchemaRegistry({ url }).deserializer({ readerVersion: { subject, version } });
  const read = await deserializer.deserializeBatch(records);
  return read.filter(({ error }) => error !== undefined).length;
}
