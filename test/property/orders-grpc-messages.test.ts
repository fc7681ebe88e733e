/** Compares the messages of orders.v1 with protobufjs, which reads the proto file itself. */
import { join } from 'node:path';
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { GrpcDetail } from '../../src/io/grpc/port.ts';
import { encodeStatus } from '../../src/io/grpc/service/details.ts';
import {
  readCreateMessage,
  readGetMessage,
  writeCreateMessage,
  writeOrderMessage,
} from '../../src/outbox/orders/grpc/messages.ts';
import { PROTOS, readDetails } from '../e2e/orders-grpc-kit.ts';
import { runs } from '../tier.ts';

const root = protobuf.loadSync(join(PROTOS, 'orders/v1/orders.proto'));
const type = (name: string): protobuf.Type => root.lookupType(`orders.v1.${name}`);
const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const positive = fc.bigInt({ min: 1n, max: 2n ** 63n - 1n });

const encode = (name: string, value: object): Uint8Array =>
  type(name).encode(type(name).fromObject(value)).finish();
const decode = (name: string, bytes: Uint8Array): unknown =>
  type(name).toObject(type(name).decode(bytes), { longs: String, defaults: true });

describe('CreateRequest', () => {
  it('a CreateRequest is read as protobufjs writes it', () => {
    fc.assert(
      fc.property(int64, positive, (accountId, amountCents) => {
        const bytes = encode('CreateRequest', {
          accountId: accountId.toString(),
          amountCents: amountCents.toString(),
        });
        expect(readCreateMessage(bytes)).toEqual({ accountId, amountCents });
      }),
    );
  });

  it('a CreateRequest of any bytes is read as protobufjs reads it, or refused with a reason', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 24 }), (bytes) => {
        let read: ReturnType<typeof readCreateMessage>;
        try {
          read = readCreateMessage(bytes);
        } catch (thrown) {
          expect(['bad_body', 'value_out_of_range']).toContain(findMillraceError(thrown)?.code);
          return;
        }
        expect(decode('CreateRequest', bytes)).toEqual({
          accountId: read.accountId.toString(),
          amountCents: read.amountCents.toString(),
        });
      }),
      { numRuns: runs(2000) },
    );
  });
});

describe('other orders.v1 messages', () => {
  it('the other messages are read and written as protobufjs writes and reads them', () => {
    fc.assert(
      fc.property(
        fc.uuid(),
        fc.string({ maxLength: 30 }),
        int64,
        positive,
        fc.date({ noInvalidDate: true }),
        (...given) => {
          const [orderId, status, accountId, amountCents, createdAt] = given;
          expect(readGetMessage(encode('GetRequest', { orderId }))).toBe(orderId);
          const created = writeCreateMessage(JSON.stringify({ order_id: orderId, status }));
          expect(decode('CreateResponse', created)).toEqual({ orderId, status });
          const order = writeOrderMessage({ orderId, accountId, amountCents, status, createdAt });
          expect(decode('Order', order)).toEqual({
            orderId,
            accountId: accountId.toString(),
            amountCents: amountCents.toString(),
            status,
            createdAt: createdAt.toISOString(),
          });
        },
      ),
    );
  });

  it.each([
    '{',
    'null',
    '{}',
    '{"order_id":"a","status":7}',
    `{"order_id":"${'a'.repeat(128)}","status":"s"}`,
  ])('the stored answer %s is an error of the service, not of the caller', (stored) => {
    expect(() => writeCreateMessage(stored)).toThrow('the stored answer of the order is invalid');
    try {
      writeCreateMessage(stored);
    } catch (thrown) {
      expect(findMillraceError(thrown)?.code).toBe('internal');
    }
  });

  it('error details of any length are encoded as google.rpc defines them', () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 300 });
    fc.assert(
      fc.property(text, text, fc.integer({ min: 0, max: 10_000_000 }), (a, b, delayMs) => {
        const details: readonly GrpcDetail[] = [
          { kind: 'bad_request', violations: [{ field: a, description: b }] },
          { kind: 'error_info', reason: a, domain: b, metadata: { [`k${a}`]: b } },
          { kind: 'retry_info', delayMs },
          { kind: 'request_info', requestId: b },
        ];
        const read = readDetails(encodeStatus(3, a, details));
        expect(read.map((detail) => detail['type'])).toEqual([
          'BadRequest',
          'ErrorInfo',
          'RetryInfo',
          'RequestInfo',
        ]);
        expect(read[1]).toEqual({
          type: 'ErrorInfo',
          ...(a === '' ? {} : { reason: a }),
          ...(b === '' ? {} : { domain: b }),
          metadata: { [`k${a}`]: b },
        });
        const { seconds = 0, nanos = 0 } = (read[2] as { retryDelay: { seconds?: number; nanos?: number } })
          .retryDelay;
        expect(seconds * 1000 + nanos / 1e6).toBe(delayMs);
      }),
    );
  });
});
