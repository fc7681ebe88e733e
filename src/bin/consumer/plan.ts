/** Plan of one run of `millrace consumer`: input, selection and output, from its settings. */
import { coreError } from '../../core/errors.ts';
import type { Filter } from '../../core/filter/compile.ts';
import type { KeyForm, LineForm } from '../../registry/consumer/line.ts';
import { recordFilter } from '../../registry/consumer/selection.ts';
import { quarantineTopicOf } from '../../serde/quarantine.ts';
import { topicName, topicOfSubject } from '../registry-clients/shared.ts';
import { parseStart, type StartPosition } from '../registry-clients/start.ts';
import type { ConsumerSettings } from './settings.ts';

export type ConsumerOutput =
  | { readonly kind: 'stdout' }
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'kafka'; readonly topic: string };

export interface ConsumerPlan {
  readonly topic: string;
  /** Label of the metrics. */
  readonly subject: string;
  /** Undefined: all partitions, without a group. */
  readonly group: string | undefined;
  readonly start: StartPosition;
  readonly filter: Filter | undefined;
  readonly output: ConsumerOutput | undefined;
  /** Undefined: unreadable records are logged. */
  readonly quarantineTopic: string | undefined;
  readonly keyForm: KeyForm;
  readonly lineForm: LineForm;
  readonly namedUnions: boolean;
}

/** Topic of the records. @throws usage, bad_value */
export function sourceTopic({ topic, subject }: Pick<ConsumerSettings, 'topic' | 'subject'>): string {
  const named = topic ?? (subject === undefined ? undefined : topicOfSubject(subject));
  if (named === undefined)
    throw coreError('usage', 'consumer needs a topic', { next: 'give -topic=TOPIC, or -subject=SUBJECT' });
  return topicName('-topic', named);
}

/** @throws usage, bad_value */
export function consumerPlan(settings: ConsumerSettings & { readonly json: boolean }): ConsumerPlan {
  const { subject } = settings;
  const topic = sourceTopic(settings);
  const named = settings.group ?? (subject === undefined ? '' : `millrace-${topic}`);
  const group = named === '' ? undefined : named;
  const output = outputOf(settings.out ?? (group === undefined ? '-' : 'none'));
  if (output?.kind === 'stdout' && settings.json)
    throw coreError('usage', '-json and -out=- both write to stdout', {
      next: 'give another -out, or leave -json out',
    });
  const quarantine =
    settings['quarantine-topic'] ?? (group === undefined ? undefined : quarantineTopicOf(topic));
  return {
    topic,
    subject: subject ?? `${topic}-value`,
    group,
    start: parseStart(settings.start),
    filter: settings.filter === undefined ? undefined : recordFilter(settings.filter),
    output,
    quarantineTopic: quarantine === undefined ? undefined : topicName('-quarantine-topic', quarantine),
    keyForm: settings['key-format'] as KeyForm,
    lineForm: settings.lines as LineForm,
    namedUnions: settings.unions === 'named',
  };
}

/** Plan of `-replay`: all partitions without a group, no lines, and a quarantine only where the
 *  settings name one. @throws usage, bad_value */
export const replayPlan = (settings: ConsumerSettings & { readonly json: boolean }): ConsumerPlan =>
  consumerPlan({ ...settings, group: '', out: 'none' });

/** @throws bad_value */
export function outputOf(out: string): ConsumerOutput | undefined {
  if (out === 'none') return undefined;
  if (out === '-') return { kind: 'stdout' };
  if (out.startsWith('kafka:'))
    return { kind: 'kafka', topic: topicName('-out', out.slice('kafka:'.length)) };
  const path = out.replace(/^file:/, '');
  if (path !== '' && !/^[a-z][a-z0-9+.-]*:/i.test(path)) return { kind: 'file', path };
  throw coreError('bad_value', `-out=${out} is not an output`, {
    next: 'give -, file:PATH, kafka:TOPIC or none',
  });
}
