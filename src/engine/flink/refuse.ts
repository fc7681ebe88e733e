/** Settings of a job that Flink SQL cannot carry. */
import type { Job } from '../job.ts';
import { listIn } from '../source/input/definition.ts';
import { unsayable } from './error.ts';

/** Settings beside the job that change what is computed or written. */
export interface OtherSettings {
  readonly windows: number;
  readonly 'late-topic': string | undefined;
  readonly 'exit-at-end': boolean;
}

const HERE = 'leave it out, or keep this job here';

/** @throws flink_unsupported */
export function demandSayable(job: Job, settings: OtherSettings): void {
  const { input } = job;
  if (settings.windows > 1)
    throw unsayable(
      'window',
      '',
      `names ${settings.windows} windows, and a Flink job of this command has one`,
      'submit one job for each window, each with a sink of its own',
    );
  if (input?.format === 'binary256' || input?.format === 'protobuf')
    throw unsayable(
      'format',
      input.format,
      'has no format in Flink SQL',
      'write the events as Avro with a registry, or as JSON',
    );
  if (input?.dedup !== undefined)
    throw unsayable(
      'dedup',
      input.dedup,
      'finds repeated events among those of the open windows, and Flink SQL among all',
      HERE,
    );
  const list = input && listIn(input);
  if (list !== undefined)
    throw unsayable(
      'job',
      '',
      `makes each element of ${list.join('.')} an event, and a job of this command has one event a record in Flink`,
      'write the elements into a topic of their own, or keep this job here',
    );
  if (job.maxFutureMs !== undefined)
    throw unsayable(
      'max-future',
      `${job.maxFutureMs}ms`,
      'compares event time with append time, which a watermark of Flink SQL does not',
      HERE,
    );
  if (job.watermark === 'global')
    throw unsayable(
      'watermark',
      'global',
      'has one watermark from all partitions, and Flink has one for each',
      'give -watermark=partition',
    );
  if (job.emit === 'updates')
    throw unsayable(
      'emit',
      'updates',
      'writes marked early results, and a window of Flink SQL has one result',
      'give -emit=final',
    );
  if (settings['late-topic'] !== undefined)
    throw unsayable('late-topic', settings['late-topic'], 'has late events, which Flink SQL drops', HERE);
  if (settings['exit-at-end'])
    throw unsayable(
      'exit-at-end',
      '',
      'leaves windows open for the next run, and a bounded job of Flink fires them',
      'give -bounded, or neither',
    );
  demandWindow(job);
}

/** Longest interval of Flink SQL, 999 days, in ms. */
const INTERVAL_MS_MAX = 999 * 86_400_000;

function demandWindow(job: Job): void {
  const { skewMs, latenessMs } = job;
  const times = {
    ...(job.window === 'session' ? { gap: job.gapMs } : { size: job.sizeMs }),
    'allowed-lateness': skewMs + latenessMs,
  };
  for (const [setting, ms] of Object.entries(times))
    if (ms > INTERVAL_MS_MAX)
      throw unsayable(
        setting,
        `${ms}ms`,
        'is longer than an interval of Flink SQL, 999 days',
        'give a shorter time',
      );
  if (job.window === 'sliding' && job.sizeMs % job.slideMs !== 0)
    throw unsayable(
      'slide',
      `${job.slideMs}ms`,
      `does not divide -size of ${job.sizeMs} ms, as Flink SQL demands`,
      'give a -slide that divides -size',
    );
  if (job.window === 'session' && job.gapMs < 2)
    throw unsayable(
      'gap',
      '1ms',
      'has no equal in Flink SQL, where it becomes a gap of 0',
      'give a gap of 2ms or more',
    );
}
