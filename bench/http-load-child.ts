/** The process behind http-load.ts: takes one plan, sends one report, ends. */
import { connect, type Socket } from 'node:net';
import { type LoadPlan, type LoadReport, type LoadRequest, NUMBER } from './http-load.ts';

/** A connection that failed is opened again after this. */
const REOPEN_MS = 50;
/** Above this rate the clock is read in every turn of the event loop: a timer's millisecond would
 *  be most of what is measured. */
const SPIN_RATE = 500;
const TICK_MS = 1;
/** How long a measured part without an answer or a failure goes on: a machine that is away for the
 *  whole of a short one has measured nothing. */
const SILENT_MS_MAX = 30_000;
const CRLF2 = Buffer.from('\r\n\r\n');

/** Makes the bytes of a request; the running number is put in where the text asks for it. */
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

interface Line {
  socket: Socket | undefined;
  /** Bytes of an answer that is not complete. */
  partial: Buffer | undefined;
  /** Which request is under way; -1: none. */
  index: number;
  startUs: number;
}

class Load {
  private readonly plan: LoadPlan;
  private readonly makers: ReadonlyArray<(n: number) => Buffer>;
  private readonly host: string;
  private readonly port: number;
  private readonly lines: Line[] = [];
  private readonly free: Line[] = [];
  /** Open model: when each waiting request fell due. */
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
      const line: Line = { socket: undefined, partial: undefined, index: -1, startUs: 0 };
      this.lines.push(line);
      opened.push(new Promise((resolve) => this.open(line, resolve)));
    }
    await Promise.all(opened);
    this.started = true;
    if (this.plan.ratePerSecond === undefined) {
      for (const line of this.free.splice(0)) this.send(line, this.nowUs());
    } else this.tick(this.plan.ratePerSecond);
    setTimeout(() => {
      this.measuring = true;
      this.startUs = this.nowUs();
      setTimeout(() => this.endAnswered(), this.plan.durationMs);
    }, this.plan.warmupMs);
  }

  private open(line: Line, opened: () => void): void {
    const socket = connect({ host: this.host, port: this.port, noDelay: true });
    line.socket = socket;
    line.partial = undefined;
    line.index = -1;
    let up = false;
    socket.on('connect', () => {
      up = true;
      opened();
      this.idle(line);
    });
    socket.on('data', (chunk) => this.receive(line, chunk));
    socket.on('error', () => {});
    socket.on('close', () => {
      if (this.ended || line.socket !== socket) return;
      this.failures++;
      const at = this.free.indexOf(line);
      if (at >= 0) this.free.splice(at, 1);
      line.index = -1;
      setTimeout(() => this.open(line, up ? () => {} : opened), REOPEN_MS);
    });
  }

  /** A connection has nothing under way. */
  private idle(line: Line): void {
    line.index = -1;
    if (this.ended) return;
    // Closed model: until every connection stands, those that do wait.
    if (this.plan.ratePerSecond === undefined && this.started) this.send(line, this.nowUs());
    else if (this.dueAt < this.due.length) this.send(line, this.due[this.dueAt++] as number);
    else this.free.push(line);
  }

  private send(line: Line, startUs: number): void {
    const n = this.n++;
    line.index = n % this.makers.length;
    line.startUs = startUs;
    line.socket?.write((this.makers[line.index] as (n: number) => Buffer)(n));
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
        const line = this.free.pop();
        if (line === undefined) this.due.push(dueUs);
        else this.send(line, dueUs);
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

  private receive(line: Line, chunk: Buffer): void {
    const bytes = line.partial === undefined ? chunk : Buffer.concat([line.partial, chunk]);
    const headEnd = bytes.indexOf(CRLF2);
    if (headEnd < 0) {
      line.partial = bytes;
      return;
    }
    const head = bytes.toString('latin1', 0, headEnd);
    const status = head.slice(9, 12);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    const bodyAt = headEnd + CRLF2.length;
    const end = bodyAt + Number(length ?? 0);
    if (bytes.length < end) {
      line.partial = bytes;
      return;
    }
    line.partial = undefined;
    if (line.index < 0 || bytes.length > end) {
      // Nobody asked for these bytes: the answers cannot be told apart any more.
      line.socket?.destroy();
      return;
    }
    if (this.firstBodies[line.index] === '')
      this.firstBodies[line.index] = bytes.subarray(bodyAt, end).toString('utf8');
    if (this.measuring) {
      this.answered++;
      this.statuses[status] = (this.statuses[status] ?? 0) + 1;
      this.latencies.push(this.nowUs() - line.startUs);
      if (this.answered === this.plan.countMax) this.end();
    }
    this.idle(line);
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
    for (const line of this.lines) line.socket?.destroy();
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
