/** Reads a job file: a flat YAML mapping of the settings of one run, with the place of each value.
 *
 *  Invariants: (1) the work is bounded by the length of the file, because anchors and aliases are
 *  refused and values nest at most two levels; (2) a problem never repeats a secret value, nor the
 *  text around a mistake in the syntax; (3) a text means what it means behind a flag. */
import { isAlias, isMap, isScalar, isSeq, LineCounter, type Pair, parseDocument, type Scalar } from 'yaml';
import { findMillraceError, type MillraceError } from '../../../core/errors.ts';
import { JOINT, nearest, parseValue, type Setting, type SettingTable } from '../../../core/settings.ts';
import { AGGREGATE_FLAG } from '../windows/specs.ts';
import type { FilePlace, Part } from './place.ts';
import { type WindowReader, windowFields, windowIn } from './windows.ts';

/** List of windows, which becomes the setting `window`. */
const WINDOWS = 'windows';

/** Greatest length of a job file in bytes. */
export const JOB_BYTES_MAX = 65_536;

export interface JobProblem extends FilePlace {
  /** Undefined: the file as a whole. */
  readonly setting: string | undefined;
  readonly code: string;
  readonly message: string;
  readonly next: string | undefined;
}

export interface JobEntry extends FilePlace {
  readonly name: string;
  /** As a flag takes it. */
  readonly text: string;
  readonly parts: readonly Part[];
}

export interface JobDocument {
  /** Settings whose values are valid by themselves. */
  readonly entries: ReadonlyMap<string, JobEntry>;
  readonly problems: readonly JobProblem[];
}

/** Messages by the codes of the YAML parser, whose own messages may quote the file. */
const SYNTAX: Readonly<Record<string, readonly [string, string]>> = {
  BAD_SCALAR_START: [
    'a text without quotes begins with a character that has a meaning in YAML',
    "put the text in single quotes, such as key: '@key'",
  ],
  DUPLICATE_KEY: ['the setting is given twice', 'give it once'],
  MULTIPLE_DOCS: ['a second YAML document begins', 'give one document'],
  TAB_AS_INDENT: ['a tab indents the line', 'indent with blanks'],
  MISSING_CHAR: ['a quote, a bracket or a colon is missing', 'complete it'],
  BAD_INDENT: ['the indentation does not match', 'begin each setting at the start of its line'],
  MULTILINE_IMPLICIT_KEY: ['a name extends over lines', 'write one setting a line: NAME: VALUE'],
  BLOCK_AS_IMPLICIT_KEY: [
    'a mapping begins inside a value',
    'put a text that contains a colon and a blank in single quotes',
  ],
  TAG_RESOLVE_FAILED: ['the tag is not known', 'leave the tag out'],
};
const UNKNOWN_SYNTAX = ['this is not YAML', 'write one setting a line: NAME: VALUE'] as const;

class Reader {
  readonly entries = new Map<string, JobEntry>();
  readonly problems: JobProblem[] = [];
  private readonly text: string;
  private readonly table: SettingTable;
  private readonly lines = new LineCounter();

  constructor(text: string, table: SettingTable) {
    this.text = text;
    this.table = table;
  }

  read(): JobDocument {
    const document = this.parse();
    if (document === undefined) return this;
    const found = [...document.errors, ...document.warnings];
    for (const { code, pos } of found) {
      const [message, next] = SYNTAX[code] ?? UNKNOWN_SYNTAX;
      this.add(this.placeAt(pos[0]), undefined, message, next);
    }
    if (found.length > 0) return this;
    const { contents } = document;
    if (!isMap(contents)) {
      const at = this.placeAt(contents?.range?.[0] ?? 0);
      this.add(at, undefined, 'the file is no mapping of settings', 'write one setting a line: NAME: VALUE');
      return this;
    }
    for (const pair of contents.items) this.entry(pair);
    return this;
  }

  private parse() {
    try {
      return parseDocument(this.text, {
        ...{ lineCounter: this.lines, prettyErrors: false, logLevel: 'error' },
        ...{ version: '1.2', schema: 'core', merge: false },
      });
    } catch (thrown) {
      // The parser is recursive.
      if (!(thrown instanceof RangeError)) throw thrown;
      const next = 'write one setting a line: NAME: VALUE';
      this.add({ line: 1, column: 1 }, undefined, 'the values nest too deeply', next);
      return undefined;
    }
  }

  private placeAt(offset: number): FilePlace {
    const { line, col } = this.lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }

  private add(
    at: FilePlace,
    setting: string | undefined,
    message: string,
    next: string | undefined,
    code = 'bad_job',
  ): void {
    this.problems.push({ line: at.line, column: at.column, setting, code, message, next });
  }

  private entry({ key, value }: Pair): void {
    if (!isScalar(key) || typeof key.value !== 'string') {
      const at = isAlias(key) || isScalar(key) || isMap(key) || isSeq(key) ? (key.range?.[0] ?? 0) : 0;
      this.add(this.placeAt(at), undefined, 'the name of a setting is no text', 'see engine -help');
      return;
    }
    const name = key.value;
    const at = this.placeAt(key.range?.[0] ?? 0);
    if (name === WINDOWS && this.table['window'] !== undefined) {
      this.windows(value, at);
      return;
    }
    const setting = Object.hasOwn(this.table, name) ? this.table[name] : undefined;
    if (setting === undefined) {
      const near = nearest(name, [...Object.keys(this.table), WINDOWS]);
      const shown = /^[\w.-]{1,64}$/.test(name) ? name : 'this name';
      const next = near === undefined ? 'engine -help lists the settings' : `did you mean ${near}?`;
      this.add(at, undefined, `${shown} is no setting of a job`, next, 'unknown_flag');
      return;
    }
    const parts = this.partsOf(name, setting, value, at);
    if (parts !== undefined) this.put(name, setting, parts, at);
  }

  /** Reads a list of windows. */
  private windows(value: unknown, at: FilePlace): void {
    if (!isSeq(value) || value.anchor !== undefined || value.items.length === 0) {
      const next = 'give a list with name: NAME, window: KIND and its times';
      this.add(at, 'window', 'windows is no list of windows', next);
      return;
    }
    const fields = windowFields(this.table);
    const names = new Set<string>();
    const aggregates: Part[] = [];
    const parts = value.items.map((item) => {
      const found = windowIn(item, this.windowReader, fields);
      if (found === undefined || !names.has(found.name)) {
        if (found !== undefined) names.add(found.name);
        if (found?.aggregate !== undefined) aggregates.push(found.aggregate);
        return found?.part;
      }
      this.add(found.namePlace, 'window', `two windows have the name ${found.name}`, 'give each its own');
      return undefined;
    });
    if (parts.includes(undefined)) return;
    this.put('window', this.table['window'] as Setting, parts as readonly Part[], at);
    if (aggregates.length === 0) return;
    this.put(AGGREGATE_FLAG, this.table[AGGREGATE_FLAG] as Setting, aggregates, at);
  }

  private readonly windowReader: WindowReader = {
    placeOf: (node) => {
      const hasRange = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node);
      return this.placeAt(hasRange ? (node.range?.[0] ?? 0) : 0);
    },
    parts: (name, setting, value, at) => this.partsOf(name, setting, value, at),
    problem: (at, message, next, code) => this.add(at, 'window', message, next, code),
  };

  /** Adds a setting whose value is read. */
  private put(name: string, setting: Setting, parts: readonly Part[], at: FilePlace): void {
    if (this.entries.has(name)) {
      const text = name === 'window' ? 'the windows' : 'aggregates of the windows';
      this.add(at, name, `${name} and windows both name ${text}`, 'give one of them');
      return;
    }
    const first = parts[0] ?? at;
    const joint = name === AGGREGATE_FLAG ? ';' : (JOINT[setting.type] ?? ',');
    const text = parts.map((part) => part.text).join(joint);
    try {
      parseValue(name, setting, text, 'job file');
      this.entries.set(name, { name, text, parts, line: first.line, column: first.column });
    } catch (thrown) {
      const { message, next, code } = findMillraceError(thrown) as MillraceError;
      this.add(first, name, message, next, code);
    }
  }

  private partsOf(
    name: string,
    setting: Setting,
    value: unknown,
    at: FilePlace,
  ): readonly Part[] | undefined {
    if (isSeq(value)) {
      if (setting.hasParts !== true && JOINT[setting.type] === undefined) {
        this.add(
          this.placeAt(value.range?.[0] ?? 0),
          name,
          `${name} is a list, and takes one value`,
          `give ${name}: VALUE`,
        );
        return undefined;
      }
      const parts = value.items.map((item) => this.partOf(name, setting, item, at));
      return parts.includes(undefined) ? undefined : (parts as readonly Part[]);
    }
    const part = this.partOf(name, setting, value, at);
    return part === undefined ? undefined : [part];
  }

  private partOf(name: string, setting: Setting, value: unknown, at: FilePlace): Part | undefined {
    if (isAlias(value) || ((isScalar(value) || isSeq(value) || isMap(value)) && value.anchor !== undefined)) {
      this.add(
        this.placeAt(value.range?.[0] ?? 0),
        name,
        `${name} has an anchor or an alias`,
        'write the value',
      );
      return undefined;
    }
    if (!isScalar(value)) {
      const where = isMap(value) || isSeq(value) ? this.placeAt(value.range?.[0] ?? 0) : at;
      this.add(where, name, `${name} is neither a value nor a list of values`, `give ${name}: VALUE`);
      return undefined;
    }
    const place = this.placeAt(value.range?.[0] ?? 0);
    if (value.value === null || value.value === undefined) {
      this.add(place, name, `${name} has no value`, `give ${name}: VALUE, or leave ${name} out`);
      return undefined;
    }
    const wanted = wantedKind(setting);
    if (wanted !== undefined && typeof value.value !== wanted) {
      const article = wanted === 'boolean' ? 'true or false' : 'a number';
      this.add(place, name, `${name} is not ${article}`, `give ${name}: ${article}, without quotes`);
      return undefined;
    }
    const text = textOf(value, setting);
    return { text, ...place, placeOf: (index) => this.placeWithin(value, text, index) };
  }

  /** FilePlace of a character of the value, or of the value if its characters are not those of the
   *  file. */
  private placeWithin({ range }: Scalar, text: string, index: number): FilePlace {
    const from = range?.[0] ?? 0;
    const raw = this.text.slice(from, range?.[1] ?? from);
    if (raw === text) return this.placeAt(from + index);
    return raw.slice(1, -1) === text ? this.placeAt(from + 1 + index) : this.placeAt(from);
  }
}

/** Kind of the YAML value of a setting; undefined: any scalar, by its text. */
const wantedKind = ({ type }: Setting): 'boolean' | 'number' | undefined =>
  type === 'bool' ? 'boolean' : type === 'int' || type === 'number' ? 'number' : undefined;

/** A plain scalar has the text that is written, so that `0755` and `1_000` stay what they are. */
function textOf(scalar: Scalar, setting: Setting): string {
  if (typeof scalar.value === 'string') return scalar.value;
  if (wantedKind(setting) !== undefined) return String(scalar.value);
  return scalar.source ?? String(scalar.value);
}

/** Reads the text of a job file. @param table settings that a job file may have */
export const readJobDocument = (text: string, table: SettingTable): JobDocument =>
  new Reader(text, table).read();
