/** State of a call, and the account of the memory of all calls.
 *
 *      receiving ──► handling ──► answering ──► over
 *      receiving ──► over                              refused, reset, or too slow
 *                    handling ──► orphaned ──► over    cancelled or late; the handler continues
 *  A streaming call is `receiving` until its client's end of stream, and `answering` while bytes
 *  wait for a flow-control window.
 */

import type { CallHead } from '../http2/head.ts';
import type { Outgoing } from '../http2/out.ts';
import type { GrpcCall, GrpcPeer } from '../port.ts';
import { CALL_BYTES, LONG_CALL_MS_MAX, LONG_SHARE, REFUSED_SHARE, splitValues } from './common.ts';
import { MessageReader } from './message.ts';
import type { Route, Streaming } from './methods.ts';

const EMPTY = new Uint8Array(0);

/** Client of a connection. */
export interface WireClient {
  readonly remoteAddress: string;
  readonly peer: GrpcPeer | undefined;
}

/** Counter of the memory of all calls, against its limits. */
export class Account {
  held = 0;
  private heldLong = 0;
  private readonly max: number;

  constructor(max: number) {
    this.max = max;
  }

  /** Counts bytes, or releases them with a negative number. False: a limit is exceeded. */
  hold(bytes: number, long: boolean): boolean {
    this.held += bytes;
    if (long) this.heldLong += bytes;
    return this.held <= this.max && (!long || this.heldLong <= this.max * LONG_SHARE);
  }

  /** True when even refused calls exceed the limit with its margin. */
  get isOverfull(): boolean {
    return this.held > this.max * (1 + REFUSED_SHARE);
  }
}

export class WireCall implements GrpcCall, Outgoing {
  readonly id: number;
  readonly route: Route;
  readonly fields: readonly string[];
  private readonly client: WireClient;
  readonly reader: MessageReader;
  message: Uint8Array = EMPTY;
  hasMessage = false;
  /** Deadline set by the client; Infinity: none. */
  readonly deadlineMs: number;
  /** Deadline of its wait for the client. */
  untilMs: number;
  /** Bytes counted with the account; `price` is the part that stays constant. */
  held = 0;
  readonly price: number;
  /** Received bytes of messages. */
  received = 0;
  /** Bytes left of the announced length; below zero: not announced. */
  lengthLeft: number;
  /** Bytes left of the client's window. */
  receiveLeft: number;
  sendLeft: number;
  readonly unsent: Buffer[] = [];
  ending: Buffer | undefined;
  /** True after END_STREAM of the client. */
  remoteEnded = false;
  /** True while the handler runs. */
  handling = false;
  /** True after the first bytes of the answer were sent. */
  answered = false;
  /** True when no frame of the call is sent or expected any more. */
  over = false;
  streaming: Streaming | undefined;

  constructor(options: {
    readonly id: number;
    readonly route: Route;
    readonly head: CallHead;
    readonly fields: readonly string[];
    readonly client: WireClient;
    readonly fieldBytes: number;
    readonly messageBytesMax: number;
    readonly requestTimeoutMs: number;
    readonly receiveLeft: number;
    readonly sendLeft: number;
  }) {
    const { head } = options;
    this.id = options.id;
    this.route = options.route;
    this.fields = options.fields;
    this.client = options.client;
    this.reader = new MessageReader(options.messageBytesMax);
    const nowMs = performance.now();
    this.deadlineMs = nowMs + head.timeoutMs;
    this.untilMs = nowMs + (this.long ? LONG_CALL_MS_MAX : options.requestTimeoutMs);
    this.price = CALL_BYTES + options.fieldBytes;
    this.lengthLeft = head.length;
    this.receiveLeft = options.receiveLeft;
    this.sendLeft = options.sendLeft;
  }

  /** True for a call that its client may keep open. */
  get long(): boolean {
    return this.route.kind === 'stream';
  }

  /** Bytes of its message in memory. */
  get messageHeld(): number {
    return this.hasMessage ? this.message.length : this.reader.heldBytes;
  }

  metadata(name: string): readonly string[] {
    const wanted = name.toLowerCase();
    const { fields } = this;
    const values: string[] = [];
    for (let i = 0; i < fields.length; i += 2) if (fields[i] === wanted) values.push(fields[i + 1] as string);
    return splitValues(values);
  }

  get remoteAddress(): string {
    return this.client.remoteAddress;
  }

  get peer(): GrpcPeer | undefined {
    return this.client.peer;
  }

  isLate(): boolean {
    return this.deadlineMs !== Number.POSITIVE_INFINITY && this.deadlineMs <= performance.now();
  }

  cancelled(): boolean {
    return this.over;
  }
}
