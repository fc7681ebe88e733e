/** Method table by path: the methods of the port, and those of health and reflection, whose
 *  libraries register with a server of grpc-js. The emulated streams support only the used part:
 *  messages in, messages out, and both ends. */
import { EventEmitter } from 'node:events';
import type { ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import { GRPC_CODES, type GrpcCall, type GrpcMethod, type GrpcReply } from '../port.ts';

/** Actions of a streaming method on its call. */
export interface StreamSide {
  write(message: Buffer): void;
  end(): void;
}

/** Events of a call for its streaming method. */
export interface Streaming {
  /** Handles a message. @throws when it cannot be decoded */
  accept(message: Buffer): void;
  /** Handles the client's end of stream. @throws when the request cannot be decoded */
  ended(): void;
  /** Handles a call that is over before its method ended it. */
  cancelled(): void;
}

export interface UnaryRoute {
  readonly kind: 'unary';
  readonly path: string;
  /** Name for metrics; undefined for health and reflection. */
  readonly name: string | undefined;
  readonly handler: GrpcMethod['handler'];
}

export interface StreamRoute {
  readonly kind: 'stream';
  readonly path: string;
  open(side: StreamSide): Streaming;
}

export type Route = UnaryRoute | StreamRoute;

type Definition = ServiceDefinition[string];
type UnaryImplementation = (
  call: { readonly request: unknown },
  answer: (error: { readonly code: number; readonly details: string } | null, value?: unknown) => void,
) => void;
type StreamImplementation = (call: ServedStream) => void;

const NO_BYTES = new Uint8Array(0);
const UNREADABLE: GrpcReply = { code: 'INTERNAL', message: NO_BYTES, text: 'the message cannot be read' };
const NO_REQUEST = 'no request';

/** Stand-in for a stream of grpc-js. */
class ServedStream extends EventEmitter {
  request: unknown;
  private readonly side: StreamSide;
  private readonly serialize: (value: unknown) => Buffer;

  constructor(side: StreamSide, serialize: (value: unknown) => Buffer) {
    super();
    this.side = side;
    this.serialize = serialize;
  }

  write(value: unknown): boolean {
    this.side.write(this.serialize(value));
    return true;
  }

  end(): void {
    this.side.end();
  }
}

/** Bidirectional streaming: every message of the client is an event for the method. */
function duplex(definition: Definition, implementation: StreamImplementation, side: StreamSide): Streaming {
  const stream = new ServedStream(side, definition.responseSerialize);
  implementation(stream);
  return {
    accept: (message) => {
      stream.emit('data', definition.requestDeserialize(message));
    },
    ended: () => {
      stream.emit('end');
    },
    cancelled: () => {
      stream.emit('cancelled');
    },
  };
}

/** Server streaming: one request starts the method. */
function downstream(
  definition: Definition,
  implementation: StreamImplementation,
  side: StreamSide,
): Streaming {
  const stream = new ServedStream(side, definition.responseSerialize);
  let request: unknown = NO_REQUEST;
  return {
    accept: (message) => {
      if (request !== NO_REQUEST) throw new Error('there is more than one request');
      request = definition.requestDeserialize(message);
    },
    ended: () => {
      if (request === NO_REQUEST) throw new Error('there is no request');
      stream.request = request;
      implementation(stream);
    },
    cancelled: () => {
      stream.emit('cancelled');
    },
  };
}

function unary(definition: Definition, implementation: UnaryImplementation): GrpcMethod['handler'] {
  return (call: GrpcCall) => {
    let request: unknown;
    try {
      request = definition.requestDeserialize(call.message as Buffer);
    } catch {
      return UNREADABLE;
    }
    return new Promise<GrpcReply>((resolve) => {
      implementation({ request }, (error, value) => {
        resolve(
          error === null
            ? { code: 'OK', message: definition.responseSerialize(value) }
            : { code: GRPC_CODES[error.code] ?? 'UNKNOWN', message: NO_BYTES, text: error.details },
        );
      });
    });
  };
}

export class Routes {
  private readonly routes = new Map<string, Route>();

  find(path: string): Route | undefined {
    return this.routes.get(path);
  }

  add(method: GrpcMethod): void {
    const { service, name, handler } = method;
    const path = `/${service}/${name}`;
    this.routes.set(path, { kind: 'unary', path, name, handler });
  }

  /** Registers a service, with the signature of grpc-js. */
  addService(definitions: ServiceDefinition, implementations: UntypedServiceImplementation): void {
    for (const [name, definition] of Object.entries(definitions)) {
      const implementation = implementations[name] as unknown;
      if (implementation === undefined) continue;
      const { path, requestStream, responseStream } = definition;
      if (responseStream) {
        const serve = requestStream ? duplex : downstream;
        this.routes.set(path, {
          kind: 'stream',
          path,
          open: (side) => serve(definition, implementation as StreamImplementation, side),
        });
      } else {
        const handler = unary(definition, implementation as UnaryImplementation);
        this.routes.set(path, { kind: 'unary', path, name: undefined, handler });
      }
    }
  }
}
