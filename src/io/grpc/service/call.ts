/** One call, and the account of what all calls hold.
 *
 *      receiving ──► handling ──► answering ──► over
 *      receiving ──► over                              refused, reset, or too slow
 *                    handling ──► orphaned ──► over    its client has gone or its deadline passed; the handler runs on
 *  A streaming call is `receiving` until its client's end, and `answering` as soon as something waits for a window.
 */

import type { CallHead } from '../http2/head.ts';
import type { Outgoing } from '../http2/out.ts';
import type { GrpcCall, GrpcPeer } from '../port.ts';
import { CALL_BYTES, LONG_CALL_MS_MAX, LONG_SHARE, REFUSED_SHARE, splitValues } from './common.ts';
import { MessageReader } from './message.ts';
import type { Route, Streaming } from './methods.ts';

const EMPTY = new Uint8Array(0);

/** The client of a connection. */
export interface WireClient {
  readonly remoteAddress: string;
  readonly peer: GrpcPeer | undefined;
}

/** Counts what is held against what may be. */
export class Account {
  held = 0;
  private heldLong = 0;
  private readonly max: number;

  constructor(max: number) {
    this.max = max;
  }

  /** Counts bytes, or fewer with a negative number. False: that is more than may be held. */
  hold(bytes: number, long: boolean): boolean {
    this.held += bytes;
    if (long) this.heldLong += bytes;
    return this.held <= this.max && (!long || this.heldLong <= this.max * LONG_SHARE);
  }

  /** What is refused does not go away either. */
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
  /** Of its client; Infinity: none. */
  readonly deadlineMs: number;
  /** Until then it may wait for its client. */
  untilMs: number;
  /** Counted with the account, and of that what stays the same. */
  held = 0;
  readonly price: number;
  /** Bytes of messages that came. */
  received = 0;
  /** Of the length that the client gave; below zero: it gave none. */
  lengthLeft: number;
  /** Of the window that the client may fill. */
  receiveLeft: number;
  sendLeft: number;
  readonly unsent: Buffer[] = [];
  ending: Buffer | undefined;
  /** END_STREAM came. */
  remoteEnded = false;
  /** Its handler is at work. */
  handling = false;
  /** Something of an answer has left. */
  answered = false;
  /** No frame of it is sent or expected any more. */
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

  /** One that its client may keep open. */
  get long(): boolean {
    return this.route.kind === 'stream';
  }

  /** Bytes of its message, as far as they are kept. */
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
