/** Token cursor of a .proto text with one token of lookahead. It counts the nodes and the nesting
 *  of the tree, to limit both. */

import { DEPTH_LIMIT, NODES_LIMIT, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX } from '../../format.ts';
import { type NumberRange, type Position, PROTO_PATH_CHARS_MAX } from './ast.ts';
import { integerOf, ProtoLexer, protoFail, type Token } from './lexer.ts';

export class ProtoCursor {
  readonly file: string | undefined;
  private readonly lexer: ProtoLexer;
  private ahead: Token;
  private nodes = 0;
  private depth = 0;

  constructor(source: string, file?: string) {
    this.file = file;
    this.lexer = new ProtoLexer(source, file);
    this.ahead = this.lexer.next();
  }

  get token(): Token {
    return this.ahead;
  }
  get at(): Position {
    return this.ahead.at;
  }

  fail(why: string, at: Position = this.at): never {
    protoFail(why, at, this.file);
  }

  next(): Token {
    const token = this.ahead;
    this.ahead = this.lexer.next();
    return token;
  }

  /** True when the next token is this symbol or name. */
  isNext(text: string): boolean {
    return this.ahead.text === text && (this.ahead.kind === 'symbol' || this.ahead.kind === 'name');
  }

  /** Consumes the next token if it is `text`. */
  accept(text: string): boolean {
    if (!this.isNext(text)) return false;
    this.next();
    return true;
  }

  expect(text: string): void {
    if (!this.accept(text)) this.unexpected(`"${text}"`);
  }

  unexpected(wanted: string): never {
    const { kind, text } = this.ahead;
    const met = kind === 'end' ? 'the text ends' : `${JSON.stringify(text.slice(0, 64))} stands`;
    this.fail(`invalid syntax: ${met} where ${wanted} should`);
  }

  name(what: string): string {
    if (this.ahead.kind !== 'name') this.unexpected(what);
    return this.next().text;
  }

  /** Reads a name with dots, perhaps with a leading one. */
  path(what: string, mayLead = true): string {
    let text = mayLead && this.accept('.') ? '.' : '';
    text += this.name(what);
    while (this.accept('.')) {
      text += `.${this.name(what)}`;
      if (text.length > PROTO_PATH_CHARS_MAX)
        this.fail(`a name is longer than ${PROTO_PATH_CHARS_MAX} characters`);
    }
    return text;
  }

  /** Reads adjacent strings as one string. */
  string(what: string): Buffer {
    if (this.ahead.kind !== 'string') this.unexpected(what);
    const parts: Buffer[] = [];
    while (this.ahead.kind === 'string') parts.push(this.next().bytes as Buffer);
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }

  /** Reads an integer. @param least a negative limit permits a minus before the number */
  integer(what: string, least: number, most: number): number {
    const { at } = this;
    const negative = least < 0 && this.accept('-');
    if (this.ahead.kind !== 'integer') this.unexpected(what);
    const value = integerOf(this.next().text);
    const signed = negative ? -value : value;
    if (signed < BigInt(least) || signed > BigInt(most)) {
      this.fail(`${what} ${signed} is out of its range, ${least} to ${most}`, at);
    }
    return Number(signed);
  }

  /** Reads `5`, `5 to 9` or `5 to max`. */
  range(what: string, least: number, most: number, max: number): NumberRange {
    const { at } = this;
    const from = this.integer(what, least, most);
    if (!this.accept('to')) return { from, to: from, single: true, at };
    const to = this.accept('max') ? max : this.integer(what, least, most);
    if (to < from) this.fail(`the range ${from} to ${to} is empty`, at);
    return { from, to, single: false, at };
  }

  /** Counts a node of the tree. */
  count(): void {
    if (++this.nodes > SCHEMA_NODES_MAX)
      this.fail(`it declares more than ${SCHEMA_NODES_MAX} things ${NODES_LIMIT}`);
  }

  /** Counts one level of braces during `work`. */
  inside<T>(work: () => T): T {
    if (++this.depth > SCHEMA_DEPTH_MAX)
      this.fail(`it is nested deeper than ${SCHEMA_DEPTH_MAX} blocks ${DEPTH_LIMIT}`);
    const result = work();
    this.depth--;
    return result;
  }
}
