/** Session settings that travel in the PostgreSQL address, so that every connection of a pool has them from its start. */
import { coreError } from '../../core/errors.ts';
import { requirePlainSchema } from './schema-name.ts';

export interface SessionSettings {
  readonly schema: string;
  /** How long a statement waits for another transaction's row. */
  readonly lockTimeoutMs?: number;
  /** false: COMMIT does not wait for the disk; only where losing the last commits costs nothing but work done twice. */
  readonly synchronousCommit?: boolean;
  /** Further settings of the server by name; values without blanks. */
  readonly more?: Readonly<Record<string, string>>;
}

/** The address with these settings as connection options.
 *  @throws bad_value: no URL, or a schema name that is reserved or needs quoting */
export function withSettings(url: string, settings: SessionSettings): string {
  requirePlainSchema(settings.schema);
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw coreError('bad_value', '-postgres is not a URL', {
      next: 'give postgres://user:password@host:port/database',
    });
  }
  const options = [
    parsed.searchParams.get('options') ?? '',
    `-c search_path=${settings.schema}`,
    settings.lockTimeoutMs === undefined
      ? ''
      : `-c lock_timeout=${Math.max(1, Math.round(settings.lockTimeoutMs))}`,
    settings.synchronousCommit === false ? '-c synchronous_commit=off' : '',
    ...Object.entries(settings.more ?? {}).map(([name, value]) => `-c ${name}=${value}`),
  ];
  parsed.searchParams.set('options', options.filter((part) => part !== '').join(' '));
  // A form-encoded plus is a space only to some readers of URLs; %20 is one to all.
  parsed.search = parsed.search.replaceAll('+', '%20');
  return parsed.toString();
}
