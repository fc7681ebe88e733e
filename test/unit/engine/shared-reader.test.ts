/** Reader of several windows: partitions that the windows find at different times, ends during a
 *  catch-up, and the time in which nothing is read for a window. */
import { describe, expect, it } from 'vitest';
import { loadWindowKernels } from '../../../src/addon/windows.ts';
import { type Job, watermarksOf } from '../../../src/engine/job.ts';
import { freshCells, type WatermarkGenerator } from '../../../src/engine/source/admission.ts';
import type { Bounds, EventRows, EventSource, Receipt } from '../../../src/engine/source/events.ts';
import { SharedReader } from '../../../src/engine/source/shared/reader.ts';
import type { WindowSource } from '../../../src/engine/source/shared/window-source.ts';
import { turn, until } from '../../wait.ts';

const KERNELS = loadWindowKernels('reference');
const JOB: Job = {
  ...{ topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition' },
  ...{ window: 'tumbling', sizeMs: 10 },
};
const START = 2;
const NEVER = Number.NEGATIVE_INFINITY;

/** Topic without records to return. Each read takes 50 ms of its clock. */
class EmptyTopic implements EventSource {
  partitionCount = START;
  readonly receipts: readonly Receipt[] = [];
  /** First offset of each partition that exists. */
  lows: number[] = [0, 0];
  ends: number[] = [-1, -1];
  readonly starts: (readonly number[])[] = [];
  readonly savings: (readonly number[])[] = [];
  nowMs = 0;

  async bounds(): Promise<readonly Bounds[]> {
    return this.lows.map((low) => ({ low, high: low }));
  }
  async added(): Promise<readonly number[]> {
    return this.lows.slice(this.partitionCount);
  }
  async start(offsets: readonly number[]): Promise<void> {
    this.starts.push(offsets);
    this.partitionCount = offsets.length;
    await turn();
  }
  async next(): Promise<EventRows | undefined> {
    this.nowMs += 50;
    await turn();
    return undefined;
  }
  endOf(partition: number): number {
    return this.ends[partition] as number;
  }
  saved(offsets: readonly number[]): void {
    this.savings.push(offsets);
  }
  async stop(): Promise<void> {}
}

/** Window that asks for rows until it leaves, as an engine does. */
class Asking {
  readonly source: WindowSource;
  readonly watermarks: WatermarkGenerator;
  /** Number of answers so far. */
  reads = 0;
  /** Work between two requests. */
  private work: (() => Promise<void>) | undefined;
  private isOver = false;
  private running: Promise<void> | undefined;

  constructor(reader: SharedReader, name: string) {
    this.watermarks = watermarksOf(JOB, KERNELS, START);
    this.source = reader.add({ name, watermarks: this.watermarks });
  }

  begin(): void {
    this.running = this.run();
  }

  /** Runs the work between two requests, and settles when the window has asked again. */
  async between(work: () => Promise<void>): Promise<void> {
    this.work = work;
    await until('the end of the work', () => this.work === undefined);
  }

  /** Starts to read added partitions, as the engine does with those that its check found. */
  add(lows: readonly number[]): Promise<void> {
    return this.between(async () => {
      for (const low of lows) this.watermarks.added(low);
      await this.source.start(this.watermarks.progress().map(({ offset }) => offset));
    });
  }

  async leave(): Promise<void> {
    this.isOver = true;
    await this.running;
  }

  private async run(): Promise<void> {
    while (!this.isOver) {
      await this.source.next(10);
      this.reads++;
      const { work } = this;
      if (work === undefined) continue;
      await work();
      this.work = undefined;
    }
    await this.source.stop();
  }
}

/** Windows over one reader, each restored at its own offsets. */
async function started(restored: readonly (readonly number[])[]) {
  const topic = new EmptyTopic();
  const clock = { monotonicMs: () => topic.nowMs };
  const reader = new SharedReader({ source: topic, drain: new AbortController().signal, clock });
  const windows = restored.map((_, at) => new Asking(reader, `w${at}`));
  for (const [at, { source, watermarks }] of windows.entries()) {
    const offsets = restored[at] as readonly number[];
    watermarks.restore(freshCells(offsets), NEVER, NEVER);
    await source.start(offsets);
  }
  for (const window of windows) window.begin();
  const leave = (): Promise<unknown> => Promise.all(windows.map((window) => window.leave()));
  return { topic, reader, windows: windows as [Asking, Asking], leave };
}

describe('partitions that windows find at different times', () => {
  it.each([
    ['first', [5, 4]],
    ['last', [4, 5]],
  ] as const)(
    'windows read the partitions that all of them have, if the %s one has found more',
    async (_place, counts) => {
      const { topic, reader, windows, leave } = await started([
        [0, 0],
        [0, 0],
      ]);
      await until('the first read', () => reader.isTogether);
      topic.lows = [0, 0, 7, 8, 9];
      topic.ends = [-1, -1, -1, -1, -1];
      await Promise.all(windows.map((window, at) => window.add(topic.lows.slice(START, counts[at]))));
      await until('the common partitions', () => topic.partitionCount === 4);
      const before = windows.map(({ reads }) => reads);
      await until('reads of both', () => windows.every(({ reads }, at) => reads > (before[at] ?? 0) + 3));
      expect(topic.starts).toEqual([
        [0, 0],
        [0, 0, 7, 8],
      ]);
      const found = await Promise.all(windows.map(({ source }) => source.added()));
      expect(found).toEqual(counts.map((count) => topic.lows.slice(count)));
      // The partition that the reader has not begun with has no known end.
      const [more, fewer] = counts[0] === 5 ? windows : [windows[1], windows[0]];
      expect(more.source.endOf(4)).toBe(-1);
      windows.forEach(({ source }, at) => {
        source.saved(topic.lows.slice(0, counts[at]));
      });
      expect(topic.savings).toEqual([[0, 0, 7, 8]]);
      await fewer.add([9]);
      await until('all partitions', () => topic.partitionCount === 5);
      expect(topic.starts.at(-1)).toEqual([0, 0, 7, 8, 9]);
      await leave();
    },
  );
});

it('windows that ask for the bounds meanwhile share the next question', async () => {
  const { topic, reader, windows, leave } = await started([
    [0, 0],
    [0, 0],
  ]);
  await until('the first read', () => reader.isTogether);
  const answers: Array<(bounds: readonly Bounds[]) => void> = [];
  topic.bounds = () => new Promise((resolve) => answers.push(resolve));
  const asked = [0, 1, 0].map((at) => (windows[at] as Asking).source.bounds());
  expect(answers).toHaveLength(1);
  answers[0]?.([{ low: 0, high: 1 }]);
  expect(await asked[0]).toEqual([{ low: 0, high: 1 }]);
  await until('the second question', () => answers.length === 2);
  answers[1]?.([{ low: 0, high: 2 }]);
  for (const one of asked.slice(1)) expect(await one).toEqual([{ low: 0, high: 2 }]);
  expect(answers).toHaveLength(2);
  await leave();
});

describe('a window that catches up', () => {
  it('a partition that is longer than a catch-up reads it has no known end', async () => {
    const { topic, reader, windows, leave } = await started([
      [0, 0],
      [40, 900],
    ]);
    const [behind, ahead] = windows;
    await until('a read of the window behind', () => behind.reads > 0);
    expect([reader.isTogether, ahead.reads]).toEqual([false, 0]);
    topic.ends = [50, 300];
    expect([behind.source.endOf(0), behind.source.endOf(1)]).toEqual([-1, 300]);
    // The reader itself needs the end: a catch-up may stop before its limit, at a transaction mark.
    topic.ends = [50, 900];
    await until('both windows at one position', () => reader.isTogether);
    expect(topic.starts).toEqual([
      [0, 0],
      [40, 900],
    ]);
    expect(behind.source.endOf(0)).toBe(50);
    await leave();
  });

  it('the time in which other windows catch up or work is no time of reading', async () => {
    const { topic, reader, windows, leave } = await started([
      [0, 0],
      [40, 900],
    ]);
    const [behind, ahead] = windows;
    await until('some reads of the window behind', () => behind.reads > 9);
    topic.ends = [40, 900];
    await until('both windows at one position', () => reader.isTogether && ahead.reads > 0);
    // At least ten reads of 50 ms were those of the other window alone.
    expect(ahead.source.input.takeWaitedMs()).toBeGreaterThanOrEqual(450);
    expect(behind.source.input.takeWaitedMs()).toBe(0);
    await behind.between(async () => {
      topic.nowMs += 30_000;
    });
    const { reads } = ahead;
    await until('the next reads', () => ahead.reads > reads + 1);
    expect(ahead.source.input.takeWaitedMs()).toBe(30_000);
    expect(behind.source.input.takeWaitedMs()).toBe(0);
    await leave();
  });
});
