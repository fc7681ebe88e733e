/** Credentials that a command sends to the registry. */
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import { type Credentials, credentialsAt } from '../../shell/credentials.ts';

export const CREDENTIAL_SETTINGS = {
  'registry-user': {
    type: 'string',
    secret: true,
    help: 'USER:PASSWORD for the registry; set it in the environment, because other users can see arguments',
  },
  'registry-token-file': {
    type: 'string',
    help: 'file with a bearer token for the registry, read again for each request',
  },
} as const satisfies SettingTable;

export type CredentialSettings = SettingsOf<typeof CREDENTIAL_SETTINGS> & { readonly registry: string };

const FLAGS = {
  server: 'registry',
  address: 'registry',
  user: 'registry-user',
  tokenFile: 'registry-token-file',
} as const;

/** Address of the registry without credentials, and a function that returns the Authorization
 *  header. @throws usage, bad_value, bad_file */
export const credentialsOf = (settings: CredentialSettings): Credentials =>
  credentialsAt(FLAGS, {
    address: settings.registry,
    user: settings['registry-user'],
    tokenFile: settings['registry-token-file'],
  });
