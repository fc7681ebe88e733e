/** The stored text of a Protobuf schema: the source's own tokens, laid out in one way.
 *
 *  Comments and white space go, everything else stays, in its order: message order is part of the wire format, and no
 *  option or service is lost. One statement a line, two blanks an indentation.
 */
import { registryError } from '../errors.ts';

const TOKEN =
  /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[-+]?\.?\d(?:[eE][-+]\d|[\w.])*|[A-Za-z_.][\w.]*|[{}[\]()<>=;:,/-]/y;

/** Tokens without comments and blanks. @throws invalid_schema at a character that begins no token */
export function protoTokens(text: string): string[] {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (match === null) {
      const line = text.slice(0, at).split('\n').length;
      throw registryError(
        'invalid_schema',
        `invalid Protobuf schema: unexpected ${JSON.stringify(text[at])} in line ${line}`,
        { next: 'correct the schema' },
      );
    }
    const token = match[0];
    if (!/^\s/.test(token) && !token.startsWith('//') && !token.startsWith('/*')) tokens.push(token);
  }
  return tokens;
}

const CLOSERS = new Set([';', ',', ')', ']', '>', ':']);
const OPENERS = new Set(['(', '[', '<']);

/** One text for every layout of the same tokens. */
export function protoText(tokens: readonly string[]): string {
  let out = '';
  let line = '';
  let indent = 0;
  const flush = (): void => {
    if (line !== '') out += `${'  '.repeat(indent)}${line}\n`;
    line = '';
  };
  let before = '';
  let brackets = 0;
  for (const token of tokens) {
    if (token === '[') brackets++;
    if (token === ']') brackets--;
    if (token === '}' && brackets === 0) {
      flush();
      indent = Math.max(0, indent - 1);
      line = '}';
      flush();
    } else {
      const tight =
        line === '' ||
        CLOSERS.has(token) ||
        OPENERS.has(before) ||
        token === '<' ||
        (before === ')' && token.startsWith('.'));
      line += tight ? token : ` ${token}`;
      if (token === '{' && brackets === 0) {
        flush();
        indent++;
      } else if (token === ';' && brackets === 0) flush();
    }
    before = token;
  }
  flush();
  return out;
}
