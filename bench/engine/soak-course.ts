/** Course of a long run: observations of an engine and its source, aggregated by time slice, by
 *  third and as a whole.
 *
 *  Counters are aggregated by differences between two observations, so the totals continue across a
 *  restart of the process. Gauges are aggregated as their largest value. */

import type { Scrape } from './engine-run.ts';
import { quantilesMs } from './latencies.ts';

/** One observation. */
export interface Observation {
  /** Milliseconds since the start. */
  readonly at: number;
  readonly engine: Scrape;
  /** True if the engine process was restarted since the previous observation. */
  readonly isRestarted: boolean;
  /** Events sent so far. */
  readonly sent: number;
  /** Values observed besides the metrics of the engine. */
  readonly gauges: Readonly<Record<string, number>>;
}

/** Gauges of the engine whose largest value is kept. */
const ENGINE_GAUGES = [
  'engine_unread_events',
  'engine_spilled_bytes',
  'engine_state_bytes',
  'engine_open_keys',
  'engine_fired_bytes',
  'engine_checkpoint_bytes',
] as const;

/** Counters that resume at their old value after a restart. */
const RESTORED = new Set(['engine_events_total', 'dropped_late', 'engine_invalid_events_total']);

const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 ** 2)} MiB`;

/** Aggregate of an interval of a run. */
export class Span {
  private readonly increases = new Map<string, number>();
  private readonly largest = new Map<string, number>();
  private ms = 0;
  private sent = 0;

  add(before: Observation, after: Observation): void {
    this.ms += after.at - before.at;
    this.sent += after.sent - before.sent;
    for (const [line, value] of after.engine) {
      const from = after.isRestarted && !RESTORED.has(line) ? 0 : (before.engine.get(line) ?? 0);
      if (value !== from) this.increases.set(line, this.increase(line) + value - from);
    }
    for (const name of ENGINE_GAUGES) this.updateMax(name, after.engine.get(name) ?? Number.NaN);
    for (const [name, value] of Object.entries(after.gauges)) this.updateMax(name, value);
  }

  get isEmpty(): boolean {
    return this.ms === 0;
  }
  increase(line: string): number {
    return this.increases.get(line) ?? 0;
  }
  perSecond(line: string): number {
    return (this.increase(line) / this.ms) * 1000;
  }
  get sentPerSecond(): number {
    return (this.sent / this.ms) * 1000;
  }
  /** Largest value of a gauge; NaN if it was never observed. */
  max(name: string): number {
    return this.largest.get(name) ?? Number.NaN;
  }
  /** Upper bound of a quantile of a stage; NaN if the stage has no observations. */
  quantileMs(stage: string, quantile: number): number {
    const counted = this.increase(`engine_stage_seconds_count{stage="${stage}"}`) > 0;
    return counted ? (quantilesMs(NOTHING, this.increases, stage, [quantile])[0] as number) : Number.NaN;
  }

  /** One line for the progress output. */
  get text(): string {
    const parts = [
      `${Math.round(this.perSecond('engine_events_total'))} events a second`,
      `lag up to ${this.max('engine_unread_events')}`,
      `p99 at most ${this.quantileMs('accumulate', 0.99)} ms`,
      `resident ${mebibytes(this.max('rss'))}`,
      `disk ${mebibytes(this.max('disk'))} less`,
    ];
    return parts.join(', ');
  }

  private updateMax(name: string, value: number): void {
    if (!Number.isNaN(value)) this.largest.set(name, Math.max(value, this.max(name) || 0));
  }
}

const NOTHING: Scrape = new Map();

export class Course {
  readonly whole = new Span();
  readonly first = new Span();
  readonly last = new Span();
  private readonly parts: readonly Span[];
  private readonly durationMs: number;
  private before: Observation;
  private slice = 0;

  constructor(start: Observation, durationMs: number, slices: number) {
    this.before = start;
    this.durationMs = durationMs;
    this.parts = Array.from({ length: slices }, () => new Span());
  }

  /** Adds an observation; returns the slice that ended with it. */
  add(observation: Observation): Span | undefined {
    const { before, durationMs, parts, slice } = this;
    this.before = observation;
    // An observation belongs to the slice that covers most of its interval.
    const share = (before.at + observation.at) / 2 / durationMs;
    this.slice = Math.min(parts.length - 1, Math.floor(share * parts.length));
    const spans = [this.whole, parts[this.slice] as Span];
    if (share < 1 / 3) spans.push(this.first);
    if (share >= 2 / 3) spans.push(this.last);
    for (const span of spans) span.add(before, observation);
    return this.slice > slice ? parts[slice] : undefined;
  }

  get sliceMs(): number {
    return Math.round(this.durationMs / this.parts.length);
  }
  /** Slices without any observation are omitted. */
  get slices(): readonly Span[] {
    return this.parts.filter((slice) => !slice.isEmpty);
  }
}
