/** TCP proxy between two processes that fails on demand: cut, delay, or half-open.
 *
 *  Invariants: (1) bytes of one direction leave in the order of their arrival, also when a delay
 *  ends; (2) what the proxy does depends only on the calls of its owner and on the bytes, never
 *  on a clock or a random number of its own; (3) a connection whose bytes were dropped is reset
 *  at the latest when the link heals, because its stream has a gap. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { Timers } from '../core/clock.ts';
import { LOOPBACK } from './ports.ts';

export interface ProxyTarget {
  readonly host: string;
  readonly port: number;
}

/** Effects of the last failure, as evidence that it met a connection. */
export interface ProxyEffects {
  /** Connections that the proxy ended, and connections that it refused. */
  readonly cut: number;
  /** Parts of the streams that left late. */
  readonly delayed: number;
  /** Bytes that never arrived. */
  readonly droppedBytes: number;
}

/** Unsent bytes of a direction above which its source is paused. */
const QUEUE_BYTES_MAX = 1024 * 1024;

/** One direction of a connection. */
class Flow {
  private readonly from: Socket;
  private readonly to: Socket;
  private readonly clock: Timers;
  private readonly queue: Array<{ readonly bytes: Buffer | undefined; readonly dueMs: number }> = [];
  private queuedBytes = 0;
  private isWaiting = false;

  constructor(from: Socket, to: Socket, clock: Timers) {
    this.from = from;
    this.to = to;
    this.clock = clock;
    to.on('drain', () => this.release());
  }

  /** Forwards bytes after the delay. @param bytes undefined: the end of the stream */
  forward(bytes: Buffer | undefined, delayMs: number): void {
    this.queue.push({ bytes, dueMs: this.clock.monotonicMs() + delayMs });
    this.queuedBytes += bytes?.length ?? 0;
    this.pump();
  }

  private pump(): void {
    if (this.isWaiting) return;
    for (let next = this.queue[0]; next !== undefined; next = this.queue[0]) {
      const waitMs = next.dueMs - this.clock.monotonicMs();
      if (waitMs > 0) {
        this.isWaiting = true;
        this.clock.after(
          waitMs,
          () => {
            this.isWaiting = false;
            this.pump();
          },
          'background',
        );
        break;
      }
      this.queue.shift();
      this.queuedBytes -= next.bytes?.length ?? 0;
      if (this.to.destroyed) continue;
      if (next.bytes === undefined) this.to.end();
      else this.to.write(next.bytes);
    }
    if (this.queuedBytes > QUEUE_BYTES_MAX || this.to.writableNeedDrain) this.from.pause();
    else this.release();
  }

  private release(): void {
    if (this.queuedBytes <= QUEUE_BYTES_MAX && this.from.isPaused()) this.from.resume();
  }
}

interface Pair {
  readonly outer: Socket;
  readonly inner: Socket;
  /** True: bytes of this connection were dropped. */
  hasGap: boolean;
}

export class TcpProxy {
  private readonly server: Server;
  private readonly clock: Timers;
  private readonly pairs = new Set<Pair>();
  private target: ProxyTarget | undefined;
  private isCut = false;
  private isHalfOpen = false;
  private delayMs = 0;
  private effectsNow = { cut: 0, delayed: 0, droppedBytes: 0 };

  private constructor(server: Server, clock: Timers) {
    this.server = server;
    this.clock = clock;
    server.on('connection', (outer) => this.accept(outer));
  }

  /** Listens, by default on a free port of 127.0.0.1. Until a target is set, connections are
   *  refused. */
  static async listen(
    clock: Timers,
    target?: ProxyTarget,
    at: ProxyTarget = { host: LOOPBACK, port: 0 },
  ): Promise<TcpProxy> {
    // An end of one direction must not end the other one.
    const server = createServer({ allowHalfOpen: true, noDelay: true });
    const proxy = new TcpProxy(server, clock);
    proxy.target = target;
    server.listen(at.port, at.host);
    await once(server, 'listening');
    server.unref();
    return proxy;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get connections(): number {
    return this.pairs.size;
  }

  get effects(): ProxyEffects {
    return { ...this.effectsNow };
  }

  setTarget(target: ProxyTarget): void {
    this.target = target;
  }

  /** Ports from which the target sees the open connections. */
  targetSidePorts(): readonly number[] {
    return [...this.pairs].flatMap(({ inner }) => inner.localPort ?? []);
  }

  /** Resets the open connections, and each new one until `heal`. */
  cut(): void {
    this.begin();
    this.isCut = true;
    this.effectsNow.cut = this.pairs.size;
    for (const pair of this.pairs) this.reset(pair);
  }

  /** Delays both directions of all connections until `heal`; bytes that wait then keep their
   *  delay. */
  delay(ms: number): void {
    this.begin();
    this.delayMs = ms;
  }

  /** Drops what the target sends until `heal`. Requests still arrive, so their outcome is
   *  unknown to the client, as when a host vanishes after it acted. */
  halfOpen(): void {
    this.begin();
    this.isHalfOpen = true;
  }

  /** Ends every failure, and the connections with a gap. */
  heal(): void {
    this.isCut = false;
    this.isHalfOpen = false;
    this.delayMs = 0;
    for (const pair of this.pairs) if (pair.hasGap) this.reset(pair);
  }

  private begin(): void {
    this.effectsNow = { cut: 0, delayed: 0, droppedBytes: 0 };
  }

  async close(): Promise<void> {
    const closed = once(this.server, 'close');
    this.server.close();
    for (const pair of this.pairs) this.end(pair);
    await closed;
  }

  private accept(outer: Socket): void {
    outer.on('error', () => {});
    if (this.isCut || this.target === undefined) {
      if (this.isCut) this.effectsNow.cut++;
      outer.resetAndDestroy();
      return;
    }
    const inner = connect({ ...this.target, allowHalfOpen: true, noDelay: true });
    const pair: Pair = { outer, inner, hasGap: false };
    this.pairs.add(pair);
    const toTarget = new Flow(outer, inner, this.clock);
    const toClient = new Flow(inner, outer, this.clock);
    outer.on('data', (bytes) => {
      // A target that has closed would answer with a reset.
      if (inner.destroyed) this.reset(pair);
      else this.pass(toTarget, bytes);
    });
    outer.on('end', () => toTarget.forward(undefined, this.delayMs));
    inner.on('data', (bytes) => {
      if (!this.isHalfOpen && !pair.hasGap) return this.pass(toClient, bytes);
      pair.hasGap = true;
      this.effectsNow.droppedBytes += bytes.length;
    });
    inner.on('end', () => {
      if (!this.isHalfOpen && !pair.hasGap) toClient.forward(undefined, this.delayMs);
      else pair.hasGap = true;
    });
    // A peer that resets, or that does not exist, is shown to the other peer.
    for (const socket of [outer, inner]) socket.on('error', () => this.reset(pair));
    outer.on('close', () => this.end(pair));
    inner.on('close', (failed) => {
      if (outer.writableFinished || failed) this.end(pair);
    });
  }

  private pass(flow: Flow, bytes: Buffer): void {
    if (this.delayMs > 0) this.effectsNow.delayed++;
    flow.forward(bytes, this.delayMs);
  }

  private reset(pair: Pair): void {
    if (!this.pairs.delete(pair)) return;
    for (const socket of [pair.outer, pair.inner]) socket.resetAndDestroy();
  }

  private end(pair: Pair): void {
    if (!this.pairs.delete(pair)) return;
    pair.outer.destroy();
    pair.inner.destroy();
  }
}
