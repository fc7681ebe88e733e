/** Settings of `millrace engine`. */
import { coreError } from '../../../core/errors.ts';
import { BROKER_SETTINGS } from '../../../shell/broker-settings.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { ACCESS_SETTINGS } from '../../../shell/servers/access.ts';
import { REPLICATION_FACTOR } from '../../../shell/topic-settings.ts';
import { CHAOS_SETTING } from '../chaos.ts';
import { EMIT_SETTINGS } from '../emit.ts';
import { FLINK_FLAGS, FLINK_SETTINGS } from '../flink/settings.ts';
import { INPUT_SETTINGS } from '../input.ts';
import { JOB_SETTINGS } from '../job.ts';
import { JOB_FILE_SETTING } from '../jobfile/read.ts';
import { VALIDATE_SETTINGS } from '../jobfile/validate.ts';
import { LATE_SETTINGS } from '../late.ts';
import { LATE_EVENTS_SETTINGS } from '../late-events.ts';
import { MEMORY_SETTINGS } from '../memory.ts';
import { QUARANTINE_SETTINGS } from '../quarantine.ts';
import { SAVEPOINT_ACTION_FLAGS, SAVEPOINT_SETTINGS } from '../savepoint/settings.ts';
import { SINK_SETTINGS } from '../sinks.ts';
import { CLIENT_SETTINGS } from '../source/client.ts';
import { SOURCE_SETTINGS } from '../source/group.ts';
import { START_SETTINGS } from '../source/start.ts';
import { STORE_SETTINGS } from '../store/settings.ts';
import { VERIFY_FLAGS, VERIFY_SETTINGS } from '../verify/settings.ts';

/** Settings under which the command creates topics: the input and late topic, or a Kafka sink. */
const MAKES_TOPICS = ['create-topics', 'sink=kafka:*'] as const;

export const SETTINGS = {
  ...BROKER_SETTINGS,
  job: JOB_FILE_SETTING,
  ...JOB_SETTINGS,
  ...INPUT_SETTINGS,
  ...MEMORY_SETTINGS,
  ...SOURCE_SETTINGS,
  ...CLIENT_SETTINGS,
  ...START_SETTINGS,
  'state-dir': {
    type: 'string',
    default: '.millrace/engine',
    help: 'folder of the checkpoints; one engine at a time',
  },
  ...SAVEPOINT_SETTINGS,
  ...STORE_SETTINGS,
  'idle-timeout': {
    type: 'duration',
    default: '10s',
    excludes: ['watermark=global'],
    help: 'a partition without a valid event for this long does not hold back the watermark until its next event; 0: every partition always holds it back',
  },
  'partition-interval': {
    type: 'duration',
    default: '30s',
    max: 3_600_000,
    excludes: ['exit-at-end', 'bounded'],
    help: 'how often to check the topic for new partitions, which are read from their first record, and for a recreated topic, which ends the run; 0: only at the start',
  },
  'checkpoint-interval': { type: 'duration', default: '5s', min: 10, help: 'time between checkpoints' },
  'snapshot-after': {
    type: 'size',
    default: '16MiB',
    min: 4096,
    help: 'size of the changelog since the last snapshot above which a checkpoint writes a new snapshot, if the changelog is also larger than the state; with -state=disk, above which the oldest state is spilled to disk, if the changelog is also larger than the state in memory',
  },
  shards: {
    type: 'int',
    default: '1',
    min: 1,
    max: 256,
    help: 'parts of the state, each with the keys of one hash; threads, at most one a core, decode events of 256 bytes, fold and encode the parts of a batch in parallel',
  },
  ...SINK_SETTINGS,
  ...EMIT_SETTINGS,
  ...LATE_SETTINGS,
  ...QUARANTINE_SETTINGS,
  ...LATE_EVENTS_SETTINGS,
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    excludes: ['bounded'],
    help: 'stop at the current end offsets; open windows stay in the checkpoint',
  },
  bounded: { type: 'bool', default: 'false', help: 'like -exit-at-end, and fire all open windows' },
  'create-topics': {
    type: 'bool',
    default: 'true',
    help: 'create -topic, -late-topic and -quarantine if they are missing',
  },
  partitions: {
    type: 'int',
    default: '8',
    min: 1,
    max: 100_000,
    needs: MAKES_TOPICS,
    help: 'partitions of a created topic',
  },
  'replication-factor': { ...REPLICATION_FACTOR, needs: MAKES_TOPICS },
  retention: {
    type: 'duration',
    default: '7d',
    min: 0,
    needs: ['create-topics'],
    help: 'retention of a created topic',
  },
  'batch-rows': { type: 'int', default: '16384', min: 1, max: 1_048_576, help: 'events in a batch' },
  'batch-bytes': {
    type: 'size',
    default: '8MiB',
    min: 4096,
    max: 1_073_741_824,
    help: 'bytes of records in a batch; a larger record stops the engine',
  },
  ...VALIDATE_SETTINGS,
  ...VERIFY_SETTINGS,
  ...FLINK_SETTINGS,
  ...ACCESS_SETTINGS,
  chaos: CHAOS_SETTING,
} as const;

/** Flags of one action alone. */
export const ACTION_FLAGS = [
  ['export-wait', 'export'],
  ['export-keys', 'export'],
  ['export-window', 'export'],
  ['offline', 'validate'],
  ...VERIFY_FLAGS.map((flag) => [flag, 'verify'] as const),
  ...SAVEPOINT_ACTION_FLAGS.map((flag) => [flag, 'savepoint'] as const),
  ...FLINK_FLAGS.map((flag) => [flag, flag === 'against' ? 'verify' : 'submit'] as const),
] as const;

export type EngineContext = CommandContext<typeof SETTINGS>;

export function neededBrokers(context: EngineContext): string {
  const { brokers } = context.settings;
  if (brokers === undefined) {
    throw coreError('usage', '-brokers is required', { next: `give -brokers=… (${SETTINGS.brokers.help})` });
  }
  return brokers;
}
