/** gRPC client over @grpc/grpc-js with one connection. */
import { Client, credentials, Metadata, type ServiceError, status } from '@grpc/grpc-js';
import { coreError } from '../../core/errors.ts';
import type { GrpcClientDriver, GrpcClientReply } from './client-port.ts';

/** Pauses between two attempts to connect, so that calls resume soon after an outage. The default
 *  grows to two minutes. */
const RECONNECT_FIRST_MS = 100;
const RECONNECT_MAX_MS = 1000;

const asIs = (bytes: Buffer): Buffer => bytes;

function addressOf(target: string): { readonly address: string; readonly tls: boolean } {
  const url = URL.canParse(target) ? new URL(target) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === '' || url.pathname !== '/') {
    throw coreError('bad_value', `the gRPC target ${target} is not an address`, {
      next: 'give http://host:port or https://host:port',
    });
  }
  const tls = url.protocol === 'https:';
  const port = url.port === '' ? (tls ? '443' : '80') : url.port;
  return { address: `${url.hostname}:${port}`, tls };
}

export const grpcClientDriver: GrpcClientDriver = {
  name: '@grpc/grpc-js',
  open: ({ target, timeoutMs, messageBytesMax }) => {
    const { address, tls } = addressOf(target);
    const client = new Client(address, tls ? credentials.createSsl() : credentials.createInsecure(), {
      'grpc.initial_reconnect_backoff_ms': RECONNECT_FIRST_MS,
      'grpc.max_reconnect_backoff_ms': RECONNECT_MAX_MS,
      'grpc.max_receive_message_length': messageBytesMax,
      // The caller sends again, with its own pauses.
      'grpc.enable_retries': 0,
      'grpc.service_config_disable_resolution': 1,
    });
    return {
      call: ({ path, message, metadata }) =>
        new Promise<GrpcClientReply>((resolve, reject) => {
          const sent = new Metadata();
          for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
          let failure: ServiceError | null = null;
          let answer: Buffer = Buffer.alloc(0);
          const call = client.makeUnaryRequest(
            path,
            asIs,
            asIs,
            Buffer.from(message),
            sent,
            { deadline: new Date(Date.now() + timeoutMs) },
            (error, value) => {
              failure = error;
              if (value !== undefined) answer = value;
            },
          );
          // The status arrives after the callback of the message.
          call.on('status', ({ code, details, metadata: trailers }) => {
            if (code === status.UNAVAILABLE || code === status.DEADLINE_EXCEEDED) {
              const late = code === status.DEADLINE_EXCEEDED;
              const why = late ? `within ${timeoutMs} ms` : `(${details})`;
              reject(
                coreError(late ? 'timeout' : 'unreachable', `no reply from ${target} ${why}`, {
                  ...(failure === null ? {} : { cause: failure }),
                  details: { reason: status[code] },
                }),
              );
              return;
            }
            const entries = Object.entries(trailers.getMap());
            resolve({
              code,
              text: details,
              message: answer,
              trailers: Object.fromEntries(entries.map(([name, value]) => [name, String(value)])),
            });
          });
        }),
      close: () => client.close(),
    };
  },
};
