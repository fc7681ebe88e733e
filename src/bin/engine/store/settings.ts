/** Settings of the checkpoint store of `millrace engine`. */
import type { SettingTable } from '../../../core/settings.ts';

export const STORE_SETTINGS = {
  'checkpoint-store': {
    type: 'string',
    excludes: ['source=group', 'savepoint'],
    help: 'where checkpoints are stored beside -state-dir, so that the job continues on another machine: a folder, such as one of a network file system, or s3://BUCKET/PREFIX (credentials and endpoint from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL). One job, whose engines exclude each other there',
  },
  'checkpoint-store-interval': {
    type: 'duration',
    default: '5s',
    min: 100,
    max: 3_600_000,
    needs: ['checkpoint-store'],
    help: 'time between two stored checkpoints; after the loss of a machine, events since the last one are read again',
  },
  standby: {
    type: 'bool',
    default: 'false',
    needs: ['checkpoint-store'],
    help: 'wait while another engine runs the job of -checkpoint-store, keep its newest checkpoint here, and take over when it ends',
  },
} as const satisfies SettingTable;
