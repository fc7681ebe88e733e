/** Helpers of tests over lists: records whose lists have the events, in each format, and a source
 *  of records that a job with a list reads. */
import fc from 'fast-check';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { TIMESTAMP_TYPE } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { EventRows, EventSource, Receipt } from '../../src/engine/source/events.ts';
import { MemoryRegistry } from '../unit/engine/input/input-kit.ts';
import { doubleOf, integerOf, PARTITIONS } from './aggregates-kit.ts';
import type { TestEvent } from './engine-kit.ts';

export const LIST_FORMATS = ['json', 'avro', 'protobuf'] as const;
export type ListFormat = (typeof LIST_FORMATS)[number];

type Element = Pick<TestEvent, 'accountId' | 'value' | 'eventTs'>;

/** Record of a topic: an order with items. */
export interface Order extends Element {
  readonly partition: number;
  /** Null and undefined: the field is null or absent, where the format has such a list. */
  readonly items: readonly Element[] | null | undefined;
  /** True: its last time is out of range. */
  readonly broken: boolean;
}

/** Which fields of an event are the element's; the others are the record's. */
export interface Placement {
  readonly key: boolean;
  readonly time: boolean;
}

/** No event has this time. */
const BAD_TIME = 1n << 60n;

const elements = fc.record({
  accountId: fc.bigInt({ min: 0n, max: 3n }),
  value: fc.oneof(
    fc.bigInt({ min: -10n, max: 10n }),
    fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n }),
  ),
  eventTs: fc.bigInt({ min: -30n, max: 30n }),
});

/** Orders whose event time advances, so that windows fire before the end. */
export const orders: fc.Arbitrary<readonly Order[]> = fc
  .tuple(
    fc.bigInt({ min: 0n, max: 6n }),
    fc.array(
      fc.tuple(
        elements,
        fc.integer({ min: 0, max: PARTITIONS - 1 }),
        fc.oneof(
          { weight: 8, arbitrary: fc.array(elements, { maxLength: 6 }) },
          { weight: 1, arbitrary: fc.constantFrom(null, undefined) },
        ),
        fc.integer({ min: 0, max: 15 }),
      ),
      { maxLength: 40, size: 'max' },
    ),
  )
  .map(([drift, drawn]) =>
    drawn.map(([record, partition, items, luck], at): Order => {
      const moved = (one: Element): Element => ({ ...one, eventTs: one.eventTs + BigInt(at) * drift });
      return { ...moved(record), partition, items: items?.map(moved) ?? (items as null), broken: luck === 0 };
    }),
  );

/** Events of the orders, as a plain fold over their lists has them. A record is invalid as a
 *  whole. */
export function eventsOf(all: readonly Order[], placement: Placement): readonly TestEvent[] {
  return all.flatMap(({ partition, items, broken, ...record }): TestEvent[] => {
    const events = (items ?? []).map((item) => ({
      partition,
      accountId: (placement.key ? item : record).accountId,
      value: item.value,
      eventTs: (placement.time ? item : record).eventTs,
    }));
    const [first] = events;
    return broken && first !== undefined ? [{ ...first, broken: true }] : events;
  });
}

interface Fields {
  readonly k: bigint;
  readonly t: bigint;
  readonly i: bigint | null;
  readonly d: number | null;
}

/** Fields of an order in its record and in its items. */
function fieldsOf(order: Order): {
  readonly record: Pick<Fields, 'k' | 't'>;
  readonly items: Fields[] | null | undefined;
} {
  const { items, broken } = order;
  const last = (items?.length ?? 0) - 1;
  return {
    record: { k: order.accountId, t: broken ? BAD_TIME : order.eventTs },
    items:
      items?.map((item, at) => {
        const event = { ...item, partition: order.partition };
        const t = broken && at === last ? BAD_TIME : item.eventTs;
        return { k: item.accountId, t, i: integerOf(event), d: doubleOf(event) };
      }) ?? (items as null | undefined),
  };
}

const numberText = (value: bigint | number | null): string => (value === null ? 'null' : String(value));
const objectText = (members: ReadonlyArray<readonly [string, string]>): string =>
  `{ ${members.map(([name, text]) => `"${name}" : ${text}`).join(' , ')} }`;

function jsonText(order: Order): string {
  const { record, items } = fieldsOf(order);
  const list = items?.map(({ k, t, i, d }) =>
    objectText([
      ['i', numberText(i)],
      ['x', '"a\\"],[{"'],
      ...(d === null ? [] : [['d', numberText(d)] as const]),
      ['more', '[[1,2],{"i":[3]}]'],
      ['k', numberText(k)],
      ['t', numberText(t)],
    ]),
  );
  return objectText([
    ['t', numberText(record.t)],
    ...(items === undefined
      ? []
      : [['items', list === undefined ? 'null' : `[ ${list.join(' , ')} ]`] as const]),
    ['k', numberText(record.k)],
  ]);
}

const AVRO = JSON.stringify({
  type: 'record',
  name: 'Order',
  fields: [
    { name: 'note', type: 'string' },
    {
      name: 'items',
      type: [
        'null',
        {
          type: 'array',
          items: {
            type: 'record',
            name: 'Item',
            fields: [
              { name: 'tags', type: { type: 'array', items: 'string' } },
              { name: 'k', type: 'long' },
              { name: 't', type: 'long' },
              { name: 'i', type: ['null', 'long'] },
              { name: 'd', type: ['double', 'null'] },
            ],
          },
        },
      ],
    },
    { name: 'k', type: 'long' },
    { name: 't', type: 'long' },
  ],
});
const PROTO = `syntax = "proto3";
message Order {
  message Item { repeated int32 tags = 1; int64 k = 2; int64 t = 3; optional int64 i = 4; optional double d = 5; }
  repeated Item items = 3;
  int64 k = 1;
  int64 t = 2;
  string note = 9;
}`;

const withoutNull = (item: Fields): object =>
  Object.fromEntries(Object.entries(item).filter(([, value]) => value !== null));

/** Values of the orders, framed where the format needs a registry. */
export function valuesOf(
  all: readonly Order[],
  format: ListFormat,
): { readonly registry: MemoryRegistry; readonly values: readonly Buffer[] } {
  const registry = new MemoryRegistry();
  if (format === 'json') return { registry, values: all.map((order) => Buffer.from(jsonText(order))) };
  const id = registry.add(format === 'avro' ? 'AVRO' : 'PROTOBUF', format === 'avro' ? AVRO : PROTO);
  const values = all.map((order) => {
    const { record, items } = fieldsOf(order);
    const list = items?.map((item) =>
      format === 'avro' ? { ...item, tags: ['a', 'bc'] } : { ...withoutNull(item), tags: [1, 300] },
    );
    const value = {
      ...record,
      note: 'x'.repeat(Number(order.accountId)),
      items: list ?? (format === 'avro' ? null : []),
    };
    return registry.frame(id, value);
  });
  return { registry, values };
}

interface Placed {
  readonly partition: number;
  readonly offset: number;
  readonly value: Buffer;
}

/** Topic of records in memory. */
export class RecordSource implements EventSource {
  readonly partitionCount = PARTITIONS;
  receipts: readonly Receipt[] = [];
  batchesLeft = Number.POSITIVE_INFINITY;
  private readonly log: readonly Placed[];
  private readonly highs = new Array<number>(PARTITIONS).fill(0);
  private queue: Placed[] = [];
  private readonly batchRows: number;

  constructor(partitions: readonly number[], values: readonly Buffer[], batchRows: number) {
    this.batchRows = batchRows;
    this.log = values.map((value, at) => {
      const partition = partitions[at] as number;
      const offset = this.highs[partition] as number;
      this.highs[partition] = offset + 1;
      return { partition, offset, value };
    });
  }

  async bounds(): Promise<readonly { readonly low: number; readonly high: number }[]> {
    return this.highs.map((high) => ({ low: 0, high }));
  }
  async start(offsets: readonly number[]): Promise<void> {
    this.queue = this.log.filter(({ partition, offset }) => offset >= (offsets[partition] as number));
  }
  async next(): Promise<EventRows | undefined> {
    if (this.batchesLeft-- <= 0) throw new Error('killed');
    const rows = this.queue.splice(0, this.batchRows);
    if (rows.length === 0) return undefined;
    this.receipts = [{ rows: rows.length, atMs: 0 }];
    return { records: recordsIn(rows), events: EventBatch.create(1) };
  }
  async added(): Promise<readonly number[]> {
    return [];
  }
  endOf(): number {
    return 0;
  }
  async stop(): Promise<void> {}
}

function recordsIn(rows: readonly Placed[]): RecordBatch {
  const bytes = rows.reduce((sum, { value }) => sum + value.length, 0);
  const batch = RecordBatch.create(rows.length, bytes);
  for (const { partition, offset, value } of rows)
    batch.append({
      partition,
      offset: BigInt(offset),
      timestamp: 7n,
      timestampType: TIMESTAMP_TYPE.CREATE,
      value,
    });
  return batch;
}
