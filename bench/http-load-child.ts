/** Child process of http-load.ts: receives a plan, sends a report, and ends. */
import { connect, type Socket } from 'node:net';
import { type LoadPlan, type LoadReport, type LoadRequest, NUMBER } from './http-load.ts';

/** Delay before a failed connection is reopened. */
const REOPEN_MS = 50;
/** Above this rate the clock is read in every turn of the event loop: a timer's millisecond
 *  resolution would dominate the measurement. */
const SPIN_RATE = 500;
const TICK_MS = 1;
/** Extension of a measured part without an answer or a failure: a machine that is paused during all
 *  of a short part has measured nothing. */
const SILENT_MS_MAX = 30_000;
const CRLF2 = Buffer.from('\r\n\r\n');

/** Builds the bytes of a request with its running number. */
function maker(request: LoadRequest, host: string): (n: number) => Buffer {
  const extra = Object.entries(request.headers ?? {}).map(([name, value]) => `${name}: ${value}\r\n`);
  const make = (n: number): Buffer => {
    const path = request.path.replaceAll(NUMBER, String(n));
    const body = request.body?.replaceAll(NUMBER, String(n));
    const length = body === undefined ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`;
    const head = `${request.method} ${path} HTTP/1.1\r\nHost: ${host}\r\n${extra.join('')}${length}\r\n`;
    return Buffer.from(head + (body ?? ''), 'utf8');
  };
  if (request.path.includes(NUMBER) || request.body?.includes(NUMBER) === true) return make;
  const fixed = make(0);
  return () => fixed;
}

interface Connection {
  socket: Socket | undefined;
  /** Bytes of an incomplete answer. */
  partial: Buffer | undefined;
  /** Index of the request in flight; -1: none. */
  index: number;
  startUs: number;
}

class Load {
  private readonly plan: LoadPlan;
  private readonly makers: ReadonlyArray<(n: number) => Buffer>;
  private readonly host: string;
  private readonly port: number;
  private readonly connections: Connection[] = [];
  private readonly free: Connection[] = [];
  /** Open model: due times of waiting requests. */
  private due: number[] = [];
  private dueAt = 0;
  private n: number;
  private readonly latencies: number[] = [];
  private readonly statuses: Record<string, number> = {};
  private readonly firstBodies: string[];
  private failures = 0;
  private answered = 0;
  private started = false;
  private measuring = false;
  private startUs = 0;
  private ended = false;
  private readonly done: (report: LoadReport) => void;

  constructor(plan: LoadPlan, done: (report: LoadReport) => void) {
    this.plan = plan;
    this.done = done;
    const url = new URL(plan.url);
    this.host = url.hostname.replace(/^\[|\]$/g, '');
    this.port = Number(url.port);
    this.makers = plan.requests.map((request) => maker(request, url.host));
    this.firstBodies = plan.requests.map(() => '');
    this.n = plan.firstNumber ?? 0;
  }

  private nowUs(): number {
    return performance.now() * 1000;
  }

  async run(): Promise<void> {
    const opened: Promise<void>[] = [];
    for (let i = 0; i < this.plan.connections; i++) {
      const connection: Connection = { socket: undefined, partial: undefined, index: -1, startUs: 0 };
      this.connections.push(connection);
      opened.push(new Promise((resolve) => this.open(connection, resolve)));
    }
    await Promise.all(opened);
    this.started = true;
    if (this.plan.ratePerSecond === undefined) {
      for (const connection of this.free.splice(0)) this.send(connection, this.nowUs());
    } else this.tick(this.plan.ratePerSecond);
    setTimeout(() => {
      this.measuring = true;
      this.startUs = this.nowUs();
      setTimeout(() => this.endAnswered(), this.plan.durationMs);
    }, this.plan.warmupMs);
  }

  private open(connection: Connection, opened: () => void): void {
    const socket = connect({ host: this.host, port: this.port, noDelay: true });
    connection.socket = socket;
    connection.partial = undefined;
    connection.index = -1;
    let up = false;
    socket.on('connect', () => {
      up = true;
      opened();
      this.idle(connection);
    });
    socket.on('data', (chunk) => this.receive(connection, chunk));
    socket.on('error', () => {});
    socket.on('close', () => {
      if (this.ended || connection.socket !== socket) return;
      this.failures++;
      const at = this.free.indexOf(connection);
      if (at >= 0) this.free.splice(at, 1);
      connection.index = -1;
      setTimeout(() => this.open(connection, up ? () => {} : opened), REOPEN_MS);
    });
  }

  /** Handles a connection without a request in flight. */
  private idle(connection: Connection): void {
    connection.index = -1;
    if (this.ended) return;
    // Closed model: connections wait until all are open.
    if (this.plan.ratePerSecond === undefined && this.started) this.send(connection, this.nowUs());
    else if (this.dueAt < this.due.length) this.send(connection, this.due[this.dueAt++] as number);
    else this.free.push(connection);
  }

  private send(connection: Connection, startUs: number): void {
    const n = this.n++;
    connection.index = n % this.makers.length;
    connection.startUs = startUs;
    connection.socket?.write((this.makers[connection.index] as (n: number) => Buffer)(n));
  }

  private tick(rate: number): void {
    const beginUs = this.nowUs();
    let made = 0;
    const step = (): void => {
      if (this.ended) return;
      const elapsedUs = this.nowUs() - beginUs;
      const wanted = Math.floor((elapsedUs * rate) / 1e6) + 1;
      for (; made < wanted; made++) {
        const dueUs = beginUs + (made * 1e6) / rate;
        const connection = this.free.pop();
        if (connection === undefined) this.due.push(dueUs);
        else this.send(connection, dueUs);
      }
      if (this.dueAt > 65_536) {
        this.due = this.due.slice(this.dueAt);
        this.dueAt = 0;
      }
      if (rate > SPIN_RATE) setImmediate(step);
      else setTimeout(step, TICK_MS);
    };
    step();
  }

  private receive(connection: Connection, chunk: Buffer): void {
    const bytes = connection.partial === undefined ? chunk : Buffer.concat([connection.partial, chunk]);
    const headEnd = bytes.indexOf(CRLF2);
    if (headEnd < 0) {
      connection.partial = bytes;
      return;
    }
    const head = bytes.toString('latin1', 0, headEnd);
    const status = head.slice(9, 12);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    const bodyAt = headEnd + CRLF2.length;
    const end = bodyAt + Number(length ?? 0);
    if (bytes.length < end) {
      connection.partial = bytes;
      return;
    }
    connection.partial = undefined;
    if (connection.index < 0 || bytes.length > end) {
      // Unexpected bytes: answers can no longer be matched with requests.
      connection.socket?.destroy();
      return;
    }
    if (this.firstBodies[connection.index] === '')
      this.firstBodies[connection.index] = bytes.subarray(bodyAt, end).toString('utf8');
    if (this.measuring) {
      this.answered++;
      this.statuses[status] = (this.statuses[status] ?? 0) + 1;
      this.latencies.push(this.nowUs() - connection.startUs);
      if (this.answered === this.plan.countMax) this.end();
    }
    this.idle(connection);
  }

  private endAnswered(): void {
    const silentMs = (this.nowUs() - this.startUs) / 1000 - this.plan.durationMs;
    const isSilent = this.answered === 0 && this.failures === 0;
    if (isSilent && silentMs < SILENT_MS_MAX) setTimeout(() => this.endAnswered(), TICK_MS);
    else this.end();
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    const seconds = (this.nowUs() - this.startUs) / 1e6;
    for (const connection of this.connections) connection.socket?.destroy();
    const sorted = Float64Array.from(this.latencies).sort();
    const at = (part: number): number =>
      sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
    this.done({
      answered: this.answered,
      seconds,
      ratePerSecond: this.answered / seconds,
      statuses: this.statuses,
      failures: this.failures,
      unsent: this.due.length - this.dueAt,
      nextNumber: this.n,
      latencyUs: { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1) },
      firstBodies: this.firstBodies,
    });
  }
}

process.once('message', (plan) => {
  const load = new Load(plan as LoadPlan, (report) => {
    process.send?.(report, () => process.disconnect());
  });
  void load.run();
});
process.once('disconnect', () => process.exit(0));
