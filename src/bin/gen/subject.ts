/** Settings of the commands that take a schema from a subject of the registry. */
import type { SettingTable } from '../../core/settings.ts';
import { CREDENTIAL_SETTINGS } from '../registry-clients/credentials.ts';
import { CLIENT_SETTINGS } from '../registry-clients/shared.ts';

export const SUBJECT_SETTINGS = {
  subject: { type: 'string', help: 'subject of the schema in -registry' },
  'schema-version': {
    type: 'string',
    default: 'latest',
    needs: ['subject'],
    help: 'version of -subject: a number or latest',
  },
  registry: { ...CLIENT_SETTINGS.registry, needs: ['subject'] },
  'registry-user': { ...CREDENTIAL_SETTINGS['registry-user'], needs: ['subject'] },
  'registry-token-file': { ...CREDENTIAL_SETTINGS['registry-token-file'], needs: ['subject'] },
  'connect-timeout': {
    type: 'duration',
    default: '10s',
    min: 100,
    needs: ['subject'],
    help: 'timeout of a request to the registry',
  },
} as const satisfies SettingTable;
