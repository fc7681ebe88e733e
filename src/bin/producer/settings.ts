/** Settings of `millrace producer`. */
import { coreError } from '../../core/errors.ts';
import type { SettingTable } from '../../core/settings.ts';
import { LEVELS } from '../../registry/compatibility/modes.ts';
import { LINE_FORMS } from '../../registry/consumer/line.ts';
import type { CommandContext } from '../../shell/command.ts';
import { CLIENT_SETTINGS, topicName, topicOfSubject } from '../registry-clients/shared.ts';

/** Conditions under which records come from a file or a pipe. */
const FROM_INPUT = ['in'] as const;

export const PRODUCER_SETTINGS = {
  ...CLIENT_SETTINGS,
  subject: { type: 'string', help: 'subject of the schema (default: the topic with -value)' },
  topic: { type: 'string', help: 'topic of the records (default: the subject without -value)' },
  format: {
    type: 'string',
    choices: CLIENT_SETTINGS.format.choices,
    help: 'format of -schema (default: by the name of the file, else by its content)',
  },
  schema: {
    type: 'string',
    help: 'schema file of the records; not needed with an Avro container file, which has its schema',
  },
  reference: {
    type: 'list',
    needs: ['schema'],
    help: 'NAME=FILE of a schema that -schema refers to, after the files that it refers to itself; registered under the subject NAME',
  },
  message: {
    type: 'string',
    needs: FROM_INPUT,
    help: 'full name of the Protobuf message (default: the first of the file)',
  },
  in: {
    type: 'string',
    help: 'records to send: - for JSON lines on standard input, FILE.jsonl, or FILE.avro, an Avro container file; without it random orders are generated',
  },
  lines: {
    type: 'string',
    choices: LINE_FORMS,
    default: 'value',
    needs: FROM_INPUT,
    help: 'value: a line is a value; record: a line has the members key and value, as consumer prints it, and the value null is a tombstone',
  },
  'on-error': {
    type: 'string',
    choices: ['fail', 'skip'],
    default: 'fail',
    needs: FROM_INPUT,
    help: 'a line that cannot be encoded. fail: ends the run after the lines before it are sent; skip: is logged and counted',
  },
  'line-bytes': {
    type: 'size',
    default: '16MiB',
    min: 1024,
    max: 268_435_456,
    needs: FROM_INPUT,
    help: 'largest line',
  },
  'key-field': {
    type: 'string',
    help: 'field used as the record key, such as id or customer.id; empty for no key (default: order_id of generated orders, none with -in)',
  },
  'key-schema': {
    type: 'string',
    needs: FROM_INPUT,
    help: 'schema file of the key: the key is then framed, not a text',
  },
  'key-subject': {
    type: 'string',
    needs: ['key-schema'],
    help: 'subject of -key-schema (default: the topic with -key, in the context of -subject)',
  },
  key: {
    type: 'string',
    excludes: ['key-field'],
    help: 'former name of -key-field, accepted in this version',
  },
  'producer-name': {
    type: 'string',
    help: 'name of this producer, sent as the header producer of each record: consumer -quarantine counts unreadable records by it (default: no header)',
  },
  compat: { type: 'string', choices: LEVELS, help: 'set the compatibility level of the subject first' },
  rate: {
    type: 'rate',
    default: '0',
    min: 0,
    help: 'records a second over all instances; 0: as fast as the broker accepts them',
  },
  count: {
    type: 'int',
    default: '0',
    min: 0,
    help: 'number of records; 0: until stopped, or the end of -in',
  },
  seed: {
    type: 'int',
    default: '1',
    min: 0,
    excludes: FROM_INPUT,
    help: 'the same seed gives the same orders',
  },
  codec: { ...CLIENT_SETTINGS.codec, excludes: FROM_INPUT },
  instances: { ...CLIENT_SETTINGS.instances, excludes: FROM_INPUT },
  threads: { ...CLIENT_SETTINGS.threads, excludes: FROM_INPUT },
  compression: {
    type: 'string',
    choices: ['none', 'gzip', 'snappy', 'lz4', 'zstd'],
    default: 'none',
    help: 'compression of the batches sent to the topic',
  },
} as const satisfies SettingTable;

export type ProducerContext = CommandContext<typeof PRODUCER_SETTINGS>;

/** Topic and subject of a run; each is the default of the other. @throws usage, bad_value */
export function producerTopic({ settings }: ProducerContext): {
  readonly topic: string;
  readonly subject: string;
} {
  const { subject } = settings;
  const topic = settings.topic ?? (subject === undefined ? undefined : topicOfSubject(subject));
  if (topic === undefined)
    throw coreError('usage', 'producer needs a topic', { next: 'give -topic=TOPIC, or -subject=SUBJECT' });
  return { topic: topicName('-topic', topic), subject: subject ?? `${topic}-value` };
}

/** Path of the key's field; undefined for no key. */
export function keyPath(context: ProducerContext, otherwise: string): readonly string[] | undefined {
  const { settings } = context;
  if (settings.key !== undefined && context.isFlag('key'))
    context.log.warn({}, '-key is now -key-field; the former name is accepted in this version only');
  const name = settings['key-field'] ?? settings.key ?? otherwise;
  return name === '' ? undefined : name.split('.');
}
