/** Settings of `millrace consumer`. */

import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import { KEY_FORMS, LINE_FORMS } from '../../registry/consumer/line.ts';
import type { CommandContext } from '../../shell/command.ts';
import { CLIENT_SETTINGS } from '../registry-clients/shared.ts';
import { START_HELP } from '../registry-clients/start.ts';
import { QUARANTINE_SETTINGS } from './quarantine/settings.ts';

const { format, subject, ...shared } = CLIENT_SETTINGS;

/** A redrive and a list read the whole quarantine and a replay the whole topic, without a group. */
const WITHOUT_GROUP = ['redrive', 'quarantine', 'replay'] as const;
/** A list and a replay write no lines. */
const WITHOUT_LINES = ['quarantine', 'replay'] as const;
/** Settings that give a run a reader schema. */
const READER = ['subject', 'replay'] as const;
/** A redrive and a list run on one thread. */
const ONE_THREAD = ['redrive', 'quarantine'] as const;

export const CONSUMER_SETTINGS = {
  ...shared,
  instances: { ...shared.instances, excludes: WITHOUT_GROUP },
  threads: { ...shared.threads, excludes: ONE_THREAD },
  subject: {
    type: 'string',
    help: 'subject of the reader schema; without it each record is read with the schema of its writer',
  },
  format: {
    type: 'string',
    choices: format.choices,
    needs: READER,
    help: 'format of the subject; another format is an error (default: that of the subject)',
  },
  topic: { type: 'string', help: 'topic to read (default: the subject without -value)' },
  'reader-version': {
    type: 'string',
    default: 'latest',
    needs: READER,
    help: 'reader schema: version of the subject; a number or latest',
  },
  group: {
    type: 'string',
    excludes: WITHOUT_GROUP,
    help: 'consumer group, which commits what it has read (default: millrace-TOPIC with -subject; without -subject, or when empty, all partitions are read without a group)',
  },
  start: {
    type: 'string',
    default: 'earliest',
    excludes: WITHOUT_GROUP,
    help: `${START_HELP}; in a group it applies to partitions without a committed offset`,
  },
  count: {
    type: 'int',
    default: '0',
    min: 0,
    excludes: WITHOUT_LINES,
    help: 'number of selected records; 0: no limit',
  },
  filter: {
    type: 'string',
    excludes: WITHOUT_LINES,
    help: 'condition on fields of the value, such as status = "PAID" and amount > 100; @key, @partition, @offset, @timestamp, @schemaId are of the record',
  },
  replay: {
    type: 'bool',
    default: 'false',
    excludes: ONE_THREAD,
    help: 'decode the whole topic with the reader schema (default subject: TOPIC-value) over all cores, up to its end at the start, and report what was decoded and what was not; exit code 1 if a record could not be decoded',
  },
  'quarantine-topic': {
    type: 'string',
    help: 'where unreadable records go (default: TOPIC.quarantine in a group; without a group they are logged, with -replay listed), and what -redrive and -quarantine read (default: TOPIC.quarantine)',
  },
  out: {
    type: 'string',
    excludes: WITHOUT_LINES,
    help: 'where records go as JSON lines: - for stdout, a file (PATH or file:PATH), kafka:TOPIC or none (default: none in a group, else -); with -redrive also source, the default: back to the topic as they were',
  },
  lines: {
    type: 'string',
    choices: LINE_FORMS,
    default: 'record',
    excludes: WITHOUT_LINES,
    help: 'record: a line has topic, partition, offset, timestamp, key, schemaId and value; value: the value alone',
  },
  unions: {
    type: 'string',
    choices: ['plain', 'named'],
    default: 'plain',
    excludes: WITHOUT_LINES,
    help: 'Avro unions. plain: the value alone where it identifies its branch; named: always {"branch":value}, as Avro\'s JSON encoding',
  },
  'key-format': {
    type: 'string',
    choices: KEY_FORMS,
    default: 'auto',
    excludes: WITHOUT_LINES,
    help: 'keys. auto: framed keys by their schema, other keys as text; text; base64',
  },
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    excludes: WITHOUT_GROUP,
    help: 'stop at the end offsets of the partitions at start; a registry that does not answer for -connect-timeout is then an error, and otherwise the consumer waits for it',
  },
  ...QUARANTINE_SETTINGS,
  'session-timeout': {
    type: 'duration',
    default: '10s',
    min: 6000,
    excludes: WITHOUT_GROUP,
    help: 'how long the group waits for a member that died before others get its partitions',
  },
  'batch-bytes': {
    type: 'size',
    default: '8MiB',
    min: 65_536,
    max: 1_073_741_824,
    help: 'bytes of a batch; a larger record cannot be read',
  },
} as const satisfies SettingTable;

export type ConsumerSettings = SettingsOf<typeof CONSUMER_SETTINGS>;
export type ConsumerContext = CommandContext<typeof CONSUMER_SETTINGS>;
