/** Ranges of a schema's text: a JSON value, a Protobuf statement. For texts that were parsed
 *  before: without a proper end, the range extends to the end of the text. */
import type { TextPosition } from '../../../formats/json/text.ts';

export interface Span {
  readonly at: number;
  readonly end: number;
}

/** Comments and strings: brackets in them do not count. */
const PROTO_OPAQUE = /"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*'|\/\/[^\n]*|\/\*[\s\S]*?\*\/|#[^\n]*/y;
const JSON_OPAQUE = /"(?:[^"\\]|\\[\s\S])*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//y;

/** Returns the JSON value that begins at `at`. @cost O(value) */
export function jsonSpan(text: string, at: number): Span {
  let depth = 0;
  for (let end = at; end < text.length; ) {
    JSON_OPAQUE.lastIndex = end;
    const opaque = JSON_OPAQUE.exec(text)?.[0];
    const one = text[end] as string;
    if (opaque !== undefined) {
      end += opaque.length;
      if (depth === 0 && one === '"') return { at, end };
      continue;
    }
    if (depth === 0 && /[,\]}\s]/.test(one)) return { at, end };
    end++;
    if (one === '{' || one === '[') depth++;
    else if (one === '}' || one === ']') {
      depth--;
      if (depth === 0) return { at, end };
    }
  }
  return { at, end: text.length };
}

/** Returns the statement that begins at `at`, with its semicolon or its braces. @cost O(statement)
 */
export function protoSpan(text: string, at: number): Span {
  let depth = 0;
  for (let end = at; end < text.length; ) {
    PROTO_OPAQUE.lastIndex = end;
    const opaque = PROTO_OPAQUE.exec(text)?.[0];
    if (opaque !== undefined) {
      end += opaque.length;
      continue;
    }
    const one = text[end++];
    if (one === ';' && depth === 0) return { at, end };
    if (one === '{') depth++;
    else if (one === '}' && --depth <= 0) return { at, end };
  }
  return { at, end: text.length };
}

/** Returns the position behind the first `mark` of the statement at `at`, outside of comments and
 *  strings. */
export function behind(text: string, at: number, mark: string): number | undefined {
  for (let end = at; end < text.length; ) {
    PROTO_OPAQUE.lastIndex = end;
    const opaque = PROTO_OPAQUE.exec(text)?.[0];
    if (opaque !== undefined) end += opaque.length;
    else if (text[end++] === mark) return end;
  }
  return undefined;
}

/** Inverse of positionOf. @cost O(text) */
export function offsetOf(text: string, { line, column }: TextPosition): number {
  let start = 0;
  for (let before = 1; before < line; before++) {
    const next = text.indexOf('\n', start);
    if (next < 0) return text.length;
    start = next + 1;
  }
  return Math.min(text.length, start + column - 1);
}

/** Returns the white space at the beginning of a line. */
export function indentAt(text: string, at: number): string {
  const start = text.lastIndexOf('\n', at - 1) + 1;
  return /^[ \t]*/.exec(text.slice(start, at))?.[0] ?? '';
}
