/** The sink writer: order, bounded copies, several sinks, unreachable and failing sinks, and the
 *  release of firings. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../src/core/errors.ts';
import { silentLogger } from '../../../src/core/log.ts';
import type { WindowSink } from '../../../src/engine/output/sink/port.ts';
import {
  SINK_FIRINGS_WAITING_MAX,
  SINK_ROWS_WAITING_MAX,
  SinkWriter,
  type SinkWriterParts,
} from '../../../src/engine/output/sink/writer.ts';
import { FrontierTimes } from '../../../src/engine/state/reached.ts';
import type { FiredBounds, FiredPage } from '../../../src/engine/window/firing.ts';
import {
  manyRows,
  pageOf,
  sessionBounds,
  TestFiring,
  textsOf,
  windowBounds,
} from '../../contract/fired-kit.ts';
import { tickingClock } from '../../property/engine-kit.ts';

class ScriptedSink implements WindowSink {
  readonly name: string;
  readonly writeRowsMax: number;
  /** Start and rows of each page, for each write. */
  readonly written: (readonly (readonly [number, number])[])[] = [];
  readonly texts: string[] = [];
  readonly failures: unknown[] = [];
  /** While this promise is set, a write waits for it. */
  held: Promise<void> | undefined;

  constructor(name = 'scripted', writeRowsMax = 100) {
    this.name = name;
    this.writeRowsMax = writeRowsMax;
  }
  async migrate(): Promise<void> {}
  async check(): Promise<void> {}
  async write(pages: readonly FiredPage[]): Promise<void> {
    await Promise.resolve();
    if (this.failures.length > 0) throw this.failures.shift();
    await this.held;
    this.written.push(
      pages.map(({ bounds, rowCount }) => [bounds.kind === 'window' ? bounds.start : Number.NaN, rowCount]),
    );
    this.texts.push(...textsOf(pages));
  }
  async *read(): AsyncIterable<never> {}
}

const page = (start: number, rowCount: number): FiredPage => ({
  bounds: windowBounds(start, start + 10),
  rows: manyRows(Math.max(1, rowCount), start + 1),
  rowCount,
});
const firing = (start: number, rowCount: number, options = {}): TestFiring =>
  new TestFiring(page(start, rowCount), options);

function writerOn(sinks: readonly WindowSink[], over: Partial<SinkWriterParts> = {}): SinkWriter {
  return new SinkWriter({
    sinks,
    clock: tickingClock(),
    log: silentLogger,
    sleep: async () => {},
    onWritten: () => {},
    ...over,
  });
}

const forever = new AbortController().signal;

/** Sink whose writes wait until `release`. */
const held = (writeRowsMax: number): { sink: ScriptedSink; release: () => void } => {
  const sink = new ScriptedSink('held', writeRowsMax);
  let release = (): void => {};
  sink.held = new Promise((resolve) => {
    release = resolve;
  });
  return { sink, release };
};

describe('sink writer', () => {
  it('the writer writes in firing order, small firings together and large firings in parts', async () => {
    const sink = new ScriptedSink();
    const writer = writerOn([sink]);
    const firings = [firing(0, 2), firing(10, 3), firing(20, 205), firing(30, 1)];
    writer.offer(firings.slice(0, 1));
    writer.offer(firings.slice(1));
    expect(writer.waitingRows).toBe(211);
    await writer.flushed();
    expect(sink.written.flat().reduce((rows, [, count]) => rows + count, 0)).toBe(211);
    for (const write of sink.written)
      expect(write.reduce((rows, [, count]) => rows + count, 0)).toBeLessThanOrEqual(100);
    expect(sink.written.length).toBeLessThanOrEqual(4);
    expect(sink.texts).toEqual(textsOf([page(0, 2), page(10, 3), page(20, 205), page(30, 1)]));
    expect(firings.map((one) => one.closed)).toEqual([1, 1, 1, 1]);
    expect(writer.waitingRows).toBe(0);
    expect(writer.bytes).toBeLessThanOrEqual(2 * 100 * 64);
  });

  it('the writer reads a firing in pieces of any size, and a firing with fewer rows than announced', async () => {
    const sink = new ScriptedSink();
    const writer = writerOn([sink]);
    const sessions = new TestFiring(
      { bounds: sessionBounds(5), rows: manyRows(30), rowCount: 30 },
      { readMax: 7, rowsMax: 64 },
    );
    writer.offer([sessions, firing(0, 0), firing(10, 12, { readMax: 1, rowsMax: 300 })]);
    await writer.flushed();
    expect(sink.texts).toHaveLength(42);
    expect(writer.waitingRows).toBe(0);
    expect(sessions.closed).toBe(1);
  });

  it('a sink of whole windows hears of the end of each firing after its last rows, until it succeeds', async () => {
    const ends: string[] = [];
    const published: number[] = [];
    let failures = 2;
    class WholeSink extends ScriptedSink {
      async finish(ended: readonly FiredBounds[]): Promise<void> {
        if (failures-- > 0) throw coreError('unreachable', 'the disk is full');
        const rows = this.written.flat().reduce((sum, [, count]) => sum + count, 0);
        for (const bounds of ended)
          ends.push(`${bounds.kind === 'window' ? bounds.start : 'x'} after ${rows}`);
      }
    }
    const firings = [firing(0, 2), firing(10, 250), firing(20, 0), firing(30, 100)];
    const closedAtEnd: number[] = [];
    const sink = new WholeSink();
    const writer = writerOn([sink, new ScriptedSink('rows')], {
      onPage: ({ rowCount }) => {
        published.push(rowCount);
        closedAtEnd.push(firings.filter(({ closed }) => closed > 0).length);
      },
    });
    writer.offer(firings);
    await writer.flushed();
    expect(ends.map((end) => end.split(' ')[0])).toEqual(['0', '10', '20', '30']);
    expect(Number(ends[0]?.split(' ')[2])).toBeGreaterThanOrEqual(2);
    expect(Number(ends[1]?.split(' ')[2])).toBeGreaterThanOrEqual(252);
    expect(ends.at(-1)).toBe('30 after 352');
    // Pages are published once they are durable, before their firing is closed.
    expect(published.reduce((sum, rows) => sum + rows, 0)).toBe(352);
    expect(closedAtEnd[0]).toBe(0);
    expect(firings.every(({ closed }) => closed === 1)).toBe(true);
  });

  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  it('the writer reads the next rows while the previous rows are written, and no further rows', async () => {
    const { sink, release } = held(10);
    const writer = writerOn([sink]);
    const one = firing(0, 35);
    const read = one.read.bind(one);
    let rowsRead = 0;
    one.read = async (into) => {
      const rows = await read(into);
      rowsRead += rows;
      return rows;
    };
    writer.offer([one]);
    await turn();
    expect([rowsRead, sink.written.length, one.closed, writer.waitingRows]).toEqual([20, 0, 0, 35]);
    release();
    await writer.flushed();
    expect(sink.written.map(([part]) => part?.[1])).toEqual([10, 10, 10, 5]);
    expect(sink.texts).toEqual(textsOf([page(0, 35)]));
    expect(one.closed).toBe(1);
  });

  it('the writer writes the rows read before a failed firing, and closes no firing that is being read', async () => {
    const { sink, release } = held(10);
    const writer = writerOn([sink]);
    const [one, broken] = [firing(0, 10), firing(10, 5)];
    let fail = (_: Error): void => {};
    broken.read = () =>
      new Promise((_, reject) => {
        fail = reject;
      });
    writer.offer([one, broken]);
    const flushed = expect(writer.flushed()).rejects.toMatchObject({ code: 'sink_failed' });
    await turn();
    release();
    await turn();
    expect([sink.texts.length, one.closed, broken.closed]).toEqual([10, 0, 0]);
    writer.stop();
    await turn();
    expect(broken.closed).toBe(0);
    fail(new Error('the run is gone'));
    await flushed;
    await turn();
    expect([one.closed, broken.closed]).toEqual([1, 1]);
  });

  it('rows are durable when every sink has them, and a firing is closed only then', async () => {
    const [first, second] = [new ScriptedSink('first', 50), new ScriptedSink('second', 1000)];
    let release = (): void => {};
    second.held = new Promise((resolve) => {
      release = resolve;
    });
    const writer = writerOn([first, second]);
    const one = firing(0, 60);
    writer.offer([one]);
    let flushed = false;
    const end = writer.flushed().then(() => {
      flushed = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect([first.texts.length, second.texts.length, one.closed, flushed]).toEqual([50, 0, 0, false]);
    expect(writer.waitingRows).toBe(60);
    release();
    await end;
    expect([first.texts, one.closed]).toEqual([second.texts, 1]);
  });

  it('the writer retries an unreachable sink, writes nothing twice to the others, and is not ready meanwhile', async () => {
    const [sink, other] = [new ScriptedSink(), new ScriptedSink('other')];
    sink.failures.push(coreError('unreachable', 'away'), coreError('unreachable', 'away'));
    const seen: boolean[] = [];
    const writer: SinkWriter = writerOn([sink, other], {
      sleep: async () => {
        seen.push(writer.ready);
      },
    });
    writer.offer([firing(0, 1)]);
    await writer.flushed();
    expect(seen).toEqual([false, false]);
    expect(writer.ready).toBe(true);
    expect([sink.written.length, other.written.length]).toEqual([1, 1]);
  });

  it('any other sink failure ends the run and releases the waiting firings', async () => {
    const sink = new ScriptedSink();
    sink.failures.push(new Error('no such column'));
    const writer = writerOn([sink]);
    const firings = [firing(0, 1), firing(10, 200)];
    writer.offer(firings);
    await expect(writer.flushed()).rejects.toThrow('no such column');
    await expect(writer.room(forever)).rejects.toThrow('no such column');
    const late = firing(20, 1);
    writer.offer([late]);
    expect([...firings, late].map((one) => one.closed)).toEqual([1, 1, 1]);
    expect(writer.waitingRows).toBe(0);
  });

  it('the run ends when a firing cannot be read', async () => {
    const sink = new ScriptedSink();
    const writer = writerOn([sink]);
    const broken = firing(0, 5);
    broken.read = () => Promise.reject(new Error('the run is gone'));
    writer.offer([broken]);
    await expect(writer.flushed()).rejects.toThrow('the run is gone');
  });

  it('each of several sessions that fired together is timed from the watermark move that made it due', async () => {
    const reported: (readonly [number, number])[] = [];
    const clock = { wallNowMs: () => 0, monotonicMs: () => 5000 };
    const writer = writerOn([new ScriptedSink()], {
      clock,
      onWritten: (rows, seconds) => reported.push([rows, seconds]),
    });
    const times = new FrontierTimes();
    // Moves within 10 ms count as one.
    for (const [frontier, atMs] of [
      [20, 1000],
      [30, 1009],
      [40, 2000],
      [90, 3000],
    ] as const)
      times.note(frontier, atMs);
    const bounds = { kind: 'sessions', gapMs: 10 } as const;
    const rows = [5, 20, 21, 30, 31].map((last, i) => ({
      accountId: BigInt(i),
      start: 0n,
      last: BigInt(last),
    }));
    const page = pageOf(bounds, rows);
    writer.offer([new TestFiring(page, { firedAtMs: 4000, reached: times.take(40, 4000) })]);
    // The move to 90 reached the remaining sessions.
    writer.offer([
      new TestFiring(pageOf(bounds, rows.slice(4)), { firedAtMs: 4500, reached: times.take(50, 4500) }),
    ]);
    await writer.flushed();
    expect(reported).toEqual([
      [2, 4],
      [2, 3],
      [1, 1],
      [1, 2],
    ]);
  });

  it('the writer reports rows and the seconds since they fired, for each firing of a write', async () => {
    const reported: (readonly [number, number])[] = [];
    const clock = { wallNowMs: () => 0, monotonicMs: () => 5000 };
    const writer = writerOn([new ScriptedSink()], {
      clock,
      onWritten: (rows, seconds) => reported.push([rows, seconds]),
    });
    writer.offer([firing(0, 3, { firedAtMs: 4000 }), firing(10, 150, { firedAtMs: 4500 })]);
    await writer.flushed();
    expect(reported[0]).toEqual([3, 1]);
    expect(reported.slice(1).every(([, seconds]) => seconds === 0.5)).toBe(true);
    expect(reported.reduce((rows, [count]) => rows + count, 0)).toBe(153);
  });
});

describe('back-pressure of the writer', () => {
  /** Firing that announces many rows but has few in memory. */
  const announcing = (rowsMax: number): TestFiring => firing(0, 3, { rowsMax });

  it('reading continues while one firing of any size waits, and pauses when more rows wait than the limit', async () => {
    const { sink, release } = held(10);
    const writer = writerOn([sink]);
    writer.offer([announcing(3 * SINK_ROWS_WAITING_MAX)]);
    await writer.room(forever);
    writer.offer([announcing(1)]);
    let isFree = false;
    const room = writer.room(forever).then(() => {
      isFree = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isFree).toBe(false);
    release();
    await room;
    await writer.flushed();
    expect(writer.waitingRows).toBe(0);
  });

  it('reading pauses when more firings wait than the limit, however small they are', async () => {
    const { sink, release } = held(10);
    const writer = writerOn([sink]);
    writer.offer(Array.from({ length: SINK_FIRINGS_WAITING_MAX + 1 }, (_, i) => firing(i, 1)));
    const drain = new AbortController();
    let isFree = false;
    const room = writer.room(drain.signal).then(() => {
      isFree = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isFree).toBe(false);
    // A drain ends the wait for room.
    drain.abort();
    await room;
    release();
    await writer.flushed();
    expect(sink.texts).toHaveLength(SINK_FIRINGS_WAITING_MAX + 1);
  });
});

describe('end with waiting results', () => {
  it('a stopped writer does not report waiting results as durable, and closes their firings', async () => {
    const writer = writerOn([new ScriptedSink()]);
    const firings = [firing(0, 100), firing(10, 1)];
    writer.offer(firings);
    const flushed = writer.flushed();
    writer.stop();
    await expect(flushed).rejects.toMatchObject({ code: 'sink_failed' });
    await new Promise((resolve) => setImmediate(resolve));
    expect(firings.map((one) => one.closed)).toEqual([1, 1]);
  });

  it('a stopped writer does not wait for an unreachable sink', async () => {
    const sink = new ScriptedSink();
    for (let i = 0; i < 1000; i++) sink.failures.push(coreError('unreachable', 'away'));
    const writer = writerOn([sink], { sleep: () => new Promise((resolve) => setImmediate(resolve)) });
    writer.offer([firing(0, 1)]);
    const flushed = writer.flushed();
    setImmediate(() => writer.stop());
    await expect(flushed).rejects.toMatchObject({ code: 'sink_failed' });
  });
});
