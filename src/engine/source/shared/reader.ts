/** Reader that several windows share: each batch is fetched and decoded once, and lent to one
 *  window after the other.
 *
 *  Invariants: (1) all windows are at the same position while they read together: a batch is read
 *  when every window is done with the one before; (2) a window whose checkpoint is behind reads
 *  alone, and no further than the position of the others, before they continue; so no window gets
 *  a row twice or misses one; (3) after a drain began, no window gets rows, so all stop at the same
 *  position. */
import type { Clock } from '../../../core/clock.ts';
import type { Stage } from '../../stages.ts';
import type { Bounds, EventSource } from '../events.ts';
import type { EventInput } from '../input/port.ts';
import { WindowSource, type WindowSourceParts } from './window-source.ts';

export interface SharedReaderParts {
  readonly source: EventSource;
  /** Decoder of the source's records; absent: events have the fixed layout. */
  readonly input?: Omit<EventInput, 'decode'>;
  /** Aborted when the windows are to stop. */
  readonly drain: AbortSignal;
  readonly clock: Pick<Clock, 'monotonicMs'>;
}

interface CatchUp {
  readonly windows: readonly WindowSource[];
  readonly to: readonly number[];
}

/** Lets the event loop run other work: a turn of a window may take milliseconds. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const areEqual = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((offset, partition) => offset === b[partition]);

/** Number of partitions that every window has: each finds added ones with a query of its own. */
const commonCount = (windows: readonly WindowSource[]): number =>
  Math.min(...windows.map(({ partitionCount }) => partitionCount));

export class SharedReader {
  private readonly parts: SharedReaderParts;
  private readonly windows: WindowSource[] = [];
  private running: Promise<void> | undefined;
  /** False: the windows must be placed before the next read. */
  private isPlaced = false;
  private catchingUp: CatchUp | undefined;
  private firstBounds: Promise<readonly Bounds[]> | undefined;
  /** Question for the bounds that is in flight, and the one after it. */
  private asking: Promise<readonly Bounds[]> | undefined;
  private following: Promise<readonly Bounds[]> | undefined;
  private failure: { readonly thrown: unknown } | undefined;
  private readers: readonly WindowSource[] = [];

  constructor(parts: SharedReaderParts) {
    this.parts = parts;
  }

  /** True if the windows that have not left are at one position. */
  get isTogether(): boolean {
    return this.isPlaced && this.catchingUp === undefined;
  }

  /** Stage times of the source: the shared work counts for each window that reads. */
  readonly stages = {
    recordsReady: (askedMs: number, readyMs: number): void => {
      for (const { parts } of this.readers) parts.stages?.recordsReady(askedMs, readyMs);
    },
    enter: (stage: Stage): void => {
      for (const { parts } of this.readers) parts.stages?.enter(stage);
    },
  };

  /** Adds a window. Call it for every window before the first of them runs. */
  add(window: WindowSourceParts): WindowSource {
    const { source, input, clock } = this.parts;
    const added = new WindowSource(
      {
        source,
        input,
        nowMs: () => clock.monotonicMs(),
        bounds: () => this.bounds(),
        asked: () => {
          this.running ??= this.run();
        },
        placed: () => this.placed(),
        saved: () => this.saved(),
      },
      window,
    );
    this.windows.push(added);
    return added;
  }

  private get open(): readonly WindowSource[] {
    return this.windows.filter(({ isOpen }) => isOpen);
  }

  /** The windows of a bounded run end at the same offsets, so they share the first answer. */
  private bounds(): Promise<readonly Bounds[]> {
    if (this.running !== undefined) return this.currentBounds();
    this.firstBounds ??= this.parts.source.bounds();
    return this.firstBounds;
  }

  /** Asks for the bounds after this call. Windows that ask meanwhile share the next question: one
   *  takes as long as all partitions together. */
  private currentBounds(): Promise<readonly Bounds[]> {
    if (this.asking === undefined) {
      this.asking = this.parts.source.bounds().finally(() => {
        this.asking = undefined;
      });
      return this.asking;
    }
    this.following ??= this.asking
      .then(
        () => {},
        () => {},
      )
      .then(() => {
        this.following = undefined;
        return this.currentBounds();
      });
    return this.following;
  }

  /** A window has started, or has left. */
  private placed(): void {
    if (!this.isPlaced) return;
    // Partitions were added: the reader begins with them when every window has.
    const { open } = this;
    if (open.length > 0 && commonCount(open) > this.parts.source.partitionCount) this.isPlaced = false;
  }

  private saved(): void {
    const saved = this.open.map(({ savedOffsets }) => savedOffsets);
    const [first] = saved;
    if (first === undefined || saved.includes(undefined)) return;
    const all = saved as readonly (readonly number[])[];
    const common = first.slice(0, Math.min(...all.map(({ length }) => length)));
    this.parts.source.saved?.(common.map((_, p) => Math.min(...all.map((one) => one[p] as number))));
  }

  private async run(): Promise<void> {
    for (;;) {
      await Promise.all(this.windows.map((window) => window.whenFree()));
      const open = this.open;
      if (open.length === 0) return;
      if (this.failure !== undefined) for (const window of open) window.fail(this.failure.thrown);
      else if (this.parts.drain.aborted) for (const window of open) window.answer(undefined);
      else
        try {
          await this.read(open);
        } catch (thrown) {
          this.failure = { thrown };
        }
    }
  }

  private async read(open: readonly WindowSource[]): Promise<void> {
    const { source, input, clock } = this.parts;
    const readers = await this.place(open);
    this.readers = readers;
    const fromMs = clock.monotonicMs();
    const rows = await source.next(Math.max(...readers.map(({ waitMs }) => waitMs)));
    const readMs = clock.monotonicMs() - fromMs - (input?.takeWaitedMs() ?? 0);
    for (const { parts } of readers) parts.stages?.leave();
    if (this.parts.drain.aborted) return;
    for (const [at, window] of readers.entries()) {
      if (at > 0) await turn();
      await window.deliver(rows, readMs);
    }
  }

  /** Returns the windows that read next: those behind first, and those at one position together.
   *  Positions are compared in the partitions that all windows have; the reader begins with the
   *  others when every window has found them. */
  private async place(open: readonly WindowSource[]): Promise<readonly WindowSource[]> {
    const { source } = this.parts;
    for (;;) {
      if (this.catchingUp !== undefined) {
        const { windows, to } = this.catchingUp;
        const left = windows.filter((window) => window.isOpen && !window.hasRead(to));
        if (left.length > 0) return left;
        for (const window of windows) window.endCatchUp(to);
        this.catchingUp = undefined;
      }
      if (this.isPlaced) return open;
      const count = commonCount(open);
      const positions = open.map((window) => window.positions().slice(0, count));
      const [first = []] = positions;
      const to = first.map((_, p) => Math.max(...positions.map((one) => one[p] as number)));
      const behind = open.filter((_, at) => !areEqual(positions[at] as readonly number[], to));
      const [next] = behind;
      if (next === undefined) {
        await source.start(to);
        this.isPlaced = true;
        return open;
      }
      const from = positions[open.indexOf(next)] as readonly number[];
      const windows = behind.filter((window) => areEqual(window.positions().slice(0, count), from));
      for (const window of windows) window.catchUp(to);
      await source.start(from);
      this.catchingUp = { windows, to };
    }
  }
}
