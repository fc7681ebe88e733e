/** Settings of `millrace payments`. */
import { ORDER_EVENTS_TOPIC } from '../../outbox/relay/pipeline/event.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import type { CommandContext } from '../../shell/command.ts';
import { REPLICATION_FACTOR } from '../../shell/topic-settings.ts';

/** Modes that only work on parked records and then exit. */
const MODES = ['parked', 'redrive'] as const;

export const SETTINGS = {
  ...BROKER_SETTINGS,
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: { type: 'string', default: 'public', help: 'schema of the tables inbox, charges and payments_*' },
  migrate: { type: 'bool', default: 'false', help: 'create missing tables, then run' },
  topic: { type: 'string', default: ORDER_EVENTS_TOPIC, excludes: MODES, help: 'topic of the events' },
  group: { type: 'string', default: 'millrace-payments', excludes: MODES, help: 'consumer group' },
  'create-topics': { type: 'bool', default: 'true', help: 'create the topic if it is missing' },
  partitions: { type: 'int', default: '4', min: 1, max: 10_000, help: 'partitions of a created topic' },
  'replication-factor': REPLICATION_FACTOR,
  'batch-rows': {
    type: 'int',
    default: '1000',
    min: 1,
    max: 100_000,
    help: 'records that may share one transaction',
  },
  'batch-bytes': {
    type: 'size',
    default: '8MiB',
    min: 4096,
    max: 1_073_741_824,
    help: 'bytes of a batch; grows for a larger record',
  },
  'batch-wait': {
    type: 'duration',
    default: '100ms',
    min: 1,
    max: 10_000,
    help: 'how long a batch waits for its first record',
  },
  'batch-every': {
    type: 'duration',
    default: '20ms',
    min: 0,
    max: 10_000,
    help: 'minimum time between two batches that are not full; a longer time needs less CPU; with 0 the broker also answers each fetch immediately, instead of within 50 ms',
  },
  'session-timeout': {
    type: 'duration',
    default: '10s',
    min: 6000,
    help: 'how long the group waits for a dead member before it reassigns the partitions, and the database for its open transaction',
  },
  'max-poll-interval': {
    type: 'duration',
    default: '5m',
    min: 6000,
    max: 86_400_000,
    help: 'how long a live member may read nothing before the group reassigns its partitions; at least -session-timeout',
  },
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    excludes: MODES,
    help: 'stop at the end offsets of the partitions at start',
  },
  'dedup-ttl': {
    type: 'duration',
    min: 1,
    help: 'minimum time for which a msg_id is kept (default: the redelivery horizon, the sum of the next four)',
  },
  'topic-retention': {
    type: 'duration',
    default: '24h',
    min: 60_000,
    help: 'retention of the topic; a created topic gets it',
  },
  'max-relay-outage': { type: 'duration', default: '12h', help: 'longest time the relay may be down' },
  'max-consumer-outage': { type: 'duration', default: '12h', help: 'longest time payments may be down' },
  'clock-skew': {
    type: 'duration',
    default: '5m',
    help: 'largest difference between the clocks of broker, relay and database',
  },
  'unsafe-ttl': {
    type: 'bool',
    default: 'false',
    help: 'allow a -dedup-ttl below the redelivery horizon, and charge a message whose msg_id may have expired unless its order has a charge; also with -redrive',
  },
  'inbox-width': {
    type: 'duration',
    default: '1h',
    min: 1000,
    help: 'time range of one inbox partition; expired keys are dropped by partition',
  },
  'inbox-every': {
    type: 'duration',
    default: '1m',
    min: 1000,
    help: 'how often to create partitions ahead, read the live redelivery horizon and drop expired keys',
  },
  'outbox-postgres': {
    type: 'string',
    secret: true,
    help: 'database of the outbox, for the live redelivery horizon; without it -max-relay-outage is used as the age of its backlog',
  },
  'outbox-table': {
    type: 'string',
    default: 'public.outbox',
    needs: ['outbox-postgres'],
    help: 'outbox table in -outbox-postgres, as schema.table',
  },
  parked: {
    type: 'bool',
    default: 'false',
    help: 'list the parked records that the -redrive-… filters select, and stop',
  },
  'parked-max': {
    type: 'int',
    default: '100',
    min: 1,
    max: 100_000,
    needs: ['parked'],
    help: 'records that -parked lists',
  },
  redrive: {
    type: 'bool',
    default: 'false',
    excludes: ['parked'],
    help: 'process the parked records again, once each: charge them, or park them again with the current error; then stop',
  },
  'redrive-reason': {
    type: 'list',
    needs: MODES,
    help: 'only records parked for these reasons: malformed_payload, refused, undecidable',
  },
  'redrive-topic': { type: 'string', needs: MODES, help: 'only records of this topic' },
  'redrive-partition': {
    type: 'int',
    min: 0,
    max: 2_147_483_647,
    needs: MODES,
    help: 'only records of this partition',
  },
  'redrive-offset': { type: 'int', min: 0, needs: MODES, help: 'only the record at this offset' },
  'dup-rate': {
    type: 'number',
    default: '0',
    min: 0,
    max: 1,
    excludes: MODES,
    help: 'share of records that are deliberately delivered twice',
  },
  seed: {
    type: 'int',
    default: '1',
    min: 0,
    needs: ['dup-rate'],
    help: 'seed that selects the records of -dup-rate',
  },
  'crash-point': {
    type: 'string',
    choices: ['effect', 'offset'],
    excludes: ['parked'],
    help: 'where to end by SIGKILL: effect, when charges are inserted and not committed; offset, when they are committed and their offsets are not',
  },
  'crash-after': {
    type: 'int',
    default: '0',
    min: 0,
    needs: ['crash-point'],
    help: 'committed batches before -crash-point takes effect',
  },
} as const;

export type PaymentsContext = CommandContext<typeof SETTINGS>;
