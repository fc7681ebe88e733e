/** Settings that define the computation of `millrace engine`, and the job built from them. */
import { coreError } from '../../core/errors.ts';
import type { SettingsOf } from '../../core/settings.ts';
import { checkJob, type Job, type JobWindows } from '../../engine/job.ts';
import type { FiredShape } from '../../engine/output/fired/mark.ts';
import { type EMIT_SETTINGS, hasUpdates } from './emit.ts';
import { askedInput, type INPUT_SETTINGS } from './input.ts';

const SIZE_MS = 60_000;

export const JOB_SETTINGS = {
  topic: { type: 'string', default: 'events', help: 'topic of the events' },
  window: {
    type: 'string',
    choices: ['tumbling', 'sliding', 'session'],
    default: 'tumbling',
    help: 'kind of window; session: groups events of a key that are less than -gap apart',
  },
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

type JobSettings = SettingsOf<typeof JOB_SETTINGS> &
  SettingsOf<typeof INPUT_SETTINGS> &
  SettingsOf<typeof EMIT_SETTINGS> & {
    readonly bounded: boolean;
    readonly sink: string;
    readonly 'sink-format': string;
  };

function windowsOf(settings: SettingsOf<typeof JOB_SETTINGS>): JobWindows {
  const { window, size, slide, gap } = settings;
  const refuse = (flag: string, value: number | undefined, kinds: string): void => {
    if (value === undefined) return;
    throw coreError('usage', `-${flag} has no meaning for -window=${window}`, {
      next: `leave -${flag} out, or give -window=${kinds}`,
      details: { setting: flag },
    });
  };
  const need = (flag: string, value: number | undefined, example: string): number => {
    if (value !== undefined) return value;
    throw coreError('usage', `-window=${window} needs -${flag}`, {
      next: `give -${flag}=${example}`,
      details: { setting: 'window' },
    });
  };
  if (window === 'session') {
    const gapMs = need('gap', gap, '30s');
    refuse('size', size, 'tumbling or sliding');
    refuse('slide', slide, 'sliding');
    return { window, gapMs };
  }
  refuse('gap', gap, 'session');
  const sizeMs = size ?? SIZE_MS;
  if (window === 'sliding') return { window, sizeMs, slideMs: need('slide', slide, '10s') };
  refuse('slide', slide, 'sliding');
  return { window: 'tumbling', sizeMs };
}

/** @throws usage, bad_setting, bad_value */
export function jobOf(settings: JobSettings): Job {
  const maxFutureMs = settings['max-future'];
  return checkJob({
    ...windowsOf(settings),
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
  const own = job.input?.aggregate;
  const aggregates = own === undefined ? {} : { aggregates: own };
  if (job.window === 'session') return { kind: 'sessions', gapMs: job.gapMs, ...aggregates };
  return {
    ...aggregates,
    kind: 'windows',
    sizeMs: job.sizeMs,
    slideMs: job.window === 'sliding' ? job.slideMs : job.sizeMs,
  };
}
