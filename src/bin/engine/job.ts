/** The settings that decide what `millrace engine` computes, and the job that they ask for. */
import { coreError } from '../../core/errors.ts';
import type { SettingsOf } from '../../core/settings.ts';
import { checkJob, type Job, type JobWindows } from '../../engine/job.ts';
import type { FiredShape } from '../../engine/output/fired/mark.ts';

const SIZE_MS = 60_000;

export const JOB_SETTINGS = {
  topic: { type: 'string', default: 'events', help: 'topic of 256-byte events' },
  window: {
    type: 'string',
    choices: ['tumbling', 'sliding', 'session'],
    default: 'tumbling',
    help: 'kind of window; session: events of a key less than -gap apart',
  },
  size: { type: 'duration', min: 1, help: 'length of a tumbling or sliding window; 1m unless given' },
  slide: {
    type: 'duration',
    min: 1,
    help: 'distance of two starts of sliding windows, up to -size and not always a divisor of it',
  },
  gap: { type: 'duration', min: 1, help: 'a session ends when its key was silent for so long' },
  'allowed-skew': {
    type: 'duration',
    default: '5s',
    help: 'how far the watermark lies behind the greatest event time seen',
  },
  'allowed-lateness': {
    type: 'duration',
    default: '10s',
    help: 'how long a window stays open after the watermark passed its end',
  },
  'max-future': {
    type: 'duration',
    min: 0,
    help: 'an event further ahead of its append time than this moves the watermark only so far; as far as it says unless given',
  },
  watermark: {
    type: 'string',
    choices: ['partition', 'global'],
    default: 'partition',
    help: 'partition: a watermark each, the least one fires; results do not depend on how partitions interleave. global: the greatest event time of all, so results depend on the order in which partitions are read',
  },
} as const;

type JobSettings = SettingsOf<typeof JOB_SETTINGS>;

function windowsOf(settings: JobSettings): JobWindows {
  const { window, size, slide, gap } = settings;
  const refuse = (flag: string, value: number | undefined, kinds: string): void => {
    if (value === undefined) return;
    throw coreError('usage', `-${flag} has no meaning for -window=${window}`, {
      next: `leave -${flag} out, or give -window=${kinds}`,
    });
  };
  const need = (flag: string, value: number | undefined, example: string): number => {
    if (value !== undefined) return value;
    throw coreError('usage', `-window=${window} needs -${flag}`, { next: `give -${flag}=${example}` });
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

/** @throws usage, bad_setting */
export function jobOf(settings: JobSettings): Job {
  const maxFutureMs = settings['max-future'];
  return checkJob({
    ...windowsOf(settings),
    topic: settings.topic,
    skewMs: settings['allowed-skew'],
    latenessMs: settings['allowed-lateness'],
    ...(maxFutureMs === undefined ? {} : { maxFutureMs }),
    watermark: settings.watermark === 'global' ? 'global' : 'partition',
  });
}

/** How the results of the job stand in a store. */
export function shapeOf(job: Job): FiredShape {
  if (job.window === 'session') return { kind: 'sessions', gapMs: job.gapMs };
  return {
    kind: 'windows',
    sizeMs: job.sizeMs,
    slideMs: job.window === 'sliding' ? job.slideMs : job.sizeMs,
  };
}
