/** Credentials that a command sends to a server: a user, a bearer token of a file, or a user in the
 *  address. */
import { readFileSync } from 'node:fs';
import { coreError } from '../core/errors.ts';

/** Names of the settings, and of the server, in messages. */
export interface CredentialFlags {
  readonly server: string;
  readonly address: string;
  readonly user: string;
  readonly tokenFile: string;
}

/** Values of the settings. */
export interface GivenCredentials {
  readonly address: string;
  readonly user: string | undefined;
  readonly tokenFile: string | undefined;
}

export interface Credentials {
  readonly url: string;
  readonly authorization: () => string | undefined;
}

const TOKEN_CHARS_MAX = 65_536;

const basic = (text: string): string => `Basic ${Buffer.from(text, 'utf8').toString('base64')}`;

/** @throws bad_file */
function tokenOf(path: string, flag: string): string {
  const bad = (why: string, cause?: unknown): Error =>
    coreError('bad_file', `the token file ${path} ${why}`, {
      next: `give -${flag}=FILE with one token in it`,
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
function decoded(text: string, { address, user }: CredentialFlags): string {
  try {
    return decodeURIComponent(text);
  } catch (cause) {
    throw coreError('bad_value', `the user in -${address} has a percent sign that begins no character`, {
      next: `write %25 for a percent sign, or give -${user}`,
      cause,
    });
  }
}

/** Address without credentials, and a function that returns the Authorization header; the file is
 *  read at each call. @throws usage, bad_value, bad_file */
export function credentialsAt(flags: CredentialFlags, given: GivenCredentials): Credentials {
  const url = new URL(given.address);
  const { username, password } = url;
  url.username = '';
  url.password = '';
  const { user, tokenFile } = given;
  const kinds = [username !== '', user !== undefined, tokenFile !== undefined].filter(Boolean).length;
  if (kinds > 1) {
    throw coreError('usage', `more than one kind of credentials is given for the ${flags.server}`, {
      next: `give -${flags.user}, or -${flags.tokenFile}, or a user in -${flags.address}`,
    });
  }
  if (user !== undefined && !/^[^:]+:/.test(user)) {
    throw coreError('bad_value', `-${flags.user} is not USER:PASSWORD`, { next: 'put a colon between them' });
  }
  if (tokenFile !== undefined) {
    tokenOf(tokenFile, flags.tokenFile);
    return { url: url.href, authorization: () => `Bearer ${tokenOf(tokenFile, flags.tokenFile)}` };
  }
  const pair =
    user ?? (username === '' ? undefined : `${decoded(username, flags)}:${decoded(password, flags)}`);
  const value = pair === undefined ? undefined : basic(pair);
  return { url: url.href, authorization: () => value };
}
