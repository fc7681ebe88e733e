/** Parses one flat JSON object (RFC 8259) without losing digits. It refuses duplicate names,
 *  unknown names and text after the object, which a lenient parser would accept. Values that are
 *  objects or arrays are refused without parsing, so there is no depth to bound. One pass. Cost:
 *  O(text). */

export interface FlatMember {
  readonly kind: 'string' | 'number' | 'true' | 'false' | 'null';
  /** Content of a string, characters of a number, else empty. */
  readonly text: string;
}

export type FlatObject =
  | { readonly ok: true; readonly members: ReadonlyMap<string, FlatMember> }
  | { readonly ok: false; readonly why: string; readonly at: number };

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LITERALS = ['true', 'false', 'null'] as const;
/** Characters that may follow a backslash, except `u` and its four digits. */
const ESCAPES = '"\\/bfnrt';

const isDigit = (char: number): boolean => char >= 0x30 && char <= 0x39;
const isHexDigit = (char: number): boolean =>
  isDigit(char) || (char >= 0x41 && char <= 0x46) || (char >= 0x61 && char <= 0x66);

class Cursor {
  readonly text: string;
  at = 0;
  constructor(text: string) {
    this.text = text;
  }

  blank(): void {
    for (;;) {
      const char = this.text.charCodeAt(this.at);
      if (char !== 0x20 && char !== 0x0a && char !== 0x0d && char !== 0x09) return;
      this.at++;
    }
  }

  punctuation(char: string): boolean {
    this.blank();
    if (this.text[this.at] !== char) return false;
    this.at++;
    return true;
  }

  /** Returns the content of the string at the cursor; control characters in it must be escaped. */
  string(): string | undefined {
    const { text } = this;
    if (text.charCodeAt(this.at) !== QUOTE) return undefined;
    let escaped = false;
    for (let i = this.at + 1; i < text.length; i++) {
      const char = text.charCodeAt(i);
      if (char === QUOTE) {
        const quoted = text.slice(this.at, i + 1);
        this.at = i + 1;
        return escaped ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
      }
      if (char < 0x20) return undefined;
      if (char !== BACKSLASH) continue;
      escaped = true;
      i++;
      if (text[i] === 'u') {
        for (let digits = 0; digits < 4; digits++) if (!isHexDigit(text.charCodeAt(++i))) return undefined;
      } else if (i >= text.length || !ESCAPES.includes(text[i] as string)) return undefined;
    }
    return undefined;
  }

  private digits(from: number): number {
    let i = from;
    while (isDigit(this.text.charCodeAt(i))) i++;
    return i;
  }

  /** Returns the characters of the number at the cursor. */
  number(): string | undefined {
    const { text } = this;
    const from = text[this.at] === '-' ? this.at + 1 : this.at;
    if (!isDigit(text.charCodeAt(from))) return undefined;
    let to = text[from] === '0' ? from + 1 : this.digits(from);
    if (text[to] === '.' && isDigit(text.charCodeAt(to + 1))) to = this.digits(to + 1);
    if (text[to] === 'e' || text[to] === 'E') {
      const signed = text[to + 1] === '+' || text[to + 1] === '-' ? to + 2 : to + 1;
      if (isDigit(text.charCodeAt(signed))) to = this.digits(signed);
    }
    const number = text.slice(this.at, to);
    this.at = to;
    return number;
  }

  literal(): (typeof LITERALS)[number] | undefined {
    const found = LITERALS.find((one) => this.text.startsWith(one, this.at));
    if (found !== undefined) this.at += found.length;
    return found;
  }

  scalar(): FlatMember | undefined {
    const string = this.string();
    if (string !== undefined) return { kind: 'string', text: string };
    const number = this.number();
    if (number !== undefined) return { kind: 'number', text: number };
    const literal = this.literal();
    return literal === undefined ? undefined : { kind: literal, text: '' };
  }
}

/** Parses the object.
 *  @param names the only permitted members */
export function readFlatObject(text: string, names: readonly string[]): FlatObject {
  const cursor = new Cursor(text);
  const fail = (why: string): FlatObject => ({ ok: false, why, at: cursor.at });
  const members = new Map<string, FlatMember>();
  if (!cursor.punctuation('{')) return fail('the body is not a JSON object');
  if (!cursor.punctuation('}')) {
    do {
      cursor.blank();
      const name = cursor.string();
      if (name === undefined) return fail('the body is not valid JSON: a member name is expected');
      if (!names.includes(name))
        return fail(`the body has an unknown field ${JSON.stringify(name.slice(0, 40))}`);
      if (members.has(name)) return fail(`the body has ${name} twice`);
      if (!cursor.punctuation(':')) return fail('the body is not valid JSON: a colon is expected');
      cursor.blank();
      const next = text[cursor.at];
      if (next === '{' || next === '[') return fail(`${name} is not an integer`);
      const member = cursor.scalar();
      if (member === undefined) return fail('the body is not valid JSON: a value is expected');
      members.set(name, member);
    } while (cursor.punctuation(','));
    if (!cursor.punctuation('}'))
      return fail('the body is not valid JSON: a comma or the end of the object is expected');
  }
  cursor.blank();
  if (cursor.at !== text.length) return fail('the body continues after the JSON object');
  return { ok: true, members };
}
