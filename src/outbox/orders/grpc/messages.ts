/** Encodes and decodes the messages of orders.v1 (proto/orders/v1/orders.proto). Pure.
 *
 *  The decoder is stricter than Protocol Buffers, so that both transports refuse the same requests.
 *  An unknown field, a duplicate field or a wrong wire type is an error, like an unknown or
 *  duplicate member of the JSON body. The encoder is deterministic: fields in the order of their
 *  numbers, zero values omitted. Source: the Protocol Buffers encoding guide.
 */
import { coreError } from '../../../core/errors.ts';
import { outboxError } from '../../errors.ts';
import type { CreateRequest } from '../request.ts';
import type { OrderView } from '../write/store.ts';

const VARINT = 0;
const LENGTH_DELIMITED = 2;
/** Seven bits a byte: ten bytes hold 64 bits. */
const VARINT_BYTES_MAX = 10;
const NAMES: Readonly<Record<number, string>> = {
  0: 'a varint',
  1: 'fixed 64 bits',
  2: 'length-delimited',
  5: 'fixed 32 bits',
};

interface Field {
  readonly number: number;
  readonly name: string;
  readonly wireType: typeof VARINT | typeof LENGTH_DELIMITED;
}

const CREATE_REQUEST: readonly Field[] = [
  { number: 1, name: 'account_id', wireType: VARINT },
  { number: 2, name: 'amount_cents', wireType: VARINT },
];
const CREATE_RESPONSE: readonly Field[] = [
  { number: 1, name: 'order_id', wireType: LENGTH_DELIMITED },
  { number: 2, name: 'status', wireType: LENGTH_DELIMITED },
];
const GET_REQUEST: readonly Field[] = [{ number: 1, name: 'order_id', wireType: LENGTH_DELIMITED }];

const malformed = (why: string, field?: string) =>
  outboxError('bad_body', why, {
    next: 'send the message of orders/v1/orders.proto',
    details: field === undefined ? {} : { field },
  });

class Reader {
  private readonly bytes: Uint8Array;
  private at = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  done(): boolean {
    return this.at >= this.bytes.length;
  }

  /** Reads an unsigned 64-bit varint. */
  varint(): bigint {
    let low = 0;
    let value = 0n;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (this.at >= this.bytes.length) throw malformed('the message ends within a number');
      const byte = this.bytes[this.at++] as number;
      // Four bytes fit a 32-bit integer; most numbers end there.
      if (i < 4) {
        low |= (byte & 0x7f) << (7 * i);
        if (byte < 0x80) return BigInt(low);
        if (i === 3) value = BigInt(low);
      } else {
        value |= BigInt(byte & 0x7f) << BigInt(7 * i);
        if (byte < 0x80) {
          if (value >> 64n !== 0n) break;
          return value;
        }
      }
    }
    throw malformed('a number in the message is over 64 bits');
  }

  text(name: string): string {
    const length = this.varint();
    if (length > BigInt(this.bytes.length - this.at)) throw malformed('the message ends within a text', name);
    const from = this.at;
    this.at += Number(length);
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
        this.bytes.subarray(from, this.at),
      );
    } catch {
      throw malformed(`${name} is not UTF-8`, name);
    }
  }
}

function readFields(bytes: Uint8Array, fields: readonly Field[]): ReadonlyMap<string, bigint | string> {
  const reader = new Reader(bytes);
  const values = new Map<string, bigint | string>();
  while (!reader.done()) {
    const tag = reader.varint();
    const number = Number(tag >> 3n);
    const wireType = Number(tag & 7n);
    const field = fields.find((one) => one.number === number);
    if (field === undefined) throw malformed(`the message has no field ${number}`, `field ${number}`);
    const { name } = field;
    if (wireType !== field.wireType) {
      throw malformed(
        `${name} is ${NAMES[wireType] ?? 'of no wire type'}, not ${NAMES[field.wireType]}`,
        name,
      );
    }
    if (values.has(name)) throw malformed(`${name} is given more than once`, name);
    values.set(name, field.wireType === VARINT ? BigInt.asIntN(64, reader.varint()) : reader.text(name));
  }
  return values;
}

/** Decodes a CreateRequest. An absent field is zero, as in proto3.
 *  @throws bad_body, value_out_of_range */
export function readCreateMessage(bytes: Uint8Array): CreateRequest {
  const values = readFields(bytes, CREATE_REQUEST);
  const amountCents = (values.get('amount_cents') ?? 0n) as bigint;
  if (amountCents <= 0n) {
    throw outboxError('value_out_of_range', 'amount_cents is not above zero', {
      details: { field: 'amount_cents' },
    });
  }
  return { accountId: (values.get('account_id') ?? 0n) as bigint, amountCents };
}

/** Decodes a GetRequest and returns its order_id.
 *  @throws bad_body */
export function readGetMessage(bytes: Uint8Array): string {
  return (readFields(bytes, GET_REQUEST).get('order_id') ?? '') as string;
}

function pushVarint(into: number[], value: bigint): void {
  let rest = BigInt.asUintN(64, value);
  while (rest > 0x7fn) {
    into.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  into.push(Number(rest));
}

function pushInteger(into: number[], field: number, value: bigint): void {
  if (value === 0n) return;
  pushVarint(into, BigInt(field << 3));
  pushVarint(into, value);
}

function pushBytes(into: number[], field: number, value: Uint8Array): void {
  pushVarint(into, BigInt((field << 3) | LENGTH_DELIMITED));
  pushVarint(into, BigInt(value.length));
  for (const byte of value) into.push(byte);
}

function pushText(into: number[], field: number, value: string): void {
  if (value !== '') pushBytes(into, field, new TextEncoder().encode(value));
}

const ORDER_ID_TAG = 0x0a;
const STATUS_TAG = 0x12;

const badAnswer = (why: string): Error =>
  coreError('internal', `the stored answer of the order is invalid: ${why}`, {
    next: 'compare the idempotency table with a backup',
  });

function storedAnswer(text: string): { readonly orderId: string; readonly status: string } {
  let answer: { readonly order_id?: unknown; readonly status?: unknown } | null;
  try {
    answer = JSON.parse(text) as typeof answer;
  } catch {
    throw badAnswer('it is not JSON');
  }
  const { order_id: orderId, status } = answer ?? {};
  if (typeof orderId !== 'string' || typeof status !== 'string')
    throw badAnswer('it has no order_id or status');
  return { orderId, status };
}

/** Encodes the stored answer as a CreateResponse.
 *  @throws internal if the stored text is invalid, which no caller can correct */
export function writeCreateMessage(storedBody: string): Uint8Array {
  const { orderId, status } = storedAnswer(storedBody);
  const idBytes = Buffer.byteLength(orderId);
  const statusBytes = Buffer.byteLength(status);
  if (idBytes > 0x7f || statusBytes > 0x7f) throw badAnswer('its order_id or status is too long');
  const message = Buffer.allocUnsafe(4 + idBytes + statusBytes);
  message[0] = ORDER_ID_TAG;
  message[1] = idBytes;
  message.write(orderId, 2, 'utf8');
  message[2 + idBytes] = STATUS_TAG;
  message[3 + idBytes] = statusBytes;
  message.write(status, 4 + idBytes, 'utf8');
  return message;
}

/** Encodes a CreateRequest, for clients. */
export function writeCreateRequest(accountId: bigint, amountCents: bigint): Uint8Array {
  const into: number[] = [];
  pushInteger(into, 1, accountId);
  pushInteger(into, 2, amountCents);
  return Uint8Array.from(into);
}

/** Decodes a CreateResponse to the body that POST /orders answers, for clients. @throws bad_body */
export function readCreateResponse(bytes: Uint8Array): string {
  const values = readFields(bytes, CREATE_RESPONSE);
  return JSON.stringify({ order_id: values.get('order_id') ?? '', status: values.get('status') ?? '' });
}

export function writeOrderMessage(order: OrderView): Uint8Array {
  const into: number[] = [];
  pushText(into, 1, order.orderId);
  pushInteger(into, 2, order.accountId);
  pushInteger(into, 3, order.amountCents);
  pushText(into, 4, order.status);
  pushText(into, 5, order.createdAt.toISOString());
  return Uint8Array.from(into);
}
