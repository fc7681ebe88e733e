/** Minimal Kafka client with a single request, Metadata: it identifies the cluster and the live
 *  brokers, and needs no client library.
 *
 *  Metadata request, version 2, no topics (Source: Kafka protocol guide):
 *    size i32 | key i16 = 3 | version i16 = 2 | correlation i32 | client id: i16 length, bytes |
 *    topics i32 = 0
 *  Response:
 *    size i32 | correlation i32 | brokers i32 x (id i32, host str, port i32, rack nullable str) |
 *    cluster id nullable str | controller id i32 | topics i32 */
import { connect } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';

export interface BrokerAddress {
  readonly id: number;
  readonly host: string;
  readonly port: number;
}

export interface ClusterView {
  readonly clusterId: string | undefined;
  readonly controllerId: number;
  /** Brokers that accept requests. */
  readonly brokers: readonly BrokerAddress[];
}

const CORRELATION = 0x6d72;
const RESPONSE_BYTES_MAX = 65_536;
const BROKERS_MAX = 1_000;

export function encodeMetadataRequest(): Buffer {
  const client = Buffer.from('millrace-up');
  const body = Buffer.alloc(2 + 2 + 4 + 2 + client.length + 4);
  body.writeInt16BE(3, 0);
  body.writeInt16BE(2, 2);
  body.writeInt32BE(CORRELATION, 4);
  body.writeInt16BE(client.length, 8);
  client.copy(body, 10);
  const size = Buffer.alloc(4);
  size.writeInt32BE(body.length, 0);
  return Buffer.concat([size, body]);
}

/** Decodes the response after its size field; undefined if it is malformed. */
export function decodeMetadataResponse(body: Buffer): ClusterView | undefined {
  let at = 0;
  const i32 = () => {
    at += 4;
    return body.readInt32BE(at - 4);
  };
  const text = () => {
    const length = body.readInt16BE(at);
    at += 2;
    if (length < 0) return undefined;
    if (at + length > body.length) throw new RangeError('text past the end');
    at += length;
    return body.toString('utf8', at - length, at);
  };
  try {
    if (i32() !== CORRELATION) return undefined;
    const count = i32();
    if (count < 0 || count > BROKERS_MAX) return undefined;
    const brokers: BrokerAddress[] = [];
    for (let i = 0; i < count; i++) {
      const id = i32();
      const host = text() ?? '';
      const port = i32();
      text();
      brokers.push({ id, host, port });
    }
    const clusterId = text();
    return { brokers, clusterId, controllerId: i32() };
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}

/** Sends one Metadata request. Undefined if there is no answer in time or the answer is not
 *  Kafka's.
 *  @param tls options for a listener with TLS and without SASL; undefined: plaintext */
export function askBroker(
  host: string,
  port: number,
  timeoutMs: number,
  tls?: ConnectionOptions,
): Promise<ClusterView | undefined> {
  return new Promise((resolve) => {
    const socket = tls === undefined ? connect({ host, port }) : connectTls({ host, port, ...tls });
    let received = Buffer.alloc(0);
    const end = (view: ClusterView | undefined) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(view);
    };
    const timer = setTimeout(() => end(undefined), timeoutMs);
    socket.once(tls === undefined ? 'connect' : 'secureConnect', () => socket.write(encodeMetadataRequest()));
    socket.on('error', () => end(undefined));
    socket.on('close', () => end(undefined));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 4) return;
      const size = received.readInt32BE(0);
      if (size < 0 || size > RESPONSE_BYTES_MAX) return end(undefined);
      if (received.length >= 4 + size) end(decodeMetadataResponse(received.subarray(4, 4 + size)));
    });
  });
}
