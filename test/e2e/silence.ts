/** Controls for tests of what a process says of its servers: whether PostgreSQL or a broker left
 *  somebody without an answer. A machine may let any of them stand still; who then says so is
 *  right, and who is late for it is not slow. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll } from 'vitest';
import type { Cancel } from '../../src/core/clock.ts';
import { pause, realClock } from '../wait.ts';

/** Unanswered for so long somebody was silent. */
const SILENT_MS = 1000;
const TICK_MS = 100;

interface Stretch {
  readonly fromMs: number;
  toMs: number;
}

/** Asks all the time. Its clock counts ticks: where this process itself stood still, that is one
 *  tick of silence. */
class Probe {
  private readonly silences: Array<Stretch & { ms: number }> = [];
  private readonly ask: () => Promise<unknown>;
  private readonly stopTicks: Cancel;
  private readonly over: Promise<void>;
  private askedMs: number | undefined;
  private ticks = 0;
  private closed = false;

  constructor(ask: () => Promise<unknown>) {
    this.ask = ask;
    this.stopTicks = realClock.every(TICK_MS, () => this.tick());
    this.over = this.run();
  }

  /** How long nobody answered, in all, of what ended after `sinceMs`. */
  silentMs(sinceMs: number): number {
    return this.silences.reduce((sum, { toMs, ms }) => sum + (toMs >= sinceMs ? ms : 0), 0);
  }

  close(): Promise<void> {
    this.closed = true;
    this.stopTicks();
    return this.over;
  }

  private async run(): Promise<void> {
    while (!this.closed) {
      this.askedMs ??= realClock.monotonicMs();
      const answered = await this.ask().then(
        () => true,
        () => false,
      );
      if (answered) {
        this.askedMs = undefined;
        this.ticks = 0;
      }
      await pause(TICK_MS);
    }
  }

  private tick(): void {
    if (this.askedMs === undefined) return;
    this.ticks++;
    const ms = this.ticks * TICK_MS;
    if (ms < SILENT_MS) return;
    const toMs = realClock.monotonicMs();
    const last = this.silences.at(-1);
    if (last?.fromMs === this.askedMs) Object.assign(last, { toMs, ms });
    else this.silences.push({ fromMs: this.askedMs, toMs, ms });
  }
}

/** Of no topic: size i32 | key i16 | version i16 | correlation i32 | client id str | topics [str]
 *  (Source: Kafka protocol guide, Metadata version 1). */
function metadataRequest(): Buffer {
  const out = Buffer.alloc(18);
  out.writeInt32BE(out.length - 4, 0);
  out.writeInt16BE(3, 4);
  out.writeInt16BE(1, 6);
  return out;
}

/** A broker, by what its clients ask to find out whether it is there. */
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

/** As a simple query, which is how one without parameters goes. */
const QUESTION = Buffer.from('SELECT 1\0');
/** ReadyForQuery outside of a transaction: the last of an answer. */
const ANSWERED = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** Stands before PostgreSQL and takes the time of two answers on every connection: to its start and
 *  to SELECT 1, which wait for nothing but the server. A backend is a process of its own, so that
 *  only this connection tells whether it stood still. */
export async function watchedPostgres(url: string) {
  const target = new URL(url);
  const silences: Stretch[] = [];
  const asked = new Map<Socket, number>();
  const open = new Set<Socket>();
  const answered = (near: Socket): void => {
    const fromMs = asked.get(near);
    asked.delete(near);
    const toMs = realClock.monotonicMs();
    if (fromMs !== undefined && toMs - fromMs >= SILENT_MS) silences.push({ fromMs, toMs });
  };
  const server: Server = createServer((near) => {
    const far = connect({ host: target.hostname, port: Number(target.port) });
    asked.set(near, realClock.monotonicMs());
    near.on('data', (chunk) => {
      if (!asked.has(near) && chunk.includes(QUESTION)) asked.set(near, realClock.monotonicMs());
    });
    let tail: Buffer = Buffer.alloc(0);
    far.on('data', (chunk) => {
      tail = Buffer.concat([tail, chunk]).subarray(-ANSWERED.length);
      if (tail.equals(ANSWERED)) answered(near);
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
    /** Whether an answer was late, or still is, since then. */
    wasSilent: (sinceMs: number): boolean =>
      silences.some(({ toMs }) => toMs >= sinceMs) ||
      [...asked.values()].some((fromMs) => realClock.monotonicMs() - fromMs >= SILENT_MS),
  };
}
