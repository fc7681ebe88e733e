/** Loads the settings of a command from flags, environment, the file of a job and the `-config`
 *  file. */
import { readFileSync } from 'node:fs';
import { coreError } from '../core/errors.ts';
import {
  formatValue,
  type ParsedSettings,
  parseSettings,
  type SettingsOf,
  type SettingTable,
} from '../core/settings.ts';
import type { BrokerConfig } from '../io/kafka/config/client.ts';
import { brokerFileOf, withBrokersOf, withPropertiesOf } from './broker-settings.ts';
import { type Command, HTTP_SETTINGS, SHARED_SETTINGS } from './command.ts';
import { redactSetting } from './terminal/redact.ts';

const CONFIG_BYTES_MAX = 1024 * 1024;

type WithShared<T extends SettingTable> = SettingsOf<T> &
  SettingsOf<typeof SHARED_SETTINGS> &
  SettingsOf<typeof HTTP_SETTINGS>;

export interface LoadedSettings<T extends SettingTable> extends Omit<ParsedSettings<T>, 'values'> {
  readonly values: WithShared<T>;
}

/** Returns a command's own settings, then the shared ones; a command may replace a shared setting
 *  by name. */
export function settingTableOf(command: Pick<Command, 'settings' | 'listens'>): SettingTable {
  const table: Record<string, SettingTable[string]> = { ...command.settings };
  for (const [name, setting] of Object.entries(SHARED_SETTINGS)) {
    if (name === 'listen' && command.listens === false) continue;
    table[name] ??= setting;
  }
  if (command.listens === false) return table;
  for (const [name, setting] of Object.entries(HTTP_SETTINGS)) table[name] ??= setting;
  return table;
}

function readConfig(path: string): Record<string, unknown> {
  const bad = (why: string, cause?: unknown) =>
    coreError('bad_file', `config file ${path} ${why}`, {
      next: 'give a JSON object of settings by flag name',
      cause,
    });
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw bad(`cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown reason'})`, cause);
  }
  if (text.length > CONFIG_BYTES_MAX) throw bad(`is larger than ${CONFIG_BYTES_MAX} bytes`);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch (cause) {
    // The parser's message would quote the file, which may hold secrets.
    const at = /position (\d+)/.exec((cause as Error).message)?.[1];
    const line = at === undefined ? undefined : text.slice(0, Number(at)).split('\n').length;
    throw bad(`is not JSON${line === undefined ? '' : ` (line ${line})`}`);
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed))
    throw bad('is not a JSON object');
  for (const [name, value] of Object.entries(parsed)) {
    const plain = (item: unknown): boolean => ['string', 'number', 'boolean'].includes(typeof item);
    if (!plain(value) && !(Array.isArray(value) && value.every(plain))) {
      throw bad(`sets ${name} to a value that is neither a text, a number, a boolean nor a list of these`);
    }
  }
  return parsed as Record<string, unknown>;
}

/** @throws unknown_flag, bad_value, usage, bad_file, bad_job, bad_broker_property */
export function loadSettings<T extends SettingTable>(
  command: Pick<Command<T>, 'settings' | 'listens' | 'positionalMax' | 'file'>,
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): LoadedSettings<T> {
  const table = settingTableOf(command as unknown as Command);
  const limits = command.positionalMax === undefined ? {} : { positionalMax: command.positionalMax };
  const inputs = { argv, env, ...limits };
  // Parses without demands first, because required settings may be in one of the files.
  const lenient = Object.fromEntries(
    Object.entries(table).map(([name, { needs, excludes, ...setting }]) => [
      name,
      { ...setting, required: false },
    ]),
  );
  const first = parseSettings(lenient, inputs);
  const path = first.values['config'];
  const job = readJob(command, table, first);
  const all = {
    ...inputs,
    ...(typeof path === 'string' ? { config: readConfig(path) } : {}),
    ...(job === undefined ? {} : { job }),
  };
  const file = brokerFileOf(parseSettings(lenient, all).values['broker-config']);
  const parsed = parseSettings(withBrokersOf(table, file), all);
  const values = withPropertiesOf(table, parsed.values, file);
  return { ...parsed, values, sources: sourcesWith(parsed, file) } as unknown as LoadedSettings<T>;
}

/** Settings of the command's own file; undefined if the flag that names it is not given. */
function readJob(
  { file }: Pick<Command, 'file'>,
  table: SettingTable,
  { values, positional }: Pick<ParsedSettings<SettingTable>, 'values' | 'positional'>,
): Readonly<Record<string, string>> | undefined {
  const path = file === undefined ? undefined : values[file.flag];
  if (file === undefined || typeof path !== 'string' || file.isRead?.(positional) === false) return undefined;
  return file.read(path, table);
}

/** Names the file as the source of the values that it set. */
function sourcesWith(
  { sources, values }: ParsedSettings<SettingTable>,
  file: BrokerConfig | undefined,
): ParsedSettings<SettingTable>['sources'] {
  if (file === undefined) return sources;
  const given = values['broker-property'];
  const isBare = typeof given !== 'object' || Object.keys(given).length === 0;
  return Object.freeze({
    ...sources,
    ...(sources['brokers'] === 'default' ? { brokers: 'config' as const } : {}),
    ...(isBare ? { 'broker-property': 'config' as const } : {}),
  });
}

/** Returns settings for the start-up log line, `{format: 'avro (flag)', …}`. Hides secrets and
 *  omits unset settings. */
export function describeSettings(
  table: SettingTable,
  parsed: Pick<ParsedSettings<SettingTable>, 'sources'> & { readonly values: object },
): Record<string, string> {
  const shown: Record<string, string> = {};
  for (const [name, setting] of Object.entries(table)) {
    const value = redactSetting(setting, (parsed.values as Record<string, unknown>)[name]);
    if (value === undefined) continue;
    const text = formatValue(setting.type, value).replaceAll('\0', ', ');
    shown[name] = `${text} (${parsed.sources[name]})`;
  }
  return shown;
}
