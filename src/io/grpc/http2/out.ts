/** Output of a connection: frames in order, DATA within both flow-control windows, and one write
 *  for all frames of a turn.
 *
 *  A call whose answer exceeds its windows waits here, and continues when the client opens them.
 *  Source: RFC 9113, sections 5.2 and 6.9; RFC 7541, section 4.2 for a client that shrinks its
 *  table.
 */
import type { Socket } from 'node:net';
import { BEGINNING, framedMessage, wholeAnswer } from '../service/answer.ts';
import { PREFIX_BYTES } from '../service/message.ts';
import { DATA, FRAME_BYTES_MAX, frame, headerFrames, WINDOW_INITIAL, WINDOW_MAX } from './frames.ts';
import { NO_TABLE } from './hpack.ts';

/** Size of the client's table, by default. */
const TABLE_BYTES = 4096;

/** Part of a call that sending needs. */
export interface Outgoing {
  readonly id: number;
  /** Bytes left in the window of the call; below zero after the client shrank its windows. */
  sendLeft: number;
  /** DATA beyond the window, in order. */
  readonly unsent: Buffer[];
  /** Header block that follows the DATA and ends the call. */
  ending: Buffer | undefined;
}

/** Callbacks of the output. */
export interface OutOwner<C extends Outgoing> {
  /** No bytes of the call wait for a window any more. */
  onSent(call: C): void;
  /** The client does not read: bytes wait in memory until the socket's `drain`. */
  onBackpressure(): void;
}

export class WireOut<C extends Outgoing = Outgoing> {
  private readonly socket: Socket;
  private readonly owner: OutOwner<C>;
  private readonly blocked = new Set<C>();
  private pieces: Buffer[] = [];
  /** True while a later flush is certain. */
  private held = false;
  private left = WINDOW_INITIAL;
  /** True after a window opened since the last `resume`. */
  private opened = false;
  private tableBytes = TABLE_BYTES;
  private mustResetTable = false;
  /** Initial window of future streams. */
  windowInitial = WINDOW_INITIAL;

  constructor(socket: Socket, owner: OutOwner<C>) {
    this.socket = socket;
    this.owner = owner;
  }

  /** Collects all frames until `release`. */
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
    // Answers of one turn of the event loop are written together.
    this.held = true;
    process.nextTick(this.flushHeld);
  }

  private readonly flushHeld = (): void => {
    this.held = false;
    this.flush();
  };

  /** Writes all collected frames to the socket. */
  flush(): void {
    const { pieces, socket } = this;
    if (pieces.length === 0) return;
    this.pieces = [];
    if (socket.destroyed || socket.writableEnded) return;
    if (!socket.write(pieces.length === 1 ? (pieces[0] as Buffer) : Buffer.concat(pieces)))
      this.owner.onBackpressure();
  }

  headers(stream: number, block: Buffer, endStream: boolean): void {
    this.push(headerFrames(stream, this.withTable(block), endStream));
  }

  private withTable(block: Buffer): Buffer {
    if (!this.mustResetTable) return block;
    this.mustResetTable = false;
    return Buffer.concat([NO_TABLE, block]);
  }

  /** Records the client's table size. The server's header blocks never use the table. */
  setTableOffer(bytes: number): void {
    if (bytes < this.tableBytes) {
      this.mustResetTable = true;
      this.tableBytes = 0;
    }
  }

  /** Sends a whole answer. False: it waits for a window, and `onSent` follows. */
  answer(call: C, message: Uint8Array, ending: Buffer): boolean {
    const size = PREFIX_BYTES + message.length;
    if (
      size <= call.sendLeft &&
      size <= this.left &&
      size <= FRAME_BYTES_MAX &&
      ending.length <= FRAME_BYTES_MAX &&
      !this.mustResetTable
    ) {
      call.sendLeft -= size;
      this.left -= size;
      this.push(wholeAnswer(call.id, message, ending));
      return true;
    }
    this.headers(call.id, BEGINNING, false);
    return this.send(call, framedMessage(message), ending);
  }

  /** Sends bytes of messages, and the block that ends the call after the last bytes. False: they
   *  wait for a window. */
  send(call: C, bytes: Buffer, ending?: Buffer): boolean {
    const waits = call.unsent.length > 0;
    if (bytes.length > 0) call.unsent.push(bytes);
    call.ending = ending;
    if (!waits && this.sendUnsent(call)) return true;
    this.blocked.add(call);
    return false;
  }

  /** Sends DATA within the windows; true when none is left. */
  private sendUnsent(call: C): boolean {
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
      if (!this.sendUnsent(call)) continue;
      this.blocked.delete(call);
      this.owner.onSent(call);
    }
  }

  forget(call: C): void {
    this.blocked.delete(call);
  }

  /** Opens the window of the connection. False: it exceeds its maximum. */
  openConnectionWindow(bytes: number): boolean {
    this.left += bytes;
    this.opened = true;
    return this.left <= WINDOW_MAX;
  }

  openCallWindow(call: C, bytes: number): boolean {
    call.sendLeft += bytes;
    this.opened = true;
    return call.sendLeft <= WINDOW_MAX;
  }

  /** Sets the initial window of streams. False: a window exceeds its maximum. */
  setInitial(bytes: number, calls: Iterable<C>): boolean {
    const more = bytes - this.windowInitial;
    this.windowInitial = bytes;
    for (const call of calls) if (!this.openCallWindow(call, more)) return false;
    return true;
  }
}
