/** The settings that decide the results of a run; validated once and saved in every checkpoint. */

import type { WindowKernels } from '../addon/window-surface.ts';
import type { RowForm } from '../core/layout/row-form.ts';
import type { WindowTimes } from '../core/layout/window-clock.ts';
import { DURATION_MS_MAX } from '../core/time.ts';
import { formOf } from './aggregate/definition.ts';
import type { SeenIds } from './dedup/seen.ts';
import { SessionIds } from './dedup/sessions.ts';
import { WindowIds } from './dedup/windows.ts';
import type { PieceOrder, PieceStore } from './durability/spill/pieces.ts';
import { engineError } from './errors.ts';
import { GlobalWatermarks, PartitionWatermarks, type WatermarkGenerator } from './source/admission.ts';
import { BINARY256 } from './source/input/binary256.ts';
import {
  aggregatesIn,
  checkDefinition,
  type InputDefinition,
  inputChanges,
} from './source/input/definition.ts';
import type { StateBackend } from './state/port.ts';
import { SessionsState } from './state/sessions.ts';
import { SliceState } from './state/slices.ts';
import { SlidingWindows, TumblingWindows, type WindowAssigner } from './window/definition.ts';

export type JobWindows =
  | { readonly window: 'tumbling'; readonly sizeMs: number }
  | { readonly window: 'sliding'; readonly sizeMs: number; readonly slideMs: number }
  | { readonly window: 'session'; readonly gapMs: number };

export type Job = JobWindows & {
  readonly topic: string;
  readonly skewMs: number;
  readonly latenessMs: number;
  /** Limit on how far beyond its append time an event moves the watermark; absent: no limit. */
  readonly maxFutureMs?: number;
  readonly watermark: 'partition' | 'global';
  /** Early results of open windows are written too; absent: only final ones. */
  readonly emit?: 'updates';
  /** Which fields of a record are an event; absent: the fixed layout of 256 bytes. */
  readonly input?: InputDefinition;
};

/** Most slices of a sliding window: an upper bound of the accumulators that its key needs. */
const WINDOW_SLICES_MAX = 65_536;

/** Checks the settings of a job: whole milliseconds, and windows of at most 65,536 slices.
 *  @returns the job
 *  @throws bad_setting, bad_value
 *  @example
 *  const times = { sizeMs: 60_000, skewMs: 1000, latenessMs: 0 };
 *  checkJob({ window: 'tumbling', ...times, watermark: 'partition' });
 */
export function checkJob(job: Job): Job {
  const whole = (name: string, value: number, least: number): void => {
    if (!Number.isInteger(value) || value < least || value > DURATION_MS_MAX) {
      throw engineError(
        'bad_setting',
        `-${name} of ${value} ms is not a whole number of ms from ${least} to ${DURATION_MS_MAX}`,
        {
          next: `give -${name} in whole milliseconds, such as ${name === 'size' ? '1m' : '5s'}`,
          details: { setting: name },
        },
      );
    }
  };
  if (job.window === 'session') whole('gap', job.gapMs, 1);
  else whole('size', job.sizeMs, 1);
  if (job.window === 'sliding') {
    whole('slide', job.slideMs, 1);
    checkSlide(job.sizeMs, job.slideMs);
  }
  whole('allowed-skew', job.skewMs, 0);
  whole('allowed-lateness', job.latenessMs, 0);
  if (job.maxFutureMs !== undefined) whole('max-future', job.maxFutureMs, 0);
  if (job.input !== undefined) checkDefinition(job.input);
  return job;
}

function checkSlide(sizeMs: number, slideMs: number): void {
  if (slideMs > sizeMs) {
    throw engineError(
      'bad_setting',
      `-slide of ${slideMs} ms is longer than -size of ${sizeMs} ms, so events between two windows would belong to no window`,
      { next: 'give a -slide up to -size', details: { setting: 'slide' } },
    );
  }
  const { sliceMs } = new SlidingWindows(sizeMs, slideMs);
  const slices = sizeMs / sliceMs;
  if (slices > WINDOW_SLICES_MAX) {
    throw engineError(
      'bad_setting',
      `-size of ${sizeMs} ms and -slide of ${slideMs} ms have no common divisor above ${sliceMs} ms, so a window is made of ${slices} slices, more than ${WINDOW_SLICES_MAX}`,
      { next: 'give a -slide that shares a longer divisor with -size', details: { setting: 'slide' } },
    );
  }
}

/** Assigner of aligned windows; session windows have none, because they depend on the events. */
export function assignerOf(job: Exclude<Job, { readonly window: 'session' }>): WindowAssigner {
  return job.window === 'tumbling'
    ? new TumblingWindows(job.sizeMs)
    : new SlidingWindows(job.sizeMs, job.slideMs);
}

/** Returns the window state of a job: in memory, or also on disk where `pieces` is given.
 *  @param shards number of threads that fold a batch
 *  @param pieces store of sorted runs; the caller keeps its ownership
 *  @example
 *  const state = stateOf(job, kernels, 2);
 */
export function stateOf(job: Job, kernels: WindowKernels, shards: number, pieces?: PieceStore): StateBackend {
  return job.window === 'session'
    ? new SessionsState(kernels, job.gapMs, shards, pieces)
    : new SliceState(kernels, assignerOf(job), shards, pieces);
}

/** Returns an empty store of the identifiers in the open windows of a job. */
export function seenIdsOf(job: Job): SeenIds {
  if (job.window === 'session') return new SessionIds(job.gapMs);
  const { sizeMs, slideMs } = assignerOf(job);
  return new WindowIds(sizeMs, slideMs);
}

/** Form of the rows of the job's state and results. @throws bad_setting */
export const rowFormOf = (job: Job): RowForm => formOf(aggregatesIn(job.input ?? BINARY256));

/** Order of the sorted runs of the job's state. */
export const pieceOrderOf = (job: Job): PieceOrder => (job.window === 'session' ? 'start' : 'key');

/** Returns the watermark generator of a job, over all partitions of its topic.
 *  @example
 *  const watermarks = watermarksOf(job, kernels, 8);
 */
export function watermarksOf(job: Job, kernels: WindowKernels, partitionCount: number): WatermarkGenerator {
  const { sizeMs, slideMs } = job.window === 'session' ? { sizeMs: 0, slideMs: 0 } : assignerOf(job);
  const times: Omit<WindowTimes, 'mode'> = {
    sizeMs,
    slideMs,
    skewMs: job.skewMs,
    latenessMs: job.latenessMs,
    maxFutureMs: job.maxFutureMs,
  };
  return job.watermark === 'global'
    ? new GlobalWatermarks(kernels, times, partitionCount)
    : new PartitionWatermarks(kernels, times, partitionCount);
}

/** A flag that decides what is computed. `isSafe`: a run may resume with another value, which then
 *  applies from that point on. */
interface JobFlag {
  readonly field: string;
  readonly flag: string;
  /** `from-nothing`: only where the flag was not given. */
  readonly isSafe: boolean | 'from-nothing';
}

/** The first five flags decide the topic and the meaning of the saved state. The watermark mode
 *  decides whether results depend on the order of partitions, and emitted results must not change.
 *  The other flags only decide which events are in time. They are safe: the frontier never falls,
 *  so no event that they admit falls into a window that has fired. */
const JOB_FLAGS: readonly JobFlag[] = [
  { field: 'topic', flag: 'topic', isSafe: false },
  { field: 'window', flag: 'window', isSafe: false },
  { field: 'sizeMs', flag: 'size', isSafe: false },
  { field: 'slideMs', flag: 'slide', isSafe: false },
  { field: 'gapMs', flag: 'gap', isSafe: false },
  { field: 'watermark', flag: 'watermark', isSafe: false },
  // A run without early results writes no mark, so those of the run before would keep theirs.
  { field: 'emit', flag: 'emit', isSafe: 'from-nothing' },
  { field: 'skewMs', flag: 'allowed-skew', isSafe: true },
  { field: 'latenessMs', flag: 'allowed-lateness', isSafe: true },
  { field: 'maxFutureMs', flag: 'max-future', isSafe: true },
];

export interface FlagChange {
  readonly flag: string;
  /** Text of the value as the flag accepts it; undefined: not given. */
  readonly was: string | undefined;
  readonly is: string | undefined;
  readonly isSafe: boolean;
}

/** Flags in which two jobs differ; empty when they compute the same. */
export function jobChanges(saved: Job, current: Job): FlagChange[] {
  const text = (job: Job, field: string): string | undefined => {
    const value = (job as Readonly<Record<string, unknown>>)[field];
    return value === undefined ? undefined : `${value}${field.endsWith('Ms') ? 'ms' : ''}`;
  };
  const flags = JOB_FLAGS.map(({ field, flag, isSafe }) => {
    const [was, is] = [text(saved, field), text(current, field)];
    return { flag, was, is, isSafe: isSafe === 'from-nothing' ? was === undefined : isSafe };
  }).filter(({ was, is }) => was !== is);
  const input = inputChanges(saved.input ?? BINARY256, current.input ?? BINARY256);
  // Another input changes which events are in the windows that are open.
  return [...flags, ...input.map((change) => ({ ...change, isSafe: false }))];
}
