/** Encoder of google.rpc.Status with its details, for the trailer grpc-status-details-bin.
 *
 *  Only the fields that Millrace sends. Source: googleapis google/rpc/status.proto and
 *  error_details.proto, google/protobuf any.proto and duration.proto; the wire format as in the
 *  Protocol Buffers encoding guide.
 *    Status       1 code varint, 2 message, 3 repeated Any details
 *    Any          1 type_url, 2 value
 *    BadRequest   1 repeated FieldViolation { 1 field, 2 description }
 *    ErrorInfo    1 reason, 2 domain, 3 map<string, string> metadata { 1 key, 2 value }
 *    RetryInfo    1 Duration { 1 seconds, 2 nanos }
 *    RequestInfo  1 request_id
 */
import type { GrpcDetail } from '../port.ts';

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 0x7f) {
    bytes.push((rest & 0x7f) | 0x80);
    rest = Math.floor(rest / 0x80);
  }
  bytes.push(rest);
  return Buffer.from(bytes);
}

/** Field of wire type 0; a zero is not written. */
const number = (field: number, value: number): Buffer =>
  value === 0 ? Buffer.alloc(0) : Buffer.concat([varint(field << 3), varint(value)]);

/** Field of wire type 2. */
function bytes(field: number, value: Uint8Array): Buffer {
  return Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);
}

const text = (field: number, value: string): Buffer =>
  value === '' ? Buffer.alloc(0) : bytes(field, Buffer.from(value, 'utf8'));

function encodeDetail(detail: GrpcDetail): readonly [type: string, value: Buffer] {
  switch (detail.kind) {
    case 'bad_request': {
      const violations = detail.violations.map(({ field, description }) =>
        bytes(1, Buffer.concat([text(1, field), text(2, description)])),
      );
      return ['BadRequest', Buffer.concat(violations)];
    }
    case 'error_info': {
      const metadata = Object.entries(detail.metadata).map(([key, value]) =>
        bytes(3, Buffer.concat([text(1, key), text(2, value)])),
      );
      return ['ErrorInfo', Buffer.concat([text(1, detail.reason), text(2, detail.domain), ...metadata])];
    }
    case 'retry_info': {
      const seconds = Math.floor(detail.delayMs / 1000);
      const nanos = Math.round((detail.delayMs - seconds * 1000) * 1e6);
      return ['RetryInfo', bytes(1, Buffer.concat([number(1, seconds), number(2, nanos)]))];
    }
    case 'request_info':
      return ['RequestInfo', text(1, detail.requestId)];
  }
}

export function encodeStatus(code: number, message: string, details: readonly GrpcDetail[]): Buffer {
  const packed = details.map((detail) => {
    const [type, value] = encodeDetail(detail);
    return bytes(3, Buffer.concat([text(1, `type.googleapis.com/google.rpc.${type}`), bytes(2, value)]));
  });
  return Buffer.concat([number(1, code), text(2, message), ...packed]);
}
