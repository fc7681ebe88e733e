/** Settings of `millrace rollout`. */
import type { SettingTable } from '../../core/settings.ts';
import { LEVELS } from '../../registry/compatibility/modes.ts';
import { UPGRADE_ORDERS } from '../../registry/rollout/model.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import { CREDENTIAL_SETTINGS } from '../registry-clients/credentials.ts';

export const ROLLOUT_SETTINGS = {
  order: {
    type: 'string',
    choices: [...UPGRADE_ORDERS, 'any'],
    default: 'any',
    help: 'order of the upgrade; any: the order that the plan recommends',
  },
  mode: { type: 'string', choices: LEVELS, default: 'BACKWARD', help: 'compatibility mode of the subject' },
  format: {
    type: 'string',
    choices: ['avro', 'protobuf'],
    default: 'avro',
    help: 'format of the schemas and records',
  },
  'from-version': {
    type: 'string',
    default: '1',
    help: 'old schema: a version of Order (1 to 6), a schema file, or with -subject a registered version',
  },
  'to-version': {
    type: 'string',
    default: '2',
    help: 'new schema: as -from-version, or a candidate such as add-required',
  },
  plan: { type: 'bool', default: 'false', help: 'print the safe order and why, and start nothing' },
  subject: { type: 'string', help: 'with -plan: subject of the registered versions' },
  refused: {
    type: 'string',
    choices: ['stop', 'run'],
    default: 'stop',
    help: 'a new schema that the mode refuses; run: register it on a subject of its own set to NONE and upgrade all the same',
  },
  rollback: {
    type: 'string',
    choices: ['on', 'off'],
    default: 'on',
    help: 'on: stop at the first unreadable record and return to the old version; off: continue to the end',
  },
  rate: { type: 'rate', default: '1000', min: 1, help: 'records a second over all producers (open model)' },
  producers: { type: 'int', default: '2', min: 1, max: 64, help: 'producer processes' },
  consumers: { type: 'int', default: '2', min: 1, max: 64, help: 'consumer processes of each group' },
  groups: { type: 'int', default: '2', min: 1, max: 16, help: 'consumer groups' },
  duration: {
    type: 'duration',
    default: '60s',
    min: 1000,
    max: 86_400_000,
    help: 'time under load, spread over the steps; starting and stopping processes comes on top',
  },
  'sample-every': { type: 'duration', default: '1s', min: 100, help: 'time between two scrapes' },
  'lag-max': {
    type: 'int',
    default: '0',
    min: 0,
    help: 'lag in records, over all groups, above which the next step waits; 0: ten seconds of the rate for each group',
  },
  'settle-timeout': {
    type: 'duration',
    default: '60s',
    min: 1000,
    help: 'longest wait for a low lag, and for the groups to read all records between the two roles',
  },
  surge: {
    type: 'bool',
    default: 'true',
    help: 'start the new instance before the old one stops; false: stop the old one first',
  },
  plot: { type: 'string', help: 'SVG file for the plot of rate, lag and errors with the steps' },
  partitions: { type: 'int', default: '8', min: 1, max: 100_000, help: 'partitions of the topic' },
  registry: {
    type: 'string',
    help: 'address of the schema registry (default: one in memory for this run)',
  },
  ...CREDENTIAL_SETTINGS,
  'connect-timeout': {
    type: 'duration',
    default: '10s',
    min: 100,
    help: 'how long to try to reach registry and broker',
  },
  ...BROKER_SETTINGS,
} as const satisfies SettingTable;
