/** Settings of `millrace chaos`. */
import { CRASH_POINT_NAMES, FAULT_KINDS } from '../../chaos/faults.ts';
import type { SettingTable } from '../../core/settings.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import type { CommandContext } from '../../shell/command.ts';

export const CHAOS_EXIT = { stopped: 5 } as const;

export const SETTINGS = {
  target: {
    type: 'string',
    help: 'YAML file with processes of your own, their load and the query that finds violations, instead of orders, relay and payments; or a compose file with x-chaos',
  },
  seed: {
    type: 'int',
    default: '1',
    min: 0,
    max: 2 ** 31 - 1,
    help: 'the same seed and settings give the same faults at the same times on the same targets, and the same intents',
  },
  duration: {
    type: 'duration',
    default: '60s',
    min: 1000,
    max: 604_800_000,
    help: 'how long the load runs at least; it runs on until the last planned fault has ended',
  },
  rate: {
    type: 'rate',
    default: '200',
    min: 1,
    help: 'requests a second, including repeats, half of them over gRPC',
  },
  'retry-rate': {
    type: 'number',
    default: '0.15',
    min: 0,
    max: 1,
    help: 'share of intents that are followed by 1 to 3 repeats of a key',
  },
  'dup-rate': {
    type: 'number',
    excludes: ['target'],
    default: '0.05',
    min: 0,
    max: 1,
    help: 'share of records that payments deliberately receives twice',
  },
  relay: {
    type: 'string',
    excludes: ['target'],
    choices: ['poll', 'wal'],
    default: 'poll',
    help: 'how the relay finds pending rows: poll reads the table, wal follows a replication slot',
  },
  'dedup-ttl': {
    type: 'duration',
    excludes: ['target'],
    min: 1,
    help: 'minimum time for which payments keeps a msg_id (default: the redelivery horizon)',
  },
  'unsafe-ttl': {
    type: 'bool',
    default: 'false',
    needs: ['dedup-ttl'],
    help: 'allow a -dedup-ttl below the redelivery horizon',
  },
  faults: {
    type: 'list',
    choices: FAULT_KINDS,
    help: 'kinds of faults (default: all that fit the settings; on servers of your own crash,kill,pause)',
  },
  'crash-point': {
    type: 'list',
    excludes: ['target'],
    choices: CRASH_POINT_NAMES,
    default: CRASH_POINT_NAMES.join(','),
    help: 'points of the fault crash: respond in orders; commit, publish and mark in relay; effect and offset in payments',
  },
  'fault-every': {
    type: 'duration',
    default: '10s',
    min: 100,
    max: 3_600_000,
    help: 'mean time between two faults of one component; faults of different components overlap',
  },
  'fault-timeout': {
    type: 'duration',
    default: '3m',
    min: 1000,
    help: 'time limit until a fault has met its target and the target is healthy again; a fault beyond it counts as not applied',
  },
  'settle-timeout': {
    type: 'duration',
    default: '5m',
    min: 1000,
    help: 'time limit until nothing is pending after the load',
  },
  report: {
    type: 'list',
    excludes: ['plan'],
    help: 'files for the report: NAME.json for programs, NAME.html and NAME.svg with the plot of rate, lag and faults',
  },
  postgres: {
    type: 'string',
    secret: true,
    help: 'database of your own, postgres://user:password@host:port/name, with -brokers (default: servers that this run starts)',
  },
  schema: {
    type: 'string',
    excludes: ['target'],
    help: 'schema to use and to keep; its tables, if they exist, must be empty (default: a new one, which is dropped if the verdict holds)',
  },
  'broker-count': {
    type: 'int',
    default: '1',
    min: 1,
    max: 9,
    excludes: ['brokers'],
    help: 'brokers that this run starts',
  },
  partitions: {
    type: 'int',
    default: '4',
    min: 1,
    max: 10_000,
    excludes: ['target'],
    help: 'partitions of the topic',
  },
  plan: { type: 'bool', default: 'false', help: 'print the planned faults and run nothing' },
  ...BROKER_SETTINGS,
} as const satisfies SettingTable;

export type ChaosContext = CommandContext<typeof SETTINGS>;
