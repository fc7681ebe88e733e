/** Settings of a command: one table yields the parser, the help text, the reference page and the
 *  start-up log line.
 *
 *  Invariants:
 *  (1) Precedence is flag > environment > job file > config file > default, and the source of each
 *      value is kept. Properties are merged by name in this precedence.
 *  (2) The result is frozen.
 *  (3) An unknown flag is an error that names the nearest known flag. A flag without effect beside
 *      the others is an error that names them. Flags are accepted as `-format=avro`, `-format
 *      avro`, `--format=avro` and `--format avro`. A flag that takes a list may be given several
 *      times; any other is given once. An empty environment variable counts as unset. No error
 *      repeats the value of a secret setting, nor a word before it on the command line: that
 *      word may be the rest of a value whose blanks were not quoted.
 */
import { coreError, type MillraceError } from './errors.ts';
import { formatDuration, formatRate, formatSize, parseDuration, parseRate, parseSize } from './quantity.ts';
import { HIDDEN } from './secrets.ts';

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
  | 'listen'
  /** `name=value`, parsed to an object: one property a flag, a line, or an entry of a list in the
   *  config file. The values of properties in `shown` hold no commas, so a comma ends them and the
   *  next property begins. Every other value extends to the end. */
  | 'properties';

export interface Setting {
  readonly type: SettingType;
  readonly help: string;
  /** Absent: the value is undefined unless given. Written as a user would write it. */
  readonly default?: string;
  readonly choices?: readonly string[];
  /** Form of each entry of a list: a pattern without anchors that matches no comma, and its text
   *  for a user. */
  readonly entry?: { readonly pattern: string; readonly form: string };
  readonly min?: number;
  readonly max?: number;
  readonly required?: boolean;
  /** Further environment names; MILLRACE_<NAME> always counts. */
  readonly env?: readonly string[];
  /** Never printed. */
  readonly secret?: boolean;
  /** Texts of a secret setting that hold no secret. */
  readonly plain?: RegExp;
  /** True for a text that is a list with commas: a job file may give its parts as a list. */
  readonly hasParts?: true;
  /** Names of `properties` whose values may be printed. Every other value is secret. */
  readonly shown?: ReadonlySet<string>;
  /** Conditions of which at least one must be on, or the flag is refused: a setting's name (true,
   *  given, not zero), `name=value`, or `name=start*` for values with that start. A value in the
   *  environment or the config file is not checked: it may be meant for other runs. */
  readonly needs?: readonly string[];
  /** Conditions, as of `needs`, that exclude this setting, unless the other setting comes from a
   *  stronger source, such as a flag beside an environment variable. */
  readonly excludes?: readonly string[];
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
        : T extends 'properties'
          ? Properties
          : number;

/** Values by the names of properties. */
export type Properties = Readonly<Record<string, string>>;

type ValueOf<S extends Setting> = ValueOfType<S['type']>;

/** Values of a table. A setting with a default, or a required one, always has a value; any other
 *  may be undefined. */
export type SettingsOf<T extends SettingTable> = {
  readonly [K in keyof T]: T[K] extends { readonly default: string } | { readonly required: true }
    ? ValueOf<T[K]>
    : ValueOf<T[K]> | undefined;
};

export type SettingSource = 'flag' | 'environment' | 'job file' | 'config' | 'default' | 'unset';

export interface ParsedSettings<T extends SettingTable> {
  readonly values: SettingsOf<T>;
  readonly sources: Readonly<Record<string, SettingSource>>;
  /** Arguments that are not flags, in order. */
  readonly positional: readonly string[];
}

export interface SettingInputs {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Content of a job file: flag names to the texts of their values. */
  readonly job?: Readonly<Record<string, string>>;
  /** Parsed content of the `-config` file: flag names to values. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Maximum number of positional arguments of the command. */
  readonly positionalMax?: number;
}

export function environmentName(setting: string): string {
  return `MILLRACE_${setting.replaceAll('-', '_').toUpperCase()}`;
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
  properties: 'name=value',
};

/** Separator of flags or list entries; no argument of a process can contain it. */
const ENTRY_END = '\0';
const ENTRY = /^\s*([A-Za-z][\w.-]*)=(.*)$/s;

/** Splits the text into entries without trailing line ends. A line of a value, such as a line of a
 *  PEM text, begins no entry: it has no dotted name before an `=`. */
function entriesOf(text: string, shown: ReadonlySet<string>): string[] {
  const entries: string[] = [];
  for (const part of text.split(ENTRY_END)) {
    let within = false;
    for (const line of part.split('\n')) {
      const name = ENTRY.exec(line)?.[1];
      const begins = name !== undefined && (name.includes('.') || shown.has(name));
      if (within && !begins) entries.push(`${entries.pop()}\n${line}`);
      else if (line.trim() !== '') entries.push(line);
      within ||= line.trim() !== '';
    }
  }
  return entries.map((entry) => entry.replace(/[\r\n]+$/, ''));
}

/** Parses `name=value` entries; undefined when an entry has no name. A later entry of a name wins.
 *  @param shown names whose values end at a comma */
export function parsePropertyText(text: string, shown: ReadonlySet<string>): Properties | undefined {
  const properties: Record<string, string> = {};
  const entries = entriesOf(text, shown);
  for (let entry = entries.shift(); entry !== undefined; entry = entries.shift()) {
    const [, name, rest = ''] = ENTRY.exec(entry) ?? [];
    if (name === undefined) return undefined;
    const comma = shown.has(name) ? rest.indexOf(',') : -1;
    // Moves the name to the end: two names may mean the same property, and the last one wins.
    delete properties[name];
    properties[name] = comma < 0 ? rest : rest.slice(0, comma);
    if (comma >= 0) entries.unshift(rest.slice(comma + 1));
  }
  return Object.freeze(properties);
}

function parseOne(type: SettingType, text: string, shown: ReadonlySet<string> = new Set()): unknown {
  switch (type) {
    case 'properties':
      return parsePropertyText(text, shown);
    case 'string':
      return text;
    case 'int':
      return /^-?\d+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined;
    case 'number':
      return /^-?(\d+(\.\d+)?|\.\d+)(e[+-]?\d+)?$/i.test(text) && Number.isFinite(Number(text))
        ? Number(text)
        : undefined;
    case 'bool':
      if (/^(true|yes|on|1)$/i.test(text)) return true;
      return /^(false|no|off|0)$/i.test(text) ? false : undefined;
    case 'duration':
      return parseDuration(text);
    case 'size':
      return parseSize(text);
    case 'rate':
      return parseRate(text);
    case 'list':
      return Object.freeze(
        text
          .split(',')
          .map((part) => part.trim())
          .filter((part) => part !== ''),
      );
    case 'ints': {
      if (text.trim() === '') return Object.freeze([]);
      const parts = text.split(',').map((part) => parseOne('int', part.trim()));
      return parts.includes(undefined) ? undefined : Object.freeze(parts);
    }
    case 'listen': {
      const match = /^(?:([\w.-]+|\[[\da-f:.]+\]|\*)?:)?(\d{1,5})$/i.exec(text);
      if (match === null || Number(match[2]) > 65_535) return undefined;
      const host = match[1] === '*' ? '0.0.0.0' : (match[1] ?? '127.0.0.1');
      return `${host}:${Number(match[2])}`;
    }
  }
}

/** Formats a value as a user would write it; parsing the text returns the value. */
export function formatValue(type: SettingType, value: unknown): string {
  if (type === 'properties') {
    const lines = Object.entries(value as Properties).map(([name, text]) => `${name}=${text}`);
    return lines.join(ENTRY_END);
  }
  if (Array.isArray(value)) return value.join(',');
  if (typeof value === 'number') {
    if (type === 'duration') return formatDuration(value);
    if (type === 'size') return formatSize(value);
    if (type === 'rate') return formatRate(value);
  }
  return String(value);
}

/** True when this text, or any text, of the setting may hold a secret. */
export const mayHoldSecret = (setting: Setting, text?: string): boolean =>
  (setting.secret === true && !(text !== undefined && setting.plain?.test(text) === true)) ||
  setting.type === 'properties';

/** Separator of the texts of a flag that is given several times. */
export const JOINT: Readonly<Partial<Record<SettingType, string>>> = {
  list: ',',
  ints: ',',
  properties: ENTRY_END,
};

/** Parses the text of one setting. @throws bad_value */
export function parseValue(name: string, setting: Setting, text: string, source: SettingSource): unknown {
  const where =
    source === 'flag'
      ? `-${name}`
      : source === 'environment'
        ? environmentName(name)
        : source === 'job file'
          ? name
          : `${source} ${name}`;
  const bad = (why: string, next: string) =>
    coreError('bad_value', `${where}=${mayHoldSecret(setting, text) ? HIDDEN : text} ${why}`, {
      next,
      details: { setting: name },
    });
  if (setting.required === true && text === '')
    throw bad('is empty', `give ${FORMS[setting.type]}: ${setting.help}`);
  const value = parseOne(setting.type, text, setting.shown);
  if (value === undefined) throw bad(`is not ${FORMS[setting.type]}`, `give ${FORMS[setting.type]}`);
  if (setting.choices !== undefined) {
    const given = Array.isArray(value) ? value : [value];
    const invalid = given.find((choice) => !(setting.choices as readonly string[]).includes(String(choice)));
    if (invalid !== undefined) throw bad('is not a choice', `choose from ${setting.choices.join(', ')}`);
  }
  const { entry } = setting;
  if (entry !== undefined) {
    const form = new RegExp(`^(?:${entry.pattern})$`);
    const isWrong = !Array.isArray(value) || value.length === 0 || !value.every((one) => form.test(one));
    if (isWrong) throw bad('is not a choice', `choose from ${entry.form.replaceAll('|', ', ')}`);
  }
  if (typeof value === 'number') {
    if (setting.min !== undefined && value < setting.min)
      throw bad('is too small', `the least is ${formatValue(setting.type, setting.min)}`);
    if (setting.max !== undefined && value > setting.max)
      throw bad('is too large', `the most is ${formatValue(setting.type, setting.max)}`);
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

/** Length of the longest name; a longer text is not compared. */
const NAME_LENGTH_MAX = 64;

/** The known name nearest to a mistyped one, or undefined when none is near. */
export function nearest(given: string, known: readonly string[]): string | undefined {
  if (given.length > NAME_LENGTH_MAX) return undefined;
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

interface Flags {
  readonly values: ReadonlyMap<string, string>;
  readonly positional: readonly string[];
  /** Secret flag before each positional argument, or undefined. */
  readonly secretBefore: readonly (string | undefined)[];
}

const isTruth = (text: string | undefined): boolean => text !== undefined && /^(true|false)$/i.test(text);

/** Splits a token into the setting it names and the value after `=`. Undefined for a token
 *  that is no flag. */
function flagOf(table: SettingTable, token: string) {
  if (!token.startsWith('-') || token === '-' || /^--?\.?\d/.test(token)) return undefined;
  const body = token.replace(/^--?/, '');
  const equals = body.indexOf('=');
  const given = equals < 0 ? body : body.slice(0, equals);
  const negated = !Object.hasOwn(table, given) && given.startsWith('no-');
  const name = negated ? given.slice(3) : given;
  const setting = Object.hasOwn(table, name) ? table[name] : undefined;
  const known = setting !== undefined && (!negated || setting.type === 'bool');
  return {
    given,
    name,
    negated,
    setting: known ? setting : undefined,
    value: equals < 0 ? undefined : body.slice(equals + 1),
  };
}

function readFlags(table: SettingTable, argv: readonly string[]): Flags {
  const values = new Map<string, string>();
  const positional: string[] = [];
  const secretBefore: (string | undefined)[] = [];
  /** Name of the last flag when it is secret. */
  let secret: string | undefined;
  for (let i = 0; i < argv.length; i++) {
    const token = argv[i] as string;
    if (token === '--') {
      positional.push(...argv.slice(i + 1));
      break;
    }
    const flag = flagOf(table, token);
    if (flag === undefined) {
      positional.push(token);
      secretBefore[positional.length - 1] = secret;
      continue;
    }
    const { name, setting } = flag;
    if (setting === undefined) throw unknownFlag(table, flag.given, secret);
    secret = mayHoldSecret(setting) ? name : undefined;
    let value = flag.value;
    if (value === undefined && setting.type === 'bool') {
      value = isTruth(argv[i + 1]) ? (argv[++i] as string) : 'true';
    } else if (value === undefined) {
      value = argv[++i];
      // `-format -json` forgot a value; `-shift -5` and `-out -` did not.
      if (value === undefined || flagOf(table, value)?.setting !== undefined) {
        throw coreError('usage', `-${name} needs a value`, { next: `give -${name}=${FORMS[setting.type]}` });
      }
    }
    if (flag.negated) {
      const given = parseOne('bool', value);
      // A word that is no boolean is kept, and refused where values are parsed.
      if (typeof given === 'boolean') value = String(!given);
    }
    const before = values.get(name);
    const joint = JOINT[setting.type];
    if (before !== undefined && joint === undefined) {
      throw coreError('usage', `-${name} is given twice`, { next: 'give it once' });
    }
    values.set(name, before === undefined ? value : `${before}${joint}${value}`);
  }
  return { values, positional, secretBefore };
}

const unquoted = (secret: string, what: string): MillraceError =>
  coreError('usage', `${what} follows the value of -${secret}, which is secret and so not shown`, {
    next: 'put a value that has blanks in quotes',
  });

function unknownFlag(table: SettingTable, given: string, secret: string | undefined) {
  // A value joined by a character other than = must not enter the message.
  const word = (/^[\w.-]*/.exec(given) as RegExpExecArray)[0].slice(0, NAME_LENGTH_MAX);
  const near = nearest(given, Object.keys(table));
  // After a secret flag, only a mistyped flag is certainly not a part of the secret.
  if (secret !== undefined && (near === undefined || !/^[a-z-]+$/.test(word)))
    return unquoted(secret, 'an unknown flag');
  const next =
    near === undefined
      ? 'see -help for the flags of this command'
      : `did you mean -${near}? (-help lists all)`;
  return coreError('unknown_flag', `unknown flag -${word}`, { next });
}

function checkConfig(table: SettingTable, config: Readonly<Record<string, unknown>>): void {
  for (const name of Object.keys(config)) {
    if (Object.hasOwn(table, name)) continue;
    const near = nearest(name, Object.keys(table));
    throw coreError('unknown_flag', `the config file sets ${name}, which this command does not know`, {
      next: near === undefined ? 'remove it' : `did you mean ${near}?`,
    });
  }
}

/** Texts of one setting and their sources, the strongest first. */
function textsOf(
  name: string,
  setting: Setting,
  flags: Flags,
  inputs: SettingInputs,
): ReadonlyArray<readonly [string, SettingSource]> {
  const texts: Array<readonly [string, SettingSource]> = [];
  const flag = flags.values.get(name);
  if (flag !== undefined) texts.push([flag, 'flag']);
  const variables = [environmentName(name), ...(setting.env ?? [])].map((variable) => inputs.env[variable]);
  const inherited = variables.find((text) => text !== undefined && text !== '');
  if (inherited !== undefined) texts.push([inherited, 'environment']);
  const job = inputs.job ?? {};
  if (Object.hasOwn(job, name)) texts.push([job[name] as string, 'job file']);
  const config = inputs.config ?? {};
  if (Object.hasOwn(config, name)) {
    const raw = config[name];
    texts.push([Array.isArray(raw) ? raw.join(JOINT[setting.type] ?? ',') : String(raw), 'config']);
  }
  if (setting.default !== undefined) texts.push([setting.default, 'default']);
  return texts;
}

/** Merges the properties of all sources; the strongest source of a name wins. */
function mergedProperties(
  name: string,
  setting: Setting,
  texts: ReadonlyArray<readonly [string, SettingSource]>,
): Properties {
  const merged: Record<string, string> = {};
  for (const [text, source] of [...texts].reverse()) {
    for (const [property, value] of Object.entries(parseValue(name, setting, text, source) as Properties)) {
      delete merged[property];
      merged[property] = value;
    }
  }
  return Object.freeze(merged);
}

function isOn(table: SettingTable, values: Readonly<Record<string, unknown>>, what: string): boolean {
  const [name = '', wanted] = what.split('=');
  const value = values[name];
  if (wanted !== undefined) {
    const text = formatValue((table[name] as Setting).type, value);
    return wanted.endsWith('*') ? text.startsWith(wanted.slice(0, -1)) : text === wanted;
  }
  return value !== undefined && value !== false && value !== 0;
}

/** Sources of a value, strongest first. */
const STRENGTH: readonly SettingSource[] = ['flag', 'environment', 'job file', 'config', 'default', 'unset'];

/** Errors of settings that have no effect in this combination, with the setting in the details.
 *  @param demanding source whose settings are refused without the settings that they need */
export function* settingConflicts(
  table: SettingTable,
  { values, sources }: Pick<ParsedSettings<SettingTable>, 'sources'> & { readonly values: object },
  demanding: SettingSource = 'flag',
): Generator<MillraceError> {
  const all = values as Readonly<Record<string, unknown>>;
  const flags = (names: readonly string[]): string =>
    names.map((name) => `-${name.replace(/\*$/, '…')}`).join(' or ');
  const strength = (what: string): number =>
    STRENGTH.indexOf(sources[what.split('=')[0] as string] as SettingSource);
  for (const [name, { needs, excludes }] of Object.entries(table)) {
    const source = sources[name];
    if (source === 'default' || source === 'unset') continue;
    const details = { setting: name };
    if (source === demanding && needs !== undefined && !needs.some((what) => isOn(table, all, what))) {
      yield coreError('usage', `-${name} changes nothing without ${flags(needs)}`, {
        next: `give ${flags(needs)} too, or leave -${name} out`,
        details,
      });
    }
    const other = excludes?.find((what) => isOn(table, all, what) && strength(name) <= strength(what));
    if (other !== undefined && isOn(table, all, name)) {
      yield coreError('usage', `-${name} changes nothing with -${other}`, {
        next: `leave -${name} or -${other} out`,
        details,
      });
    }
  }
}

/** Parses one command's arguments against its table.
 *  @throws unknown_flag, bad_value, usage */
export function parseSettings<const T extends SettingTable>(
  table: T,
  inputs: SettingInputs,
): ParsedSettings<T> {
  const flags = readFlags(table, inputs.argv);
  const { positional } = flags;
  const positionalMax = inputs.positionalMax ?? 0;
  if (positional.length > positionalMax) {
    const secret = flags.secretBefore[positionalMax];
    if (secret !== undefined) throw unquoted(secret, 'an unexpected argument');
    throw coreError('usage', `unexpected argument ${JSON.stringify(positional[positionalMax])}`, {
      next: 'flags start with a dash; see -help',
    });
  }
  checkConfig(table, inputs.config ?? {});
  const values: Record<string, unknown> = {};
  const sources: Record<string, SettingSource> = {};
  for (const [name, setting] of Object.entries(table)) {
    const texts = textsOf(name, setting, flags, inputs);
    const [text, source] = texts[0] ?? [undefined, 'unset'];
    if (text === undefined && setting.required === true) {
      throw coreError('usage', `-${name} is required`, { next: `give -${name}=… (${setting.help})` });
    }
    if (text === undefined) values[name] = undefined;
    else if (setting.type === 'properties') values[name] = mergedProperties(name, setting, texts);
    else values[name] = parseValue(name, setting, text, source);
    sources[name] = source;
  }
  const conflict = settingConflicts(table, { values, sources }).next().value;
  if (conflict !== undefined) throw conflict;
  return {
    values: Object.freeze(values) as SettingsOf<T>,
    sources: Object.freeze(sources),
    positional: Object.freeze(positional),
  };
}

/** Parts of the description of a setting, for -help and the reference page. */
export interface SettingText {
  readonly flag: string;
  /** `avro|protobuf`, or the type. */
  readonly form: string;
  readonly default: string;
  /** `1 to 100`, `at least 1`, or empty. */
  readonly range: string;
  readonly environment: string;
  readonly help: string;
}

export function describeSetting(name: string, setting: Setting): SettingText {
  const { min, max, type } = setting;
  const least = min === undefined ? '' : formatValue(type, min);
  const most = max === undefined ? '' : formatValue(type, max);
  const range =
    min === undefined
      ? max === undefined
        ? ''
        : `at most ${most}`
      : max === undefined
        ? `at least ${least}`
        : `${least} to ${most}`;
  return {
    flag: `-${name}`,
    form: setting.entry?.form ?? setting.choices?.join('|') ?? type,
    default:
      setting.default === undefined
        ? setting.required === true
          ? 'required'
          : ''
        : setting.default === ''
          ? 'empty'
          : setting.default,
    range,
    environment: [environmentName(name), ...(setting.env ?? [])].join(', '),
    help: setting.help,
  };
}

/** The `-help` text of a table: one paragraph a flag, in the form the requirements use. */
export function renderHelp(table: SettingTable): string {
  const lines: string[] = [];
  for (const [name, setting] of Object.entries(table)) {
    const text = describeSetting(name, setting);
    const first =
      text.default === '' || text.default === 'required' ? text.default : `default ${text.default}`;
    const tail = [first, text.range, `env ${text.environment}`].filter((part) => part !== '');
    lines.push(`  ${text.flag}=${text.form}`, `      ${text.help} (${tail.join('; ')})`);
  }
  return lines.join('\n');
}
