/** Minimal Kafka client with a single request, Metadata: it identifies the cluster and the live
 *  brokers, and needs no client library.
 *
 *  Body of a Metadata request, version 2, no topics (Source: Kafka protocol guide):
 *    topics i32 = 0
 *  Response:
 *    brokers i32 x (id i32, host str, port i32, rack nullable str) |
 *    cluster id nullable str | controller id i32 | topics i32 */
import { connect } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { int32, readResponse, requestFrame } from '../../io/kafka/frame.ts';

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

const METADATA = 3;
const RESPONSE_BYTES_MAX = 65_536;
const BROKERS_MAX = 1_000;

export const encodeMetadataRequest = (): Buffer =>
  requestFrame({ key: METADATA, version: 2, clientId: 'millrace-up' }, int32(0));

/** Decodes the response after its size field; undefined if it is malformed. */
export const decodeMetadataResponse = (body: Buffer): ClusterView | undefined =>
  readResponse(body, (fields) => {
    const brokers: BrokerAddress[] = [];
    for (let left = fields.count(BROKERS_MAX); left > 0; left--) {
      const id = fields.i32();
      const host = fields.text() ?? '';
      const port = fields.i32();
      fields.text();
      brokers.push({ id, host, port });
    }
    const clusterId = fields.text();
    return { brokers, clusterId, controllerId: fields.i32() };
  });

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
