/** How far a piece of a schema's text goes: a JSON value, a statement of Protobuf. For showing and mending texts that
 *  were parsed before, so what is no such piece ends at the end of the text. */
import type { Position } from '../../../formats/json/text.ts';

export interface Span {
  readonly at: number;
  readonly end: number;
}

/** Comments and strings: nothing in them opens or closes. */
const QUIET = /"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*'|\/\/[^\n]*|\/\*[\s\S]*?\*\/|#[^\n]*/y;
const JSON_QUIET = /"(?:[^"\\]|\\[\s\S])*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//y;

/** The JSON value that begins at `at`. @cost O(value) */
export function jsonSpan(text: string, at: number): Span {
  let depth = 0;
  for (let end = at; end < text.length; ) {
    JSON_QUIET.lastIndex = end;
    const quiet = JSON_QUIET.exec(text)?.[0];
    const one = text[end] as string;
    if (quiet !== undefined) {
      end += quiet.length;
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

/** The statement that begins at `at`, with its semicolon or its braces. @cost O(statement) */
export function protoSpan(text: string, at: number): Span {
  let depth = 0;
  for (let end = at; end < text.length; ) {
    QUIET.lastIndex = end;
    const quiet = QUIET.exec(text)?.[0];
    if (quiet !== undefined) {
      end += quiet.length;
      continue;
    }
    const one = text[end++];
    if (one === ';' && depth === 0) return { at, end };
    if (one === '{') depth++;
    else if (one === '}' && --depth <= 0) return { at, end };
  }
  return { at, end: text.length };
}

/** The place behind the first `mark` of the statement at `at` that is in no comment and no string. */
export function behind(text: string, at: number, mark: string): number | undefined {
  for (let end = at; end < text.length; ) {
    QUIET.lastIndex = end;
    const quiet = QUIET.exec(text)?.[0];
    if (quiet !== undefined) end += quiet.length;
    else if (text[end++] === mark) return end;
  }
  return undefined;
}

/** The opposite of positionOf. @cost O(text) */
export function offsetOf(text: string, { line, column }: Position): number {
  let start = 0;
  for (let before = 1; before < line; before++) {
    const next = text.indexOf('\n', start);
    if (next < 0) return text.length;
    start = next + 1;
  }
  return Math.min(text.length, start + column - 1);
}

/** The white space that a line begins with. */
export function indentAt(text: string, at: number): string {
  const start = text.lastIndexOf('\n', at - 1) + 1;
  return /^[ \t]*/.exec(text.slice(start, at))?.[0] ?? '';
}
