/** Settings of `millrace consumer -redrive` and `-quarantine`. */
import type { SettingTable } from '../../../core/settings.ts';
import { REDRIVE_REASONS } from '../../../registry/quarantine/record.ts';

const EITHER = ['redrive', 'quarantine'];

export const QUARANTINE_SETTINGS = {
  redrive: {
    type: 'bool',
    default: 'false',
    excludes: ['quarantine'],
    help: 'write the quarantined records that can be read again to -out, each once; those that cannot stay quarantined and make the exit code 1',
  },
  quarantine: {
    type: 'bool',
    default: 'false',
    help: 'list the quarantined records that were not redriven: counts by reason, schema id and producer, and where each breaks',
  },
  reason: {
    type: 'list',
    choices: REDRIVE_REASONS,
    needs: EITHER,
    help: 'only records that were quarantined for one of these reasons: a comma-separated list',
  },
  partition: {
    type: 'ints',
    needs: EITHER,
    help: 'only records of these partitions of the source topic',
  },
  since: {
    type: 'string',
    needs: EITHER,
    help: 'only records with this timestamp or a later one: 2026-01-31T12:00:00Z or @1769860800000 (ms)',
  },
  until: {
    type: 'string',
    needs: EITHER,
    help: 'only records with an earlier timestamp than this',
  },
  'dry-run': {
    type: 'bool',
    default: 'false',
    needs: ['redrive'],
    help: 'read and count as a redrive does, and write nothing',
  },
  'list-max': {
    type: 'int',
    default: '20',
    min: 0,
    max: 100_000,
    needs: ['quarantine'],
    help: 'records that -quarantine lists; the counts are of all records',
  },
  'producer-header': {
    type: 'list',
    default: 'ce_source,client.id,producer',
    needs: ['quarantine'],
    help: 'headers that name the producer of a record; the first that a record has counts',
  },
} as const satisfies SettingTable;
