/** Tokens of a .proto text, each with its line and column. */
import { formatError } from '../../errors.ts';
import type { Position } from './ast.ts';

export type TokenKind = 'name' | 'integer' | 'float' | 'string' | 'symbol' | 'end';

export interface Token {
  readonly kind: TokenKind;
  /** Text as written; of a string with its quotes. */
  readonly text: string;
  /** Content of a string. */
  readonly bytes: Buffer | undefined;
  readonly at: Position;
}

/** Throws an error. @param file import path of the file that contains the position; undefined for
 *  the schema itself */
export function protoFail(why: string, at?: Position, file?: string): never {
  const place = at === undefined ? '' : ` at ${at.line}:${at.column}`;
  const inside = file === undefined ? '' : ` in the reference "${file}"`;
  throw formatError('invalid_schema', `invalid Protobuf schema: ${why}${place}${inside}`, {
    next:
      file === undefined
        ? 'correct the schema'
        : 'correct the referenced schema, or refer to another version',
    details: at === undefined ? {} : { line: at.line, column: at.column },
  });
}

/** Greatest number of characters of one name, and of one number. */
const WORD_CHARS_MAX = 400;

const NAME = /[A-Za-z_]\w*/y;
const NUMBER = /0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?[fF]?|\d+/y;
const SYMBOLS = new Set('{}[]()<>=;:,.-/+');
const SIMPLE_ESCAPES: Readonly<Record<string, number>> = {
  a: 7,
  b: 8,
  f: 12,
  n: 10,
  r: 13,
  t: 9,
  v: 11,
  '\\': 92,
  "'": 39,
  '"': 34,
  '?': 63,
};
const ESCAPE = /[0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[abfnrtv\\'"?]/y;

export class ProtoLexer {
  private readonly source: string;
  private readonly file: string | undefined;
  private offset = 0;
  private line = 1;
  private lineStart = 0;
  private nextNewline = -1;

  constructor(source: string, file?: string) {
    this.source = source;
    this.file = file;
    if (source.charCodeAt(0) === 0xfeff) this.lineStart = this.offset = 1;
  }

  /** Reads the next token; at the end of the text always one of kind `end`. */
  next(): Token {
    this.skip();
    const at = { line: this.line, column: this.offset - this.lineStart + 1 };
    const start = this.offset;
    const first = this.source[start];
    if (first === undefined) return { kind: 'end', text: '', bytes: undefined, at };
    if (first === '"' || first === "'") return this.string(first, at);
    const name = this.match(NAME);
    if (name !== undefined) {
      if (name.length > WORD_CHARS_MAX)
        protoFail(`a name is longer than ${WORD_CHARS_MAX} characters`, at, this.file);
      return { kind: 'name', text: name, bytes: undefined, at };
    }
    if (/[0-9]/.test(first) || (first === '.' && /[0-9]/.test(this.source[start + 1] ?? ''))) {
      return this.number(at);
    }
    if (!SYMBOLS.has(first)) {
      const shown = JSON.stringify(String.fromCodePoint(this.source.codePointAt(start) as number));
      protoFail(`unexpected ${shown} in line ${at.line}`, at, this.file);
    }
    this.offset++;
    return { kind: 'symbol', text: first, bytes: undefined, at };
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.offset;
    const found = pattern.exec(this.source)?.[0];
    if (found !== undefined) this.offset += found.length;
    return found;
  }

  /** Skips white space and comments. */
  private skip(): void {
    const { source } = this;
    for (;;) {
      const code = source.charCodeAt(this.offset);
      if (code === 10) {
        this.offset++;
        this.line++;
        this.lineStart = this.offset;
      } else if (code === 32 || (code >= 9 && code <= 13)) this.offset++;
      else if (code === 47 && source[this.offset + 1] === '/') {
        const end = source.indexOf('\n', this.offset);
        this.offset = end < 0 ? source.length : end;
      } else if (code === 47 && source[this.offset + 1] === '*') this.blockComment();
      else return;
    }
  }

  private blockComment(): void {
    const end = this.source.indexOf('*/', this.offset + 2);
    if (end < 0) {
      const at = { line: this.line, column: this.offset - this.lineStart + 1 };
      protoFail('a comment has no end', at, this.file);
    }
    while (this.newline() < end) {
      this.line++;
      this.lineStart = this.newline() + 1;
      this.offset = this.lineStart;
    }
    this.offset = end + 2;
  }

  /** Next end of a line; searched once, however many comments precede it. */
  private newline(): number {
    if (this.nextNewline < this.offset) {
      const at = this.source.indexOf('\n', this.offset);
      this.nextNewline = at < 0 ? this.source.length : at;
    }
    return this.nextNewline;
  }

  private number(at: Position): Token {
    const text = this.match(NUMBER) as string;
    if (text.length > WORD_CHARS_MAX)
      protoFail(`a number is longer than ${WORD_CHARS_MAX} characters`, at, this.file);
    if (/[\w.]/.test(this.source[this.offset] ?? ''))
      protoFail(`"${text}" runs into what follows`, at, this.file);
    const isFloat = !/^0[xX]/.test(text) && /[.eEfF]/.test(text);
    if (!isFloat && /^0\d/.test(text) && /[89]/.test(text)) {
      protoFail(`"${text}" begins like an octal number`, at, this.file);
    }
    return { kind: isFloat ? 'float' : 'integer', text, bytes: undefined, at };
  }

  private string(quote: string, at: Position): Token {
    const { source } = this;
    const start = this.offset++;
    const parts: Buffer[] = [];
    let plain = this.offset;
    const flush = (): void => {
      if (plain < this.offset) parts.push(Buffer.from(source.slice(plain, this.offset)));
    };
    for (;;) {
      const char = source[this.offset];
      if (char === undefined || char === '\n') protoFail('a string has no end in its line', at, this.file);
      if (char === quote) break;
      if (char !== '\\') {
        this.offset++;
        continue;
      }
      flush();
      this.offset++;
      const written = this.match(ESCAPE);
      if (written === undefined) protoFail('a string has an escape that means nothing', at, this.file);
      parts.push(this.escaped(written, at));
      plain = this.offset;
    }
    flush();
    this.offset++;
    return { kind: 'string', text: source.slice(start, this.offset), bytes: Buffer.concat(parts), at };
  }

  private escaped(written: string, at: Position): Buffer {
    const simple = SIMPLE_ESCAPES[written];
    if (simple !== undefined) return Buffer.of(simple);
    if (/^[0-7]/.test(written)) return Buffer.of(Number.parseInt(written, 8) & 0xff);
    const code = Number.parseInt(written.slice(1), 16);
    if (/^[xX]/.test(written)) return Buffer.of(code);
    if (code > 0x10_ffff) protoFail(`"\\${written}" is beyond the last character of Unicode`, at, this.file);
    return Buffer.from(String.fromCodePoint(code));
  }
}

/** Value of an integer as written: decimal, hexadecimal or octal. */
export function integerOf(text: string): bigint {
  const octal = /^0[0-7]+$/.test(text);
  return BigInt(octal ? `0o${text.slice(1)}` : text);
}
