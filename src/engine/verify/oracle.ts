/** Oracle of `engine verify`: computes the windows of a job from its events, in arrival order, from
 *  the rules of lateness alone. It shares no kernel, table or watermark with the engine. */
import { engineError } from '../errors.ts';
import type { Job } from '../job.ts';
import { Accumulator, type LogPlace, type OracleAggregates } from './aggregates.ts';
import type { OracleEvent } from './records.ts';
import { floorDivide } from './values.ts';

/** Range of windows that are compared: bounds of window_start and window_end, in ms. */
export interface VerifiedRange {
  readonly fromMs: bigint | undefined;
  readonly toMs: bigint | undefined;
}

export interface VerifyCounts {
  read: number;
  accepted: number;
  filtered: number;
  duplicates: number;
  late: number;
  invalid: number;
  /** Records whose list has no element. */
  empty: number;
}

export interface OracleWindow {
  readonly key: string;
  readonly startMs: bigint;
  readonly endMs: bigint;
  readonly accumulator: Accumulator;
}

interface StoredEvent {
  readonly event: OracleEvent;
  readonly place: LogPlace;
}

/** Name of a key among the windows: its texts as JSON. */
export const keyName = (texts: readonly string[]): string => JSON.stringify(texts);

export class WindowOracle {
  readonly counts: VerifyCounts = {
    read: 0,
    accepted: 0,
    filtered: 0,
    duplicates: 0,
    late: 0,
    invalid: 0,
    empty: 0,
  };
  private readonly job: Job;
  private readonly aggregates: OracleAggregates | undefined;
  private readonly range: VerifiedRange;
  private readonly heldMax: number;
  private readonly delayMs: bigint;
  /** Greatest time of each partition. */
  private readonly seen = new Map<number, bigint>();
  /** Accumulators by start and end, then by key. */
  private readonly windows = new Map<string, Map<string, Accumulator>>();
  private readonly sessions = new Map<string, StoredEvent[]>();
  /** Times of the folded events by key and identifier. */
  private readonly ids = new Map<string, bigint[]>();
  private held = 0;

  /** @param heldMax windows, events of sessions, identifiers and values that may be in memory
   *  @throws bad_setting for a job whose results depend on more than the log */
  constructor(
    job: Job,
    aggregates: OracleAggregates | undefined,
    partitions: number,
    range: VerifiedRange,
    heldMax: number,
  ) {
    this.job = job;
    this.aggregates = aggregates;
    this.range = range;
    this.heldMax = heldMax;
    this.delayMs = BigInt(job.skewMs + job.latenessMs);
    new Accumulator(aggregates);
    if (job.watermark === 'global' && partitions > 1)
      throw cannot(
        'watermark',
        '-watermark=global: its results depend on the order in which partitions were read',
      );
    if (job.window === 'session' && job.input?.dedup !== undefined)
      throw cannot(
        'dedup',
        '-dedup with sessions: whether a record repeats another depends on the open sessions',
      );
  }

  /** Adds the events of a record; undefined: it is invalid. Records of one partition come in their
   *  order. */
  add(
    events: readonly OracleEvent[] | undefined,
    place: Omit<LogPlace, 'element'>,
    timestampMs: bigint | undefined,
  ): void {
    const { counts } = this;
    counts.read++;
    if (events === undefined) counts.invalid++;
    else if (events.length === 0) counts.empty++;
    else
      for (const [element, event] of events.entries())
        this.addEvent(event, { ...place, element }, timestampMs);
  }

  private addEvent(event: OracleEvent, place: LogPlace, timestampMs: bigint | undefined): void {
    const { counts, job } = this;
    const { timeMs } = event;
    const limit =
      job.maxFutureMs === undefined || timestampMs === undefined
        ? timeMs
        : timestampMs + BigInt(job.maxFutureMs);
    const moved = timeMs < limit ? timeMs : limit;
    const before = this.seen.get(place.partition);
    const seen = before === undefined || moved > before ? moved : before;
    this.seen.set(place.partition, seen);
    if (timeMs < seen - this.delayMs) {
      counts.late++;
      return;
    }
    counts.accepted++;
    if (event.isFiltered) counts.filtered++;
    else this.fold(event, place);
  }

  /** Frontier by the greatest times: windows that end at or before it are final. Partitions without
   *  an event do not hold it back. Undefined: there was no event. */
  get frontierMs(): bigint | undefined {
    let least: bigint | undefined;
    for (const seen of this.seen.values()) if (least === undefined || seen < least) least = seen;
    return least === undefined ? undefined : least - this.delayMs;
  }

  /** Windows of the range. */
  *results(): Iterable<OracleWindow> {
    for (const [name, keys] of this.windows) {
      const [startMs, endMs] = name.split(' ').map(BigInt) as [bigint, bigint];
      for (const [key, accumulator] of keys) yield { key, startMs, endMs, accumulator };
    }
    if (this.job.window === 'session') yield* this.sessionResults(BigInt(this.job.gapMs));
  }

  /** True if a window belongs to the range. */
  isInRange(startMs: bigint, endMs: bigint): boolean {
    const { fromMs, toMs } = this.range;
    // A session that begins within a gap of the first time may have begun before it.
    const edge = this.job.window === 'session' ? BigInt(this.job.gapMs) : 0n;
    return (fromMs === undefined || startMs >= fromMs + edge) && (toMs === undefined || endMs <= toMs);
  }

  private fold(event: OracleEvent, place: LogPlace): void {
    const { job } = this;
    const key = keyName(event.key);
    if (job.window === 'session') {
      const { fromMs, toMs } = this.range;
      if (fromMs !== undefined && event.timeMs < fromMs) return;
      if (toMs !== undefined && event.timeMs >= toMs) return;
      const events = this.sessions.get(key);
      this.hold(1);
      if (events === undefined) this.sessions.set(key, [{ event, place }]);
      else events.push({ event, place });
      return;
    }
    const size = BigInt(job.sizeMs);
    const slide = BigInt(job.window === 'sliding' ? job.slideMs : job.sizeMs);
    if (event.id !== undefined && this.isRepeated(key, event, size, slide)) return;
    const last = floorDivide(event.timeMs, slide) * slide;
    for (let start = last; event.timeMs < start + size; start -= slide)
      if (this.isInRange(start, start + size)) this.foldInto(`${start} ${start + size}`, key, event, place);
  }

  private foldInto(window: string, key: string, event: OracleEvent, place: LogPlace): void {
    let keys = this.windows.get(window);
    if (keys === undefined) {
      keys = new Map();
      this.windows.set(window, keys);
    }
    let accumulator = keys.get(key);
    if (accumulator === undefined) {
      accumulator = new Accumulator(this.aggregates);
      keys.set(key, accumulator);
      this.hold(1);
    }
    const before = accumulator.held;
    accumulator.add(event, place);
    this.hold(accumulator.held - before);
  }

  /** True if some window has both the event and a folded one with its identifier. */
  private isRepeated(key: string, { id, timeMs }: OracleEvent, size: bigint, slide: bigint): boolean {
    const name = `${key} ${id}`;
    const times = this.ids.get(name) ?? [];
    const isRepeat = times.some((time) => {
      const [first, last] = time < timeMs ? [time, timeMs] : [timeMs, time];
      return floorDivide(first, slide) * slide + size > last;
    });
    if (isRepeat) {
      this.counts.duplicates++;
      return true;
    }
    this.ids.set(name, [...times, timeMs]);
    this.hold(1);
    return false;
  }

  private *sessionResults(gap: bigint): Iterable<OracleWindow> {
    for (const [key, events] of this.sessions) {
      events.sort((a, b) => (a.event.timeMs < b.event.timeMs ? -1 : a.event.timeMs > b.event.timeMs ? 1 : 0));
      let start = 0n;
      let last = 0n;
      let accumulator: Accumulator | undefined;
      for (const { event, place } of events) {
        if (accumulator !== undefined && event.timeMs - last >= gap) {
          if (this.isInRange(start, last + gap))
            yield { key, startMs: start, endMs: last + gap, accumulator };
          accumulator = undefined;
        }
        if (accumulator === undefined) {
          accumulator = new Accumulator(this.aggregates);
          start = event.timeMs;
        }
        accumulator.add(event, place);
        last = event.timeMs;
      }
      if (accumulator !== undefined && this.isInRange(start, last + gap))
        yield { key, startMs: start, endMs: last + gap, accumulator };
    }
  }

  private hold(more: number): void {
    this.held += more;
    if (this.held <= this.heldMax) return;
    throw engineError(
      'range_too_wide',
      `the range has more than ${this.heldMax} windows, session events, identifiers and values`,
      {
        next: 'give a narrower -verify-from and -verify-to, or a greater -verify-windows-max (about 400 bytes of memory each)',
        details: { setting: 'verify-windows-max' },
      },
    );
  }
}

const cannot = (setting: string, text: string): Error =>
  engineError('bad_setting', `engine verify cannot recompute ${text}`, {
    next: 'compare the job with a second run of the engine instead',
    details: { setting },
  });
