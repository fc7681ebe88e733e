/** Source of one window of a set: the rows of a reader that several windows share.
 *
 *  Each window has a position of its own, because each has a checkpoint of its own. Rows are
 *  borrowed from the reader for one turn: from the answer to `next` until the window asks again. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { engineError } from '../../errors.ts';
import type { KeyDictionary } from '../../keys/dictionary.ts';
import type { Stages } from '../../stages.ts';
import type { WatermarkGenerator } from '../admission.ts';
import type { Bounds, EventRows, EventSource, Receipt } from '../events.ts';
import { type InputDefinition, keyTypeOf, withAggregates } from '../input/definition.ts';
import type { EventInput } from '../input/port.ts';
import { EventWords } from '../input/words.ts';
import { OwnValues } from './own-values.ts';

export interface WindowSourceParts {
  /** Name of the window, for messages. */
  readonly name: string;
  /** Aggregates of the window; absent: count, sum, min and max of the value. */
  readonly aggregate?: string | undefined;
  readonly watermarks: Pick<WatermarkGenerator, 'partitionCount' | 'position' | 'limitOf' | 'setLimit'>;
  /** Interns keys that are no integers under the ids of this window. */
  readonly keys?: Pick<KeyDictionary, 'isOpen' | 'open' | 'intern'>;
  readonly stages?: Pick<Stages, 'recordsReady' | 'enter' | 'leave'>;
}

/** Part of a reader that a window needs. */
export interface Reader {
  readonly source: EventSource;
  /** Monotonic time. */
  nowMs(): number;
  readonly input: Pick<EventInput, 'definition' | 'resume' | 'isReady' | 'describe'> | undefined;
  bounds(): Promise<readonly Bounds[]>;
  asked(): void;
  placed(): void;
  saved(): void;
}

interface Ask {
  readonly waitMs: number;
  /** Monotonic ms of the request. */
  readonly atMs: number;
  readonly resolve: (rows: EventRows | undefined) => void;
  readonly reject: (error: unknown) => void;
}

export class WindowSource implements EventSource {
  readonly parts: WindowSourceParts;
  /** Input of this window's engine. Its definition changes with the rows that depend on it, so that
   *  the engine makes each definition durable before its first event. */
  readonly input: Omit<EventInput, 'decode'>;
  /** Offsets of the last `start`; undefined before. */
  private offsets: readonly number[] | undefined;
  /** Offsets up to which a catch-up found all records; they may lie beyond the last record. */
  private reached: readonly number[] = [];
  /** Limits before a catch-up. */
  private limits: readonly number[] = [];
  /** Offsets at which a catch-up that is in flight ends. */
  private catchUpTo: readonly number[] = [];
  private ask: Ask | undefined;
  private release: (() => void) | undefined;
  /** Settles when this window asks for rows or has left. */
  private free: Promise<void> = Promise.resolve();
  private waitedMs = 0;
  savedOffsets: readonly number[] | undefined;
  isOpen = true;
  private readonly reader: Reader;
  private definition: InputDefinition | undefined;
  /** Aggregates of the flags, or of this window's checkpoint: each window has had its changes at
   *  its own time. */
  private aggregate: string | undefined;
  /** Values of the aggregates; undefined: the window has those of the reader. */
  private values: OwnValues | undefined;
  /** Definition of the reader that `definition` was made from. */
  private shared: InputDefinition | undefined;

  constructor(reader: Reader, parts: WindowSourceParts) {
    this.reader = reader;
    this.parts = parts;
    this.aggregate = parts.aggregate;
    this.adopt(reader.input?.definition);
    this.hold();
    const own = this;
    this.input = {
      get definition() {
        return own.definition as InputDefinition;
      },
      get isReady() {
        return reader.input?.isReady ?? true;
      },
      describe: (records, row) => reader.input?.describe(records, row),
      resume: (saved) => this.resume(saved),
      takeWaitedMs: () => {
        const ms = this.waitedMs;
        this.waitedMs = 0;
        return ms;
      },
    };
  }

  get partitionCount(): number {
    return this.offsets?.length ?? this.reader.source.partitionCount;
  }
  get receipts(): readonly Receipt[] {
    return this.reader.source.receipts;
  }
  get waitMs(): number {
    return this.ask?.waitMs ?? 0;
  }

  bounds(): Promise<readonly Bounds[]> {
    return this.reader.bounds();
  }

  /** The reader starts to read added partitions when every window has asked for them, so an answer
   *  may have some that this window knows. */
  async added(): Promise<readonly number[]> {
    const { source } = this.reader;
    const lows = await source.added();
    return lows.slice(this.partitionCount - source.partitionCount);
  }

  async start(offsets: readonly number[]): Promise<void> {
    this.offsets = offsets;
    this.reader.placed();
  }

  next(waitMs: number): Promise<EventRows | undefined> {
    return new Promise((resolve, reject) => {
      this.ask = { waitMs, atMs: this.reader.nowMs(), resolve, reject };
      this.release?.();
      this.reader.asked();
    });
  }

  /** -1 for an end that a catch-up does not read up to: more records follow for this window. Also
   *  -1 for an added partition that the reader has not begun with. */
  endOf(partition: number): number {
    const { source } = this.reader;
    if (partition >= source.partitionCount) return -1;
    const end = source.endOf(partition);
    return end > (this.catchUpTo[partition] ?? Number.POSITIVE_INFINITY) ? -1 : end;
  }

  saved(offsets: readonly number[]): void {
    this.savedOffsets = offsets;
    this.reader.saved();
  }

  /** Leaves the set: the other windows continue without this one. */
  async stop(): Promise<void> {
    this.isOpen = false;
    this.answer(undefined);
    this.release?.();
    this.reader.placed();
  }

  /** Settles when this window waits for rows, or has left. */
  whenFree(): Promise<void> {
    return this.ask === undefined && this.isOpen ? this.free : Promise.resolve();
  }

  /** Answers the request with rows, and settles when the window is done with them.
   *  @param readMs time of the read that returned the rows. In the rest of the time since the
   *  request, no partition was read for this window. */
  async deliver(rows: EventRows | undefined, readMs: number): Promise<void> {
    if (this.ask === undefined) return;
    this.waitedMs += Math.max(0, this.reader.nowMs() - this.ask.atMs - readMs);
    let restore = (): void => {};
    try {
      if (rows !== undefined) {
        this.adopt(this.reader.input?.definition);
        const interning = this.intern(rows.events);
        if (interning !== undefined) await interning;
        if (this.values !== undefined) restore = this.values.lend(rows.events);
      }
    } catch (thrown) {
      this.fail(thrown);
      return this.whenFree();
    }
    this.answer(rows);
    await this.whenFree();
    restore();
  }

  answer(rows: EventRows | undefined): void {
    const { ask } = this;
    if (ask === undefined) return;
    this.hold();
    ask.resolve(rows);
  }

  fail(thrown: unknown): void {
    const { ask } = this;
    if (ask === undefined) return;
    this.hold();
    ask.reject(thrown);
  }

  /** Offset of each partition from which on this window needs records. */
  positions(): readonly number[] {
    const { watermarks } = this.parts;
    return Array.from({ length: this.partitionCount }, (_, partition) =>
      Math.max(watermarks.position(partition), this.reached[partition] ?? 0),
    );
  }

  /** Admits only records before these offsets, until `endCatchUp`. */
  catchUp(to: readonly number[]): void {
    const { watermarks } = this.parts;
    this.catchUpTo = to;
    this.limits = to.map((_, partition) => watermarks.limitOf(partition));
    to.forEach((offset, partition) => {
      watermarks.setLimit(partition, Math.min(offset, this.limits[partition] as number));
    });
  }

  /** True if every record before these offsets was read. */
  hasRead(to: readonly number[]): boolean {
    const { watermarks } = this.parts;
    const { source } = this.reader;
    return to.every((offset, p) => watermarks.position(p) >= offset || source.endOf(p) >= offset);
  }

  endCatchUp(at: readonly number[]): void {
    this.reached = at;
    this.catchUpTo = [];
    this.limits.forEach((limit, partition) => {
      this.parts.watermarks.setLimit(partition, limit);
    });
  }

  private hold(): void {
    this.ask = undefined;
    this.free = new Promise((resolve) => {
      this.release = resolve;
    });
  }

  private intern(events: EventBatch): void | Promise<void> {
    const { keys } = this.parts;
    if (keys === undefined || this.definition === undefined || keyTypeOf(this.definition) === undefined)
      return undefined;
    const spans = EventWords.of(events).keys;
    return keys.isOpen ? keys.intern(events, spans) : keys.open().then(() => keys.intern(events, spans));
  }

  /** @throws job_changed where another window has decided the input otherwise */
  private resume(saved: InputDefinition): void {
    const { input } = this.reader;
    if (input === undefined || saved.format === 'undecided') return;
    const { definition } = input;
    if (definition.format === 'undecided' || definition === this.shared)
      input.resume(withAggregates(saved, definition));
    else if (readText(definition) !== readText(saved))
      throw engineError(
        'job_changed',
        `window ${this.parts.name} reads the records in another way than the other windows of -state-dir: ${JSON.stringify(saved)}, not ${JSON.stringify(definition)}`,
        { next: 'give each set of windows a -state-dir of its own' },
      );
    this.aggregate = saved.aggregate;
    this.shared = undefined;
    this.adopt(input.definition);
  }

  /** Takes the definition of the reader, with the aggregates of this window. */
  private adopt(definition: InputDefinition | undefined): void {
    if (definition === this.shared) return;
    this.shared = definition;
    const { aggregate } = this;
    this.definition = definition && withAggregates(definition, aggregate === undefined ? {} : { aggregate });
    const all = definition?.aggregates;
    this.values = all === undefined || aggregate === undefined ? undefined : new OwnValues(aggregate, all);
  }
}

/** Settings by which all windows read records: each has aggregates of its own. */
const readText = (definition: InputDefinition): string => JSON.stringify(withAggregates(definition, {}));
