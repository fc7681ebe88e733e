/** Settings of `millrace engine submit`, and of `millrace engine verify -against=flink`. */
import type { SettingTable } from '../../../core/settings.ts';

export const FLINK_SETTINGS = {
  explain: {
    type: 'bool',
    default: 'false',
    help: 'engine submit: print the SQL, the jars and what differs, and submit nothing',
  },
  flink: {
    type: 'string',
    help: 'engine submit: address of the SQL gateway of Apache Flink, such as http://flink:8083',
  },
  'flink-rest': {
    type: 'string',
    help: 'engine submit status, savepoint-and-stop, cancel and logs: address of the REST interface of Flink, such as http://flink:8081',
  },
  'flink-name': {
    type: 'string',
    help: 'name of the job in Flink (default: millrace, the topic and the window)',
  },
  'flink-job': {
    type: 'string',
    help: 'id of the job in Flink that status, savepoint-and-stop, cancel and logs are for (default: the job named -flink-name)',
  },
  'flink-parallelism': {
    type: 'int',
    min: 1,
    max: 32_768,
    help: 'parallelism of the job; with one subtask for each partition, late events are dropped as they are here (default: that of the cluster)',
  },
  'flink-from': {
    type: 'string',
    help: 'savepoint of Flink that the job begins with, as savepoint-and-stop prints it; a savepoint of this engine is none',
  },
  'flink-savepoint-dir': {
    type: 'string',
    help: 'folder or address in which savepoint-and-stop makes the savepoint (default: that of the cluster)',
  },
  'flink-set': {
    type: 'properties',
    default: '',
    help: 'setting of Flink as name=value, such as state.backend.type=rocksdb',
  },
  'flink-jars': {
    type: 'string',
    help: 'folder to which Maven copies the jars that are missing there, and from which the gateway adds them to the job; the gateway must see the folder under the same path (default: the cluster has the jars)',
  },
  'flink-sink': {
    type: 'string',
    secret: true,
    plain: /^((rocksdb|parquet)(:[^@]*)?|kafka:[\w.-]*)$/,
    help: 'where the Flink job writes: postgres:URL (default: -sink)',
  },
  'flink-table': {
    type: 'string',
    help: 'table of the results of the Flink job (default: -sink-table)',
  },
  against: {
    type: 'string',
    choices: ['flink'],
    help: 'engine verify: compare the sink with the results of the Flink job (-flink-sink, -flink-table) by a digest, instead of with the oracle',
  },
} as const satisfies SettingTable;

/** Flags of `engine submit` and of a comparison with Flink. */
export const FLINK_FLAGS = Object.keys(FLINK_SETTINGS);
/** Flags of one call, which a job file does not have. */
export const FLINK_CALL_FLAGS = [
  'explain',
  'flink-job',
  'flink-from',
  'flink-savepoint-dir',
  'against',
] as const;
