/** Settings that define the computation of `millrace engine`, and the job built from them. */
import { coreError } from '../../core/errors.ts';
import type { SettingsOf } from '../../core/settings.ts';
import { checkJob, type Job } from '../../engine/job.ts';
import type { FiredShape } from '../../engine/output/fired/mark.ts';
import { BINARY256 } from '../../engine/source/input/binary256.ts';
import { aggregatesIn } from '../../engine/source/input/definition.ts';
import { type EMIT_SETTINGS, hasUpdates } from './emit.ts';
import { askedInput, type INPUT_SETTINGS } from './input.ts';
import {
  WINDOW_AGGREGATE_SETTING,
  WINDOW_SETTING,
  type WindowSettings,
  windowSpecs,
} from './windows/specs.ts';

export const JOB_SETTINGS = {
  topic: { type: 'string', default: 'events', help: 'topic of the events' },
  window: WINDOW_SETTING,
  'window-aggregate': WINDOW_AGGREGATE_SETTING,
  size: { type: 'duration', min: 1, help: 'length of a tumbling or sliding window; default 1m' },
  slide: {
    type: 'duration',
    min: 1,
    help: 'distance between the starts of two sliding windows, at most -size; it need not divide -size',
  },
  gap: { type: 'duration', min: 1, help: 'a session ends if its key has no event for this long' },
  'allowed-skew': {
    type: 'duration',
    default: '5s',
    help: 'lag of the watermark behind the greatest event time',
  },
  'allowed-lateness': {
    type: 'duration',
    default: '10s',
    help: 'how long a window stays open after the watermark has passed its end',
  },
  'max-future': {
    type: 'duration',
    min: 0,
    help: 'limits how far an event can move the watermark ahead of its append time (default: no limit)',
  },
  watermark: {
    type: 'string',
    choices: ['partition', 'global'],
    default: 'partition',
    help: 'partition: one watermark for each partition, the least one fires windows; results do not depend on how partitions interleave. global: one watermark from the greatest event time of all partitions; results depend on the order in which partitions are read',
  },
} as const;

export type JobSettings = SettingsOf<typeof JOB_SETTINGS> &
  WindowSettings &
  SettingsOf<typeof INPUT_SETTINGS> &
  SettingsOf<typeof EMIT_SETTINGS> & {
    readonly bounded: boolean;
    readonly sink: string;
    readonly 'sink-format': string;
  };

/** Job of a run with one window without a name. @throws usage, bad_setting, bad_value */
export function jobOf(settings: JobSettings): Job {
  const [spec, ...others] = windowSpecs(settings);
  if (spec.name !== undefined || others.length > 0)
    throw coreError(
      'usage',
      `-window names ${settings.window.join(', ')}, and this is for one window alone`,
      {
        next: 'give -window=KIND:TIMES without a name',
        details: { setting: 'window' },
      },
    );
  const maxFutureMs = settings['max-future'];
  return checkJob({
    ...spec.windows,
    topic: settings.topic,
    skewMs: settings['allowed-skew'],
    latenessMs: settings['allowed-lateness'],
    ...(maxFutureMs === undefined ? {} : { maxFutureMs }),
    watermark: settings.watermark === 'global' ? 'global' : 'partition',
    ...(hasUpdates(settings) ? { emit: 'updates' as const } : {}),
    input: askedInput(settings),
  });
}

/** Shape under which the results of the job are stored. */
export function shapeOf(job: Job): FiredShape {
  const own = aggregatesIn(job.input ?? BINARY256);
  const aggregates = own === undefined ? {} : { aggregates: own };
  if (job.window === 'session') return { kind: 'sessions', gapMs: job.gapMs, ...aggregates };
  return {
    ...aggregates,
    kind: 'windows',
    sizeMs: job.sizeMs,
    slideMs: job.window === 'sliding' ? job.slideMs : job.sizeMs,
  };
}
