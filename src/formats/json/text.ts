/** JSON with positions: a reader that records the position of each value, and a printer that rounds
 *  nothing.
 *
 *  Invariants: (1) numbers keep their digits and objects the order of their keys, so 64-bit
 *  integers and keys that look like numbers survive; (2) nesting, digits and keys are checked
 *  against limits before they are used; (3) the printed text equals that of the Jackson library,
 *  because the topics of existing registries contain its texts. */

interface Place {
  /** Position in the text, in UTF-16 units from its beginning. */
  readonly at: number;
}
export interface JsonNull extends Place {
  readonly kind: 'null';
}
export interface JsonBoolean extends Place {
  readonly kind: 'boolean';
  readonly value: boolean;
}
export interface JsonNumber extends Place {
  readonly kind: 'number';
  /** As written. */
  readonly digits: string;
}
export interface JsonString extends Place {
  readonly kind: 'string';
  readonly value: string;
}
export interface JsonArray extends Place {
  readonly kind: 'array';
  readonly items: readonly JsonNode[];
}
export interface JsonMember {
  readonly keyAt: number;
  readonly value: JsonNode;
}
export interface JsonObject extends Place {
  readonly kind: 'object';
  readonly members: ReadonlyMap<string, JsonMember>;
}
export type JsonNode = JsonNull | JsonBoolean | JsonNumber | JsonString | JsonArray | JsonObject;

/** Greatest nesting of values; it bounds the recursion of the reader and of every later walk. */
const JSON_DEPTH_MAX = 1_000;
/** Greatest number of characters of one number. */
const JSON_NUMBER_CHARS_MAX = 1_000;

export interface TextPosition {
  readonly line: number;
  /** In UTF-16 units, from 1. */
  readonly column: number;
}

/** Line and column of an offset of a text. @cost O(offset) */
export function positionOf(text: string, at: number): TextPosition {
  let line = 1;
  let start = 0;
  for (let end = text.indexOf('\n'); end >= 0 && end < at; end = text.indexOf('\n', start)) {
    line++;
    start = end + 1;
  }
  return { line, column: at - start + 1 };
}

/** Error in a text, with its position. */
export class JsonTextError extends Error {
  readonly at: number;

  constructor(message: string, at: number) {
    super(message);
    this.at = at;
  }
}

export interface JsonReadOptions {
  /** True: comments between tokens are white space. */
  readonly comments: boolean;
  /** True: the last value of a repeated key applies; otherwise a repeated key is an error. */
  readonly repeatedKeys: boolean;
}

const SPACE = /[ \t\n\r]*/y;
const COMMENT = /\/\/[^\n]*|\/\*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON forbids these in a string
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const HEX = /^[0-9a-fA-F]{4}$/;
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['"', '"'],
  ['\\', '\\'],
  ['/', '/'],
  ['b', '\b'],
  ['f', '\f'],
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
]);

class Reader {
  private readonly text: string;
  private readonly options: JsonReadOptions;
  private at = 0;

  constructor(text: string, options: JsonReadOptions) {
    this.text = text;
    this.options = options;
  }

  document(): JsonNode {
    if (this.text.charCodeAt(0) === 0xfeff) this.at = 1;
    const value = this.value(0);
    this.space();
    if (this.at < this.text.length) this.fail(`${this.here()} stands behind the end`);
    return value;
  }

  private fail(why: string, at = this.at): never {
    throw new JsonTextError(why, at);
  }

  private here(): string {
    const point = this.text.codePointAt(this.at);
    if (point === undefined) return 'the end of the text';
    return point < 0x20 || point === 0x7f
      ? `the character U+${point.toString(16).toUpperCase().padStart(4, '0')}`
      : JSON.stringify(String.fromCodePoint(point));
  }

  private match(form: RegExp): string {
    form.lastIndex = this.at;
    const found = form.exec(this.text)?.[0] ?? '';
    this.at += found.length;
    return found;
  }

  private space(): void {
    this.match(SPACE);
    while (this.options.comments && this.text.charCodeAt(this.at) === 0x2f) {
      const from = this.at;
      const opened = this.match(COMMENT);
      if (opened === '') this.fail('"/" begins no value');
      if (opened === '/*') {
        const end = this.text.indexOf('*/', this.at);
        if (end < 0) this.fail('a comment is not closed', from);
        this.at = end + 2;
      }
      this.match(SPACE);
    }
  }

  private value(depth: number): JsonNode {
    this.space();
    const { at } = this;
    if (depth > JSON_DEPTH_MAX) this.fail(`values are nested deeper than ${JSON_DEPTH_MAX}`);
    switch (this.text[at]) {
      case '{':
        return this.object(depth);
      case '[':
        return this.array(depth);
      case '"':
        return { kind: 'string', at, value: this.string() };
      case 't':
        return this.word('true', { kind: 'boolean', at, value: true });
      case 'f':
        return this.word('false', { kind: 'boolean', at, value: false });
      case 'n':
        return this.word('null', { kind: 'null', at });
    }
    const digits = this.match(NUMBER);
    if (digits === '') this.fail(`${this.here()} begins no value`);
    if (digits.length > JSON_NUMBER_CHARS_MAX)
      this.fail(`a number has more than ${JSON_NUMBER_CHARS_MAX} characters`, at);
    return { kind: 'number', at, digits };
  }

  private word(word: string, node: JsonNode): JsonNode {
    if (!this.text.startsWith(word, this.at)) this.fail(`${this.here()} begins no value`);
    this.at += word.length;
    return node;
  }

  /** Consumes the token after an item: true when another item follows. */
  private more(close: string): boolean {
    this.space();
    const char = this.text[this.at];
    if (char !== ',' && char !== close) this.fail(`${this.here()} stands where "," or "${close}" is due`);
    this.at++;
    return char === ',';
  }

  private array(depth: number): JsonArray {
    const at = this.at++;
    const items: JsonNode[] = [];
    this.space();
    if (this.text[this.at] === ']') {
      this.at++;
      return { kind: 'array', at, items };
    }
    do items.push(this.value(depth + 1));
    while (this.more(']'));
    return { kind: 'array', at, items };
  }

  private object(depth: number): JsonObject {
    const at = this.at++;
    const members = new Map<string, JsonMember>();
    this.space();
    if (this.text[this.at] === '}') {
      this.at++;
      return { kind: 'object', at, members };
    }
    do {
      this.space();
      const keyAt = this.at;
      if (this.text[keyAt] !== '"') this.fail(`${this.here()} stands where a key is due`);
      const key = this.string();
      if (members.has(key) && !this.options.repeatedKeys)
        this.fail(`the key ${JSON.stringify(key)} stands twice`, keyAt);
      this.space();
      if (this.text[this.at] !== ':') this.fail(`${this.here()} stands where ":" is due`);
      this.at++;
      members.set(key, { keyAt, value: this.value(depth + 1) });
    } while (this.more('}'));
    return { kind: 'object', at, members };
  }

  private string(): string {
    const from = this.at++;
    let value = this.match(PLAIN);
    for (;;) {
      const char = this.text[this.at];
      if (char === '"') {
        this.at++;
        return value;
      }
      if (char === undefined) this.fail('a string is not closed', from);
      if (char !== '\\') this.fail(`${this.here()} is not escaped in a string`);
      value += this.escape();
      value += this.match(PLAIN);
    }
  }

  private escape(): string {
    const letter = this.text[this.at + 1] ?? '';
    if (letter === 'u') {
      const hex = this.text.slice(this.at + 2, this.at + 6);
      if (!HEX.test(hex)) this.fail('"\\u" is not followed by four hex digits');
      this.at += 6;
      return String.fromCharCode(Number.parseInt(hex, 16));
    }
    const char = ESCAPES.get(letter);
    if (char === undefined) this.fail(`"\\${letter}" is no escape`);
    this.at += 2;
    return char;
  }
}

/** Reads one JSON document. @throws JsonTextError */
export function readJson(text: string, options: JsonReadOptions): JsonNode {
  return new Reader(text, options).document();
}

export const isInteger = (number: JsonNumber): boolean => !/[.eE]/.test(number.digits);

/** Nearest double; an integer has no negative zero. */
export const doubleOf = (number: JsonNumber): number =>
  isInteger(number) ? Number(number.digits) + 0 : Number(number.digits);

/** Value of a member, or undefined. */
export const memberOf = (object: JsonObject, key: string): JsonNode | undefined =>
  object.members.get(key)?.value;

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must be escaped
const UNSAFE = /["\\\u0000-\u001f]/g;
const SHORT_ESCAPES: ReadonlyMap<string, string> = new Map([
  ['"', '\\"'],
  ['\\', '\\\\'],
  ['\b', '\\b'],
  ['\f', '\\f'],
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

export function printString(value: string): string {
  const safe = value.replace(
    UNSAFE,
    (char) =>
      SHORT_ESCAPES.get(char) ?? `\\u${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`,
  );
  return `"${safe}"`;
}

/** A double in the notation of Java; `digits` are the fewest that identify it. */
function javaNumber(negative: boolean, digits: string, exponent: number): string {
  const sign = negative ? '-' : '';
  if (exponent >= -3 && exponent < 7) {
    if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
    const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
    return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
  }
  return `${sign}${digits[0]}.${digits.slice(1) || '0'}E${exponent}`;
}

function printExponential(value: number, exponential: string): string {
  const [mantissa = '0', exponent = '0'] = exponential.replace('-', value < 0 ? '' : '-').split('e');
  return javaNumber(value < 0, mantissa.replace('.', '').replace(/(?<=.)0+$/, ''), Number(exponent));
}

/** Prints a double as Java's Double.toString since version 19, which prints the fewest digits. NaN
 *  and infinity are printed as a string. */
export function printDouble(value: number): string {
  if (!Number.isFinite(value)) return `"${value}"`;
  if (value === 0) return Object.is(value, -0) ? '-0.0' : '0.0';
  const fewest = value.toExponential();
  // Java writes at least two digits: for a one-digit number, the two nearest digits.
  return printExponential(value, /^-?[0-9]e/.test(fewest) ? value.toExponential(1) : fewest);
}

/** Prints the nearest float as Java's Float.toString. */
export function printFloat(value: number): string {
  const float = Math.fround(value);
  if (!Number.isFinite(float) || float === 0) return printDouble(float);
  for (let digits = 1; digits < 9; digits++) {
    const text = float.toExponential(digits);
    if (Math.fround(Number(text)) === float) return printExponential(float, text);
  }
  return printDouble(float);
}

function printNumber(number: JsonNumber): string {
  if (!isInteger(number)) return printDouble(Number(number.digits));
  return number.digits === '-0' ? '0' : number.digits;
}

/** Prints a number as Java's BigDecimal: no digit is lost, and the exponent has one form. */
export function printDecimal(number: JsonNumber): string {
  if (isInteger(number)) return printNumber(number);
  const [, minus, whole, fraction = '', power = '0'] =
    /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE](.+))?$/.exec(number.digits) ?? [];
  const digits = `${whole}${fraction}`.replace(/^0+(?=[0-9])/, '');
  const sign = minus === '-' && digits !== '0'.repeat(digits.length) ? '-' : '';
  const scale = BigInt(fraction.length) - BigInt(power.replace('+', ''));
  const exponent = BigInt(digits.length) - 1n - scale;
  if (scale === 0n) return `${sign}${digits}`;
  if (scale > 0n && exponent >= -6n) {
    const padded = digits.padStart(Number(scale) + 1, '0');
    const point = padded.length - Number(scale);
    return `${sign}${padded.slice(0, point)}.${padded.slice(point)}`;
  }
  const mantissa = digits.length === 1 ? digits : `${digits[0]}.${digits.slice(1)}`;
  const shown = exponent === 0n ? '' : `E${exponent > 0n ? '+' : ''}${exponent}`;
  return `${sign}${mantissa}${shown}`;
}

/** Prints a JSON value. @param sorted keys are sorted by UTF-16 units instead of their own order
 *  @param number prints a number */
export function printJson(node: JsonNode, sorted = false, number = printNumber): string {
  switch (node.kind) {
    case 'null':
      return 'null';
    case 'boolean':
      return String(node.value);
    case 'number':
      return number(node);
    case 'string':
      return printString(node.value);
    case 'array':
      return `[${node.items.map((item) => printJson(item, sorted, number)).join(',')}]`;
    case 'object': {
      const members = [...node.members];
      if (sorted) members.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      const printed = members.map(
        ([key, { value }]) => `${printString(key)}:${printJson(value, sorted, number)}`,
      );
      return `{${printed.join(',')}}`;
    }
  }
}
