/** Compares decoded files with the generator, which is the oracle: each line must be the order that
 *  its reader's version sees of its writer's version. */
import { createReadStream, existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { type JsonNode, readJson } from '../../formats/json/text.ts';
import { DEFAULT_ORDERS, OrderGenerator, type OrderVersion } from '../../gen/order.ts';
import { orderAsRead } from '../../gen/order-versions.ts';

export const placeOf = (partition: number | string, offset: bigint | string): string =>
  `${partition}/${offset}`;

/** Orders that the lines of a file must hold. */
export interface ExpectedOrders {
  readonly seed: number;
  /** Number of orders of the seed; Infinity: no limit. */
  readonly count: number;
  readonly reader: OrderVersion;
  /** Version of the writer by schema id; undefined: no line may have this id. */
  readonly writerOf: (schemaId: string) => OrderVersion | undefined;
}

export interface DecodedOrders {
  /** Descriptions of the lines whose order differs from the generator's. */
  readonly wrong: readonly string[];
  /** Positions decoded, and the number of lines that repeat a position. */
  readonly decoded: ReadonlySet<string>;
  readonly repeated: number;
  /** Numbers of the generated orders that were decoded. */
  readonly orders: ReadonlySet<number>;
}

interface DecodedLine {
  readonly partition: string;
  readonly offset: string;
  readonly schemaId: string;
  readonly value: Readonly<Record<string, unknown>>;
}

/** Key in the form that Avro's and Protobuf's JSON share: ProtoJSON writes `accountId` for
 *  `account_id`. */
const commonKey = (key: string): string => key.replaceAll('_', '').toLowerCase();

/** Text of a value in which key order, absent members and quotes of integers do not matter:
 *  ProtoJSON leaves absent members out, and quotes 64-bit integers. */
export function asText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(asText).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(String(value));
  const members = Object.entries(value)
    .filter(([, item]) => item !== null && item !== undefined)
    .map(([key, item]) => `${commonKey(key)}:${asText(item)}`);
  return `{${members.sort().join(',')}}`;
}

/** Value of a JSON document, with the digits of numbers as texts: a double would round them. */
function exactValue(node: JsonNode): unknown {
  switch (node.kind) {
    case 'null':
      return null;
    case 'number':
      return node.digits;
    case 'array':
      return node.items.map(exactValue);
    case 'object': {
      const members = [...node.members].map(([key, { value }]) => [key, exactValue(value)] as const);
      return Object.fromEntries(members);
    }
    default:
      return node.value;
  }
}

/** Reads a file of decoded records, one a line. */
export async function readDecoded(path: string, expected: ExpectedOrders): Promise<DecodedOrders> {
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: BigInt(expected.seed) });
  const wrong: string[] = [];
  const decoded = new Set<string>();
  const orders = new Set<number>();
  let repeated = 0;
  if (!existsSync(path)) return { wrong: ['the decoded file is missing'], decoded, repeated, orders };
  for await (const text of createInterface({
    input: createReadStream(path),
    crlfDelay: Number.POSITIVE_INFINITY,
  })) {
    let line: DecodedLine;
    try {
      line = exactValue(readJson(text, { comments: false, repeatedKeys: false })) as DecodedLine;
    } catch {
      wrong.push(`a line that is not JSON: ${text.slice(0, 80)}`);
      continue;
    }
    const place = placeOf(line.partition, line.offset);
    if (decoded.has(place)) repeated++;
    decoded.add(place);
    // Orders are one millisecond apart, so the timestamp determines the expected order.
    const index = Number(line.value['ts']) - DEFAULT_ORDERS.baseMs;
    if (!Number.isInteger(index) || index < 0 || index >= expected.count) {
      wrong.push(`${place} holds no order of this run`);
      continue;
    }
    const writer = expected.writerOf(line.schemaId);
    const isRight =
      writer !== undefined &&
      asText(line.value) === asText(orderAsRead(generator.order(index), writer, expected.reader));
    if (isRight) orders.add(index);
    else wrong.push(`${place} is not order ${index} as version ${expected.reader} must see it`);
  }
  return { wrong, decoded, repeated, orders };
}
