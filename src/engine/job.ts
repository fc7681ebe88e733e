/** What a run computes: the settings that decide its results, checked once and written into every checkpoint. */
import { DURATION_MS_MAX } from '../core/time.ts';
import { engineError } from './errors.ts';
import { TumblingWindows, type WindowAssigner } from './windows.ts';

export interface Job {
  readonly topic: string;
  readonly window: 'tumbling';
  readonly sizeMs: number;
  readonly skewMs: number;
  readonly latenessMs: number;
  readonly watermark: 'partition';
}

/** Windows with a length of this many ms or more; shorter ones only cost. */
const WINDOW_SIZE_MS_MIN = 1;

/** @throws bad_setting */
export function checkJob(job: Job): Job {
  const whole = (name: string, value: number, least: number): void => {
    if (!Number.isInteger(value) || value < least || value > DURATION_MS_MAX) {
      throw engineError(
        'bad_setting',
        `-${name} of ${value} ms is not a whole number of ms from ${least} to ${DURATION_MS_MAX}`,
        {
          next: `give -${name} in whole milliseconds, such as ${name === 'size' ? '1m' : '5s'}`,
        },
      );
    }
  };
  whole('size', job.sizeMs, WINDOW_SIZE_MS_MIN);
  whole('allowed-skew', job.skewMs, 0);
  whole('allowed-lateness', job.latenessMs, 0);
  return job;
}

export function assignerOf(job: Job): WindowAssigner {
  return new TumblingWindows(job.sizeMs);
}

/** Settings in which two jobs differ, as text for an error; empty when they compute the same. */
export function jobDifferences(saved: Job, asked: Job): readonly string[] {
  const flags: ReadonlyArray<readonly [keyof Job, string]> = [
    ['topic', 'topic'],
    ['window', 'window'],
    ['sizeMs', 'size'],
    ['skewMs', 'allowed-skew'],
    ['latenessMs', 'allowed-lateness'],
    ['watermark', 'watermark'],
  ];
  return flags
    .filter(([key]) => saved[key] !== asked[key])
    .map(
      ([key, flag]) =>
        `-${flag} was ${saved[key]}${key.endsWith('Ms') ? ' ms' : ''}, is ${asked[key]}${key.endsWith('Ms') ? ' ms' : ''}`,
    );
}
