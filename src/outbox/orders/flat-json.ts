/** Reads one flat JSON object (RFC 8259) without losing digits, and refuses what a lenient parser would let pass:
 *  duplicate names, unknown names, anything after the object. Values that are objects or arrays are never entered, so
 *  there is no depth to bound. Cost: O(text). */

export interface JsonMember {
  readonly kind: 'string' | 'number' | 'true' | 'false' | 'null';
  /** string: its content; number: its characters; else empty. */
  readonly text: string;
}

export type FlatObject =
  | { readonly ok: true; readonly members: ReadonlyMap<string, JsonMember> }
  | { readonly ok: false; readonly why: string; readonly at: number };

const BLANK = /[ \t\n\r]*/y;
/** A string with its escapes; control characters must be escaped. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the grammar forbids exactly these
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

class Cursor {
  readonly text: string;
  at = 0;
  constructor(text: string) {
    this.text = text;
  }
  take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (match === null) return undefined;
    this.at = pattern.lastIndex;
    return match[0];
  }
  blank(): void {
    this.take(BLANK);
  }
  punctuation(char: string): boolean {
    this.blank();
    if (this.text[this.at] !== char) return false;
    this.at++;
    return true;
  }
}

/** @param names the only members allowed */
export function readFlatObject(text: string, names: readonly string[]): FlatObject {
  const cursor = new Cursor(text);
  const fail = (why: string): FlatObject => ({ ok: false, why, at: cursor.at });
  const members = new Map<string, JsonMember>();
  if (!cursor.punctuation('{')) return fail('the body is not a JSON object');
  if (!cursor.punctuation('}')) {
    do {
      cursor.blank();
      const quoted = cursor.take(STRING);
      if (quoted === undefined) return fail('the body is not valid JSON: a member name is expected');
      const name = JSON.parse(quoted) as string;
      if (!names.includes(name))
        return fail(`the body has an unknown field ${JSON.stringify(name.slice(0, 40))}`);
      if (members.has(name)) return fail(`the body has ${name} twice`);
      if (!cursor.punctuation(':')) return fail('the body is not valid JSON: a colon is expected');
      cursor.blank();
      const next = text[cursor.at];
      if (next === '{' || next === '[') return fail(`${name} is not an integer`);
      const string = cursor.take(STRING);
      const scalar = string === undefined ? cursor.take(SCALAR) : undefined;
      if (string !== undefined) members.set(name, { kind: 'string', text: JSON.parse(string) as string });
      else if (scalar === 'true' || scalar === 'false' || scalar === 'null')
        members.set(name, { kind: scalar, text: '' });
      else if (scalar !== undefined) members.set(name, { kind: 'number', text: scalar });
      else return fail('the body is not valid JSON: a value is expected');
    } while (cursor.punctuation(','));
    if (!cursor.punctuation('}'))
      return fail('the body is not valid JSON: a comma or the end of the object is expected');
  }
  cursor.blank();
  if (cursor.at !== text.length) return fail('the body goes on after the JSON object');
  return { ok: true, members };
}
