/** The course of a long run: looks at an engine and its source, gathered by slices of time, by
 *  thirds and as a whole.
 *
 *  What a process counts is counted by differences of two looks at it, so that a process that died
 *  and was started again goes on where it was. What it shows is kept as the largest value.
 */

import type { Scrape } from './engine-run.ts';
import { quantilesMs } from './latencies.ts';

/** One look. */
export interface Look {
  /** Milliseconds since the start. */
  readonly at: number;
  readonly engine: Scrape;
  /** Whether the engine is another process than at the look before. */
  readonly isFresh: boolean;
  /** Events sent so far. */
  readonly sent: number;
  /** What a look finds beside the metrics of the engine. */
  readonly shown: Readonly<Record<string, number>>;
}

/** Gauges of the engine whose largest value is kept. */
const SHOWN = [
  'engine_unread_events',
  'engine_spilled_bytes',
  'engine_state_bytes',
  'engine_open_keys',
  'engine_fired_bytes',
  'engine_checkpoint_bytes',
] as const;

/** Counters that a restart takes up where they were. */
const RESTORED = new Set(['engine_events_total', 'dropped_late', 'engine_invalid_events_total']);

const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 ** 2)} MiB`;

/** A stretch of a run. */
export class Span {
  private readonly grown = new Map<string, number>();
  private readonly largest = new Map<string, number>();
  private ms = 0;
  private sent = 0;

  add(before: Look, after: Look): void {
    this.ms += after.at - before.at;
    this.sent += after.sent - before.sent;
    for (const [line, value] of after.engine) {
      const from = after.isFresh && !RESTORED.has(line) ? 0 : (before.engine.get(line) ?? 0);
      if (value !== from) this.grown.set(line, this.grownBy(line) + value - from);
    }
    for (const name of SHOWN) this.show(name, after.engine.get(name) ?? Number.NaN);
    for (const [name, value] of Object.entries(after.shown)) this.show(name, value);
  }

  get isEmpty(): boolean {
    return this.ms === 0;
  }
  grownBy(line: string): number {
    return this.grown.get(line) ?? 0;
  }
  perSecond(line: string): number {
    return (this.grownBy(line) / this.ms) * 1000;
  }
  get sentPerSecond(): number {
    return (this.sent / this.ms) * 1000;
  }
  /** NaN where it was never shown. */
  most(name: string): number {
    return this.largest.get(name) ?? Number.NaN;
  }
  /** Upper bound of a quantile of a stage; NaN where nothing was measured. */
  quantileMs(stage: string, quantile: number): number {
    const counted = this.grownBy(`engine_stage_seconds_count{stage="${stage}"}`) > 0;
    return counted ? (quantilesMs(NOTHING, this.grown, stage, [quantile])[0] as number) : Number.NaN;
  }

  /** In a line for who watches. */
  get text(): string {
    const parts = [
      `${Math.round(this.perSecond('engine_events_total'))} events a second`,
      `lag up to ${this.most('engine_unread_events')}`,
      `p99 at most ${this.quantileMs('accumulate', 0.99)} ms`,
      `resident ${mebibytes(this.most('rss'))}`,
      `disk ${mebibytes(this.most('disk'))} less`,
    ];
    return parts.join(', ');
  }

  private show(name: string, value: number): void {
    if (!Number.isNaN(value)) this.largest.set(name, Math.max(value, this.most(name) || 0));
  }
}

const NOTHING: Scrape = new Map();

export class Course {
  readonly whole = new Span();
  readonly first = new Span();
  readonly last = new Span();
  private readonly parts: readonly Span[];
  private readonly durationMs: number;
  private before: Look;
  private slice = 0;

  constructor(start: Look, durationMs: number, slices: number) {
    this.before = start;
    this.durationMs = durationMs;
    this.parts = Array.from({ length: slices }, () => new Span());
  }

  /** Gives the slice that is over with it. */
  add(look: Look): Span | undefined {
    const { before, durationMs, parts, slice } = this;
    this.before = look;
    // A look belongs to the slice in which most of what it tells happened.
    const share = (before.at + look.at) / 2 / durationMs;
    this.slice = Math.min(parts.length - 1, Math.floor(share * parts.length));
    const spans = [this.whole, parts[this.slice] as Span];
    if (share < 1 / 3) spans.push(this.first);
    if (share >= 2 / 3) spans.push(this.last);
    for (const span of spans) span.add(before, look);
    return this.slice > slice ? parts[slice] : undefined;
  }

  get sliceMs(): number {
    return Math.round(this.durationMs / this.parts.length);
  }
  /** Without those that no look fell into. */
  get slices(): readonly Span[] {
    return this.parts.filter((one) => !one.isEmpty);
  }
}
