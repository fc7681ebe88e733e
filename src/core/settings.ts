/** Settings: one table a command makes the parser, the help text, the reference page and the start-up log line.
 *
 *  Invariants: (1) precedence is flag > environment > config file > default, and the source of each value is kept;
 *  (2) the result is frozen; (3) an unknown flag is an error that names the nearest known one.
 *  Flags are accepted as `-format=avro`, `-format avro`, `--format=avro` and `--format avro`.
 */
import { coreError } from './errors.ts';

export type SettingType =
  | 'string'
  | 'int'
  | 'number'
  | 'bool'
  /** `250ms 5s 2m 24h`, parsed to milliseconds. */
  | 'duration'
  /** `512MiB 4GiB 64k`, parsed to bytes. */
  | 'size'
  /** `200k`, `1.5M`, parsed to a number per second. */
  | 'rate'
  /** Comma-separated, parsed to an array of strings. */
  | 'list'
  /** Comma-separated integers. */
  | 'ints'
  /** `host:port`, `:port` or `port`, kept as text in the form host:port. */
  | 'listen';

export interface Setting {
  readonly type: SettingType;
  readonly help: string;
  /** Absent: the value is undefined unless given. Written as a user would write it. */
  readonly default?: string;
  readonly choices?: readonly string[];
  readonly min?: number;
  readonly max?: number;
  readonly required?: boolean;
  /** Further environment names; MILLRACE_<NAME> always counts. */
  readonly env?: readonly string[];
  /** Never printed. */
  readonly secret?: boolean;
}

export type SettingTable = Readonly<Record<string, Setting>>;

type ValueOfType<T extends SettingType> = T extends 'string' | 'listen'
  ? string
  : T extends 'bool'
    ? boolean
    : T extends 'list'
      ? readonly string[]
      : T extends 'ints'
        ? readonly number[]
        : number;

type ValueOf<S extends Setting> = ValueOfType<S['type']>;

/** Values of a table: a setting with a default (or required) is always there, any other may be undefined. */
export type SettingsOf<T extends SettingTable> = {
  readonly [K in keyof T]: T[K] extends { readonly default: string } | { readonly required: true }
    ? ValueOf<T[K]>
    : ValueOf<T[K]> | undefined;
};

export type SettingSource = 'flag' | 'environment' | 'config' | 'default' | 'unset';

export interface ParsedSettings<T extends SettingTable> {
  readonly values: SettingsOf<T>;
  readonly sources: Readonly<Record<string, SettingSource>>;
  /** Arguments that are not flags, in order. */
  readonly positional: readonly string[];
}

export interface SettingInputs {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Parsed content of the `-config` file: flag names to values. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** How many positional arguments the command takes. */
  readonly positionalMax?: number;
}

export function environmentName(setting: string): string {
  return `MILLRACE_${setting.replaceAll('-', '_').toUpperCase()}`;
}

const DURATION_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};
const SIZE_BYTES: Readonly<Record<string, number>> = {
  '': 1,
  b: 1,
  k: 1e3,
  kb: 1e3,
  m: 1e6,
  mb: 1e6,
  g: 1e9,
  gb: 1e9,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  ki: 2 ** 10,
  mi: 2 ** 20,
  gi: 2 ** 30,
};
const RATE_UNITS: Readonly<Record<string, number>> = { '': 1, k: 1e3, m: 1e6, g: 1e9 };

function quantity(text: string, units: Readonly<Record<string, number>>): number | undefined {
  const match = /^(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)$/i.exec(text.trim());
  if (match === null) return undefined;
  const unit = units[(match[2] as string).toLowerCase()];
  return unit === undefined ? undefined : Number(match[1]) * unit;
}

const FORMS: Readonly<Record<SettingType, string>> = {
  string: 'a text',
  int: 'a whole number',
  number: 'a number',
  bool: 'true or false',
  duration: 'a duration such as 250ms, 5s, 2m',
  size: 'a size such as 64KiB, 512MiB, 4GiB',
  rate: 'a rate such as 5000 or 200k',
  list: 'values with commas between',
  ints: 'whole numbers with commas between',
  listen: 'host:port',
};

function parseOne(type: SettingType, text: string): unknown {
  switch (type) {
    case 'string':
      return text;
    case 'int':
      return /^-?\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined;
    case 'number':
      return /^-?(\d+(\.\d+)?|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : undefined;
    case 'bool':
      if (/^(true|yes|on|1)$/i.test(text)) return true;
      return /^(false|no|off|0)$/i.test(text) ? false : undefined;
    case 'duration':
      return text === '0' ? 0 : quantity(text, DURATION_MS);
    case 'size': {
      const bytes = quantity(text, SIZE_BYTES);
      return bytes === undefined ? undefined : Math.floor(bytes);
    }
    case 'rate':
      return quantity(text, RATE_UNITS);
    case 'list':
      return Object.freeze(
        text
          .split(',')
          .map((part) => part.trim())
          .filter((part) => part !== ''),
      );
    case 'ints': {
      const parts = text.split(',').map((part) => part.trim());
      return parts.every((part) => /^-?\d+$/.test(part)) ? Object.freeze(parts.map(Number)) : undefined;
    }
    case 'listen': {
      const match = /^(?:(.*):)?(\d{1,5})$/.exec(text);
      if (match === null || Number(match[2]) > 65_535) return undefined;
      return `${match[1] === undefined || match[1] === '' ? '127.0.0.1' : match[1]}:${match[2]}`;
    }
  }
}

function parseValue(name: string, setting: Setting, text: string, source: SettingSource): unknown {
  const where =
    source === 'flag' ? `-${name}` : source === 'environment' ? environmentName(name) : `${source} ${name}`;
  const bad = (why: string, next: string) =>
    coreError('bad_value', `${where}=${text} ${why}`, { next, details: { setting: name } });
  const value = parseOne(setting.type, text);
  if (value === undefined) throw bad(`is not ${FORMS[setting.type]}`, `give ${FORMS[setting.type]}`);
  if (setting.choices !== undefined) {
    const given = Array.isArray(value) ? value : [value];
    const stranger = given.find((one) => !(setting.choices as readonly string[]).includes(String(one)));
    if (stranger !== undefined) throw bad('is not a choice', `choose from ${setting.choices.join(', ')}`);
  }
  if (typeof value === 'number') {
    if (setting.min !== undefined && value < setting.min)
      throw bad('is too small', `the least is ${setting.min}`);
    if (setting.max !== undefined && value > setting.max)
      throw bad('is too large', `the most is ${setting.max}`);
  }
  return value;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] as number) + 1, (next[j - 1] as number) + 1, swap));
    }
    row = next;
  }
  return row[b.length] as number;
}

/** The known name nearest to a mistyped one, or undefined when none is near. */
export function nearest(given: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(given.length / 3)) + 1;
  for (const name of known) {
    const distance = name.startsWith(given) && given.length >= 3 ? 1 : editDistance(given, name);
    if (distance < bestDistance) {
      best = name;
      bestDistance = distance;
    }
  }
  return best;
}

function readFlags(
  table: SettingTable,
  argv: readonly string[],
): { flags: Map<string, string>; positional: string[] } {
  const flags = new Map<string, string>();
  const positional: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const token = argv[i] as string;
    if (token === '--') {
      positional.push(...argv.slice(i + 1));
      break;
    }
    if (!token.startsWith('-') || token === '-' || /^-\.?\d/.test(token)) {
      positional.push(token);
      continue;
    }
    const body = token.replace(/^--?/, '');
    const equals = body.indexOf('=');
    const name = equals < 0 ? body : body.slice(0, equals);
    const negated =
      name.startsWith('no-') && table[name.slice(3)]?.type === 'bool' && table[name] === undefined;
    const setting = negated ? table[name.slice(3)] : table[name];
    if (setting === undefined) {
      const near = nearest(name, Object.keys(table));
      throw coreError('unknown_flag', `unknown flag -${name}`, {
        next:
          near === undefined
            ? 'see -help for the flags of this command'
            : `did you mean -${near}? (-help lists all)`,
      });
    }
    const key = negated ? name.slice(3) : name;
    if (flags.has(key)) throw coreError('usage', `-${key} is given twice`, { next: 'give it once' });
    if (equals >= 0) {
      const value = body.slice(equals + 1);
      flags.set(key, negated ? (/^(false|no|off|0)$/i.test(value) ? 'true' : 'false') : value);
    } else if (setting.type === 'bool') {
      flags.set(key, negated ? 'false' : 'true');
    } else {
      const value = argv[++i];
      if (value === undefined)
        throw coreError('usage', `-${name} needs a value`, { next: `give -${name}=${FORMS[setting.type]}` });
      flags.set(key, value);
    }
  }
  return { flags, positional };
}

/** Parses one command's arguments against its table.
 *  @throws unknown_flag, bad_value, usage */
export function parseSettings<const T extends SettingTable>(
  table: T,
  inputs: SettingInputs,
): ParsedSettings<T> {
  const { flags, positional } = readFlags(table, inputs.argv);
  if (positional.length > (inputs.positionalMax ?? 0)) {
    throw coreError('usage', `unexpected argument ${JSON.stringify(positional[inputs.positionalMax ?? 0])}`, {
      next: 'flags start with a dash; see -help',
    });
  }
  for (const name of Object.keys(inputs.config ?? {})) {
    if (table[name] === undefined) {
      const near = nearest(name, Object.keys(table));
      throw coreError('unknown_flag', `the config file sets ${name}, which this command does not know`, {
        next: near === undefined ? 'remove it' : `did you mean ${near}?`,
      });
    }
  }
  const values: Record<string, unknown> = {};
  const sources: Record<string, SettingSource> = {};
  for (const [name, setting] of Object.entries(table)) {
    let text = flags.get(name);
    let source: SettingSource = 'flag';
    if (text === undefined) {
      source = 'environment';
      for (const variable of [environmentName(name), ...(setting.env ?? [])]) text ??= inputs.env[variable];
    }
    if (text === undefined && inputs.config?.[name] !== undefined) {
      source = 'config';
      const raw = inputs.config[name];
      text = Array.isArray(raw) ? raw.join(',') : String(raw);
    }
    if (text === undefined && setting.default !== undefined) {
      source = 'default';
      text = setting.default;
    }
    if (text === undefined) {
      if (setting.required === true) {
        throw coreError('usage', `-${name} is required`, { next: `give -${name}=… (${setting.help})` });
      }
      sources[name] = 'unset';
      values[name] = undefined;
      continue;
    }
    values[name] = parseValue(name, setting, text, source);
    sources[name] = source;
  }
  return {
    values: Object.freeze(values) as SettingsOf<T>,
    sources: Object.freeze(sources),
    positional: Object.freeze(positional),
  };
}

/** The `-help` text of a table: one paragraph a flag, in the form the requirements use. */
export function renderHelp(table: SettingTable): string {
  const lines: string[] = [];
  for (const [name, setting] of Object.entries(table)) {
    const form = setting.choices !== undefined ? setting.choices.join('|') : setting.type;
    const tail = [
      setting.default === undefined
        ? setting.required === true
          ? 'required'
          : ''
        : `default ${setting.default === '' ? 'empty' : setting.default}`,
      `env ${[environmentName(name), ...(setting.env ?? [])].join(', ')}`,
    ].filter((part) => part !== '');
    lines.push(`  -${name}=${form}`, `      ${setting.help} (${tail.join('; ')})`);
  }
  return lines.join('\n');
}
