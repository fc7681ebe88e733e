/** PostgreSQL session settings as part of the connection URL, so that every connection of a pool
 *  starts with them. */
import { coreError } from '../../core/errors.ts';
import { requirePlainSchema } from './schema-name.ts';

export interface SessionSettings {
  readonly schema: string;
  /** Time that a statement waits for a row lock of another transaction. */
  readonly lockTimeoutMs?: number;
  /** false: COMMIT does not wait for the disk. Use it only where the loss of the last commits costs
   *  repeated work and nothing else. */
  readonly synchronousCommit?: boolean;
  /** Further server settings by name; values contain no spaces. */
  readonly more?: Readonly<Record<string, string>>;
}

/** Adds these settings to the URL as connection options.
 *  @throws bad_value: the URL is invalid, or the schema name is reserved or needs quoting */
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
  // Some URL parsers do not read a form-encoded plus as a space; all of them read %20.
  parsed.search = parsed.search.replaceAll('+', '%20');
  return parsed.toString();
}
