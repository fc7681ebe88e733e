/** Control probes for tests of readiness. They record when PostgreSQL or a broker left a client
 *  without an answer: on a busy machine any server may stall, and a process that reports the stall
 *  is right. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll } from 'vitest';
import type { Cancel } from '../../src/core/clock.ts';
import { pause, realClock } from '../wait.ts';

/** A server that gives no answer for this time counts as silent, in ms. */
const SILENT_MS = 1000;
const TICK_MS = 100;

interface Interval {
  readonly fromMs: number;
  toMs: number;
}

/** Sends requests all the time. Its clock counts ticks, so that a stall of this process counts as
 *  one tick of silence. */
class Probe {
  private readonly silences: Array<Interval & { ms: number }> = [];
  private readonly ask: () => Promise<unknown>;
  private readonly stopTicks: Cancel;
  private readonly ended: Promise<void>;
  private pendingSinceMs: number | undefined;
  private ticks = 0;
  private closed = false;

  constructor(ask: () => Promise<unknown>) {
    this.ask = ask;
    this.stopTicks = realClock.every(TICK_MS, () => this.tick());
    this.ended = this.run();
  }

  /** Returns the total time without an answer, over the silences that ended after `sinceMs`. */
  silentMs(sinceMs: number): number {
    return this.silences.reduce((sum, { toMs, ms }) => sum + (toMs >= sinceMs ? ms : 0), 0);
  }

  close(): Promise<void> {
    this.closed = true;
    this.stopTicks();
    return this.ended;
  }

  private async run(): Promise<void> {
    while (!this.closed) {
      this.pendingSinceMs ??= realClock.monotonicMs();
      const answered = await this.ask().then(
        () => true,
        () => false,
      );
      if (answered) {
        this.pendingSinceMs = undefined;
        this.ticks = 0;
      }
      await pause(TICK_MS);
    }
  }

  private tick(): void {
    if (this.pendingSinceMs === undefined) return;
    this.ticks++;
    const ms = this.ticks * TICK_MS;
    if (ms < SILENT_MS) return;
    const toMs = realClock.monotonicMs();
    const last = this.silences.at(-1);
    if (last?.fromMs === this.pendingSinceMs) Object.assign(last, { toMs, ms });
    else this.silences.push({ fromMs: this.pendingSinceMs, toMs, ms });
  }
}

/** Encodes a Metadata request for no topic: size i32 | key i16 | version i16 | correlation i32 |
 *  client id str | topics [str] (Source: Kafka protocol guide, Metadata version 1). */
function metadataRequest(): Buffer {
  const out = Buffer.alloc(18);
  out.writeInt32BE(out.length - 4, 0);
  out.writeInt16BE(3, 4);
  out.writeInt16BE(1, 6);
  return out;
}

/** Probes a broker with the request by which its clients check that it is up. */
export function brokerProbe(brokers: string): Probe {
  const [, host, port] = /^(.+):(\d+)$/.exec(brokers.split(',')[0] as string) ?? [];
  const request = metadataRequest();
  return new Probe(
    () =>
      new Promise<void>((resolve, reject) => {
        const socket = connect({ host: host as string, port: Number(port) }, () => socket.write(request));
        socket.once('data', () => {
          resolve();
          socket.destroy();
        });
        socket.once('error', reject);
        socket.once('close', () => reject(new Error('closed')));
      }),
  );
}

/** Text of a simple query, the form of a query without parameters. */
const QUERY = Buffer.from('SELECT 1\0');
/** ReadyForQuery outside of a transaction: the last message of an answer. */
const READY_FOR_QUERY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** Proxies PostgreSQL and times two answers on each connection: to its startup and to SELECT 1,
 *  which depend on the server alone. Each connection has its own backend process, so only the
 *  connection itself shows whether its backend stalled. */
export async function watchedPostgres(url: string) {
  const target = new URL(url);
  const silences: Interval[] = [];
  const pendingSince = new Map<Socket, number>();
  const open = new Set<Socket>();
  const answered = (near: Socket): void => {
    const fromMs = pendingSince.get(near);
    pendingSince.delete(near);
    const toMs = realClock.monotonicMs();
    if (fromMs !== undefined && toMs - fromMs >= SILENT_MS) silences.push({ fromMs, toMs });
  };
  const server: Server = createServer((near) => {
    const far = connect({ host: target.hostname, port: Number(target.port) });
    pendingSince.set(near, realClock.monotonicMs());
    near.on('data', (chunk) => {
      if (!pendingSince.has(near) && chunk.includes(QUERY)) pendingSince.set(near, realClock.monotonicMs());
    });
    let tail: Buffer = Buffer.alloc(0);
    far.on('data', (chunk) => {
      tail = Buffer.concat([tail, chunk]).subarray(-READY_FOR_QUERY.length);
      if (tail.equals(READY_FOR_QUERY)) answered(near);
    });
    for (const socket of [near, far]) {
      open.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => {});
      socket.on('close', () => {
        open.delete(socket);
        answered(near);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  afterAll(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  const through = new URL(url);
  through.hostname = '127.0.0.1';
  through.port = String((server.address() as { port: number }).port);
  return {
    url: through.toString(),
    /** True if an answer was late since `sinceMs`, or is still missing. */
    wasSilent: (sinceMs: number): boolean =>
      silences.some(({ toMs }) => toMs >= sinceMs) ||
      [...pendingSince.values()].some((fromMs) => realClock.monotonicMs() - fromMs >= SILENT_MS),
  };
}
