/** The flags of `millrace payments`. */
import { ORDER_EVENTS_TOPIC } from '../../outbox/relay/pipeline/event.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import type { CommandContext } from '../../shell/command.ts';
import { REPLICATION_FACTOR } from '../../shell/topic-settings.ts';

/** Both look at parked records alone and stop. */
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
  migrate: { type: 'bool', default: 'false', help: 'create the tables that are missing, then go on' },
  topic: { type: 'string', default: ORDER_EVENTS_TOPIC, excludes: MODES, help: 'topic of the events' },
  group: { type: 'string', default: 'millrace-payments', excludes: MODES, help: 'consumer group' },
  'create-topics': { type: 'bool', default: 'true', help: 'create the topic when it is missing' },
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
    help: 'bytes read at once; grows for a larger record',
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
    help: 'least time between two batches that are not full: longer, and payments takes less of the processors',
  },
  'session-timeout': {
    type: 'duration',
    default: '10s',
    min: 6000,
    help: 'how long the group waits for a member that died before others get its partitions, and the database for one amid a transaction',
  },
  'max-poll-interval': {
    type: 'duration',
    default: '5m',
    min: 6000,
    max: 86_400_000,
    help: 'how long a member that lives may read nothing before others get its partitions; at least -session-timeout',
  },
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    excludes: MODES,
    help: 'stop at the offsets that were the end at the start',
  },
  'dedup-ttl': {
    type: 'duration',
    min: 1,
    help: 'how long a msg_id is remembered at least (default: the redelivery horizon, the sum of the next four)',
  },
  'topic-retention': {
    type: 'duration',
    default: '24h',
    min: 60_000,
    help: 'retention of the topic; a created topic gets it',
  },
  'max-relay-outage': { type: 'duration', default: '12h', help: 'longest time the relay may be down' },
  'max-consumer-outage': { type: 'duration', default: '12h', help: 'longest time payments may be down' },
  'clock-skew': { type: 'duration', default: '5m', help: 'between the clocks of broker, relay and database' },
  'unsafe-ttl': {
    type: 'bool',
    default: 'false',
    help: 'go on with a -dedup-ttl below the redelivery horizon, and charge what the inbox has forgotten unless its order has a charge; with -redrive, too',
  },
  'inbox-width': {
    type: 'duration',
    default: '1h',
    min: 60_000,
    help: 'time in one partition of the inbox; what expires is dropped in such pieces',
  },
  'inbox-every': {
    type: 'duration',
    default: '1m',
    min: 1000,
    help: 'how often partitions are made ahead, the live redelivery horizon is read, and expired keys are dropped',
  },
  'outbox-postgres': {
    type: 'string',
    secret: true,
    help: 'database of the outbox, for the live redelivery horizon; without it -max-relay-outage stands for its backlog',
  },
  'outbox-table': {
    type: 'string',
    default: 'public.outbox',
    needs: ['outbox-postgres'],
    help: 'the outbox there, as schema.table',
  },
  parked: {
    type: 'bool',
    default: 'false',
    help: 'list the records that are set aside, those that -redrive- picks, and stop',
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
    help: 'take the records that are set aside again, once each: charged, or set aside again with what is wrong now; then stop',
  },
  'redrive-reason': {
    type: 'list',
    needs: MODES,
    help: 'only those set aside for these reasons: malformed_payload, refused, undecidable',
  },
  'redrive-topic': { type: 'string', needs: MODES, help: 'only those of this topic' },
  'redrive-partition': {
    type: 'int',
    min: 0,
    max: 2_147_483_647,
    needs: MODES,
    help: 'only those of this partition',
  },
  'redrive-offset': { type: 'int', min: 0, needs: MODES, help: 'only those at this offset' },
  'dup-rate': {
    type: 'number',
    default: '0',
    min: 0,
    max: 1,
    excludes: MODES,
    help: 'share of the records that are delivered a second time on purpose',
  },
  seed: {
    type: 'int',
    default: '1',
    min: 0,
    needs: ['dup-rate'],
    help: 'which records those are',
  },
  'crash-point': {
    type: 'string',
    choices: ['effect', 'offset'],
    excludes: ['parked'],
    help: 'end by SIGKILL there: effect, charges are inserted and not committed; offset, they are committed and their offsets are not',
  },
  'crash-after': {
    type: 'int',
    default: '0',
    min: 0,
    needs: ['crash-point'],
    help: 'batches committed before -crash-point counts',
  },
} as const;

export type PaymentsContext = CommandContext<typeof SETTINGS>;
