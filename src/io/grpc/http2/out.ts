/** What a connection sends: frames in order, DATA as far as both windows allow, all of one turn in one write.
 *
 *  A call whose answer does not fit its windows waits here, and goes on when the client opens them. Source: RFC 9113, section 5.2
 *  and 6.9; RFC 7541, section 4.2 for a client that shrinks the table it offers.
 */
import type { Socket } from 'node:net';
import { BEGINNING, framedMessage, wholeAnswer } from '../service/answer.ts';
import { PREFIX_BYTES } from '../service/message.ts';
import { DATA, FRAME_BYTES_MAX, frame, headerFrames, WINDOW_INITIAL, WINDOW_MAX } from './frames.ts';
import { NO_TABLE } from './hpack.ts';

/** The table that the other side has for us, until it says otherwise. */
const TABLE_BYTES = 4096;

/** A call as far as sending needs to know it. */
export interface Outgoing {
  readonly id: number;
  /** What its window has left; below zero after the client made its windows smaller. */
  sendLeft: number;
  /** DATA that did not fit, in order. */
  readonly unsent: Buffer[];
  /** The block that follows it and ends the call. */
  ending: Buffer | undefined;
}

/** Who is told what becomes of what is sent. */
export interface OutOwner<C extends Outgoing> {
  /** Nothing of a call waits for a window any more. */
  sent(call: C): void;
  /** The client does not read: bytes wait in memory until `drain` of the socket. */
  full(): void;
}

export class WireOut<C extends Outgoing = Outgoing> {
  private readonly socket: Socket;
  private readonly owner: OutOwner<C>;
  private readonly blocked = new Set<C>();
  private pieces: Buffer[] = [];
  /** Somebody will flush. */
  private held = false;
  private left = WINDOW_INITIAL;
  /** A window has opened since `goOn`. */
  private opened = false;
  private tableBytes = TABLE_BYTES;
  private saysNoTable = false;
  /** Of streams to come. */
  windowInitial = WINDOW_INITIAL;

  constructor(socket: Socket, owner: OutOwner<C>) {
    this.socket = socket;
    this.owner = owner;
  }

  /** Until `release` everything is collected. */
  hold(): void {
    this.held = true;
  }

  release(): void {
    if (this.opened) this.resume();
    this.held = false;
    this.flush();
  }

  push(bytes: Buffer): void {
    this.pieces.push(bytes);
    if (this.held) return;
    // Answers that are given in one turn of the event loop leave together.
    this.held = true;
    process.nextTick(this.flushHeld);
  }

  private readonly flushHeld = (): void => {
    this.held = false;
    this.flush();
  };

  /** Everything that was pushed goes to the socket. */
  flush(): void {
    const { pieces, socket } = this;
    if (pieces.length === 0) return;
    this.pieces = [];
    if (socket.destroyed || socket.writableEnded) return;
    if (!socket.write(pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces))) this.owner.full();
  }

  headers(stream: number, block: Buffer, endStream: boolean): void {
    this.push(headerFrames(stream, this.withTable(block), endStream));
  }

  private withTable(block: Buffer): Buffer {
    if (!this.saysNoTable) return block;
    this.saysNoTable = false;
    return Buffer.concat([NO_TABLE, block]);
  }

  /** The table that the client offers for header blocks of ours, which never use it. */
  tableOffered(bytes: number): void {
    if (bytes < this.tableBytes) {
      this.saysNoTable = true;
      this.tableBytes = 0;
    }
  }

  /** A whole answer. False: it waits for a window, and `sent` tells its end. */
  answer(call: C, message: Uint8Array, ending: Buffer): boolean {
    const size = PREFIX_BYTES + message.length;
    if (
      size <= call.sendLeft &&
      size <= this.left &&
      size <= FRAME_BYTES_MAX &&
      ending.length <= FRAME_BYTES_MAX &&
      !this.saysNoTable
    ) {
      call.sendLeft -= size;
      this.left -= size;
      this.push(wholeAnswer(call.id, message, ending));
      return true;
    }
    this.headers(call.id, BEGINNING, false);
    return this.send(call, framedMessage(message), ending);
  }

  /** Bytes of messages, and the block that ends the call where these are the last. False: it waits for a window. */
  send(call: C, bytes: Buffer, ending?: Buffer): boolean {
    const waits = call.unsent.length > 0;
    if (bytes.length > 0) call.unsent.push(bytes);
    call.ending = ending;
    if (!waits && this.sendOn(call)) return true;
    this.blocked.add(call);
    return false;
  }

  /** Sends what fits; true when nothing waits. */
  private sendOn(call: C): boolean {
    const { unsent } = call;
    let done = 0;
    while (done < unsent.length) {
      const bytes = unsent[done] as Buffer;
      const size = Math.min(bytes.length, call.sendLeft, this.left, FRAME_BYTES_MAX);
      if (size <= 0) break;
      this.push(frame(DATA, 0, call.id, bytes.subarray(0, size)));
      call.sendLeft -= size;
      this.left -= size;
      if (size === bytes.length) done++;
      else unsent[done] = bytes.subarray(size);
    }
    unsent.splice(0, done);
    if (unsent.length > 0) return false;
    if (call.ending !== undefined) this.headers(call.id, call.ending, true);
    return true;
  }

  private resume(): void {
    this.opened = false;
    for (const call of this.blocked) {
      if (this.left <= 0) return;
      if (!this.sendOn(call)) continue;
      this.blocked.delete(call);
      this.owner.sent(call);
    }
  }

  forget(call: C): void {
    this.blocked.delete(call);
  }

  /** False: the window is too large. */
  openConnection(bytes: number): boolean {
    this.left += bytes;
    this.opened = true;
    return this.left <= WINDOW_MAX;
  }

  openCall(call: C, bytes: number): boolean {
    call.sendLeft += bytes;
    this.opened = true;
    return call.sendLeft <= WINDOW_MAX;
  }

  /** The client has set the window that its streams begin with. False: a window is too large. */
  setInitial(bytes: number, calls: Iterable<C>): boolean {
    const more = bytes - this.windowInitial;
    this.windowInitial = bytes;
    for (const call of calls) if (!this.openCall(call, more)) return false;
    return true;
  }
}
