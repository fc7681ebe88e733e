/** Settings of `millrace rollout`. */
import type { SettingTable } from '../../core/settings.ts';
import { LEVELS } from '../../registry/compatibility/modes.ts';
import { UPGRADE_ORDERS } from '../../registry/rollout/model.ts';
import { BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import { CREDENTIAL_SETTINGS } from '../registry-clients/credentials.ts';

const OWN = ['old-command'] as const;

/** Settings of a fleet of the user's own processes. */
const OWN_FLEET_SETTINGS = {
  'old-command': {
    type: 'string',
    needs: ['new-command'],
    help: 'your own fleet: command line that starts an instance of the old version. Blanks separate words, quotes and backslashes keep them, there is no shell; {instance} {role} {version} {port} {brokers} {topic} {group} {registry} {subject} {schema_version} {schema_id} {schema_file} {rate} are replaced, and are MILLRACE_INSTANCE and so on in the environment',
  },
  'new-command': {
    type: 'string',
    needs: OWN,
    help: 'command line that starts an instance of the new version',
  },
  'old-producer-command': {
    type: 'string',
    needs: OWN,
    help: 'command line of a producer of the old version, where it is another one than that of a consumer (default: -old-command)',
  },
  'new-producer-command': {
    type: 'string',
    needs: OWN,
    help: 'command line of a producer of the new version (default: -new-command)',
  },
  topic: {
    type: 'string',
    needs: OWN,
    help: 'existing topic of the fleet (default: a new one, which is deleted at the end)',
  },
  'group-names': {
    type: 'list',
    needs: OWN,
    help: 'names of the consumer groups, instead of -groups; rollout only reads their committed offsets',
  },
  'ready-path': {
    type: 'string',
    default: '/ready',
    needs: OWN,
    help: 'path on 127.0.0.1:{port} that answers with success once the instance works; empty: it is ready when its metrics can be read',
  },
  'ready-timeout': {
    type: 'duration',
    default: '60s',
    min: 100,
    needs: OWN,
    help: 'longest time from the start of an instance until it is ready',
  },
  'metrics-path': {
    type: 'string',
    default: '/metrics',
    needs: OWN,
    help: 'path of the Prometheus metrics on 127.0.0.1:{port}',
  },
  'errors-metric': {
    type: 'string',
    default: 'deserialize_errors_total',
    needs: OWN,
    help: 'counter of the records that a consumer cannot read: a name, with labels such as {reason="unreadable",topic!="test"} where not all samples count',
  },
  'consumed-metric': {
    type: 'string',
    default: 'consumed_records_total',
    needs: OWN,
    help: 'counter of the records that a consumer has read; empty: not measured',
  },
  'lag-metric': {
    type: 'string',
    default: 'consumer_lag_records',
    needs: OWN,
    help: 'gauge of the records that a consumer has not read yet; empty: not measured',
  },
  'produced-metric': {
    type: 'string',
    default: 'produced_records_total',
    needs: OWN,
    help: 'counter of the records that a producer has written; empty: not measured',
  },
} as const satisfies SettingTable;

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
    help: 'old schema: a version of Order (1 to 6), a schema file, or with -subject a registered version or latest',
  },
  'to-version': {
    type: 'string',
    default: '2',
    help: 'new schema: as -from-version, or a candidate such as add-required',
  },
  plan: { type: 'bool', default: 'false', help: 'print the safe order and why, and start nothing' },
  subject: {
    type: 'string',
    needs: ['plan', 'old-command'],
    help: 'with -plan or -old-command: subject of the registered versions; nothing is registered then',
  },
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
  instances: {
    type: 'int',
    default: '1',
    min: 1,
    max: 256,
    excludes: OWN,
    help: 'producers or group members in each process; a step of the upgrade replaces a process',
  },
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
  'stop-timeout': {
    type: 'duration',
    default: '10s',
    help: 'time that an instance gets after SIGTERM before it is killed',
  },
  surge: {
    type: 'bool',
    default: 'true',
    help: 'start the new instance before the old one stops; false: stop the old one first',
  },
  plot: { type: 'string', help: 'SVG file for the plot of rate, lag and errors with the steps' },
  partitions: { type: 'int', default: '8', min: 1, max: 100_000, help: 'partitions of a new topic' },
  'retention-bytes': {
    type: 'size',
    min: 1_048_576,
    max: 1_099_511_627_776,
    excludes: ['topic'],
    help: 'size of a new topic, over all partitions, at which its oldest records are deleted (default: none; records live an hour)',
  },
  ...OWN_FLEET_SETTINGS,
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
