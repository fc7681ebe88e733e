/** Credentials that a command sends to the registry. */
import { readFileSync } from 'node:fs';
import { coreError } from '../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';

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

const TOKEN_CHARS_MAX = 65_536;

const basic = (text: string): string => `Basic ${Buffer.from(text, 'utf8').toString('base64')}`;

/** @throws bad_file */
function tokenOf(path: string): string {
  const bad = (why: string, cause?: unknown): Error =>
    coreError('bad_file', `the token file ${path} ${why}`, {
      next: 'give -registry-token-file=FILE with one token in it',
      cause,
    });
  let text: string;
  try {
    text = readFileSync(path, 'utf8').trim();
  } catch (cause) {
    throw bad(`cannot be read (${(cause as NodeJS.ErrnoException).code})`, cause);
  }
  if (text.length > TOKEN_CHARS_MAX || !/^[\w.~+/-]+=*$/.test(text)) throw bad('holds no token');
  return text;
}

/** @throws bad_value */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (cause) {
    throw coreError('bad_value', 'the user in -registry has a percent sign that begins no character', {
      next: 'write %25 for a percent sign, or give -registry-user',
      cause,
    });
  }
}

/** Address of the registry without credentials, and a function that returns the Authorization
 *  header. @throws usage, bad_value, bad_file */
export function credentialsOf(settings: CredentialSettings): {
  readonly url: string;
  readonly authorization: () => string | undefined;
} {
  const url = new URL(settings.registry);
  const { username, password } = url;
  url.username = '';
  url.password = '';
  const user = settings['registry-user'];
  const tokenFile = settings['registry-token-file'];
  const given = [username !== '', user !== undefined, tokenFile !== undefined].filter(Boolean).length;
  if (given > 1) {
    throw coreError('usage', 'more than one kind of credentials is given for the registry', {
      next: 'give -registry-user, or -registry-token-file, or a user in -registry',
    });
  }
  if (user !== undefined && !/^[^:]+:/.test(user)) {
    throw coreError('bad_value', '-registry-user is not USER:PASSWORD', { next: 'put a colon between them' });
  }
  if (tokenFile !== undefined) {
    tokenOf(tokenFile);
    return { url: url.href, authorization: () => `Bearer ${tokenOf(tokenFile)}` };
  }
  const pair = user ?? (username === '' ? undefined : `${decoded(username)}:${decoded(password)}`);
  const value = pair === undefined ? undefined : basic(pair);
  return { url: url.href, authorization: () => value };
}
