/** Glob patterns over names: `*` matches any run of characters, `?` one character, `\` the next
 *  character literally.
 *  Matching uses no regular expression, so a pattern cannot cause catastrophic backtracking: it
 *  steps back to the last star only, O(text x pattern) at worst. */

const STAR = -1;
const ANY = -2;

export class Glob {
  readonly text: string;
  /** True if the pattern matches every name. */
  readonly everything: boolean;
  private readonly tokens: readonly number[];
  /** Fast paths: a pattern without wildcards, or with a single star at the end. */
  private readonly exact: string | undefined;
  private readonly prefix: string | undefined;

  private constructor(text: string, tokens: readonly number[]) {
    this.text = text;
    this.tokens = tokens;
    this.everything = tokens.length === 1 && tokens[0] === STAR;
    const literal = tokens.filter((token) => token >= 0);
    const spelled = literal.map((token) => String.fromCodePoint(token)).join('');
    this.exact = literal.length === tokens.length ? spelled : undefined;
    this.prefix = literal.length === tokens.length - 1 && tokens.at(-1) === STAR ? spelled : undefined;
  }

  /** Parses a pattern; undefined: it ends in a lone `\`. */
  static parse(text: string): Glob | undefined {
    const tokens: number[] = [];
    const characters = [...text];
    for (let i = 0; i < characters.length; i++) {
      const one = characters[i] as string;
      if (one === '*') {
        if (tokens.at(-1) !== STAR) tokens.push(STAR);
      } else if (one === '?') tokens.push(ANY);
      else {
        const literal = one === '\\' ? characters[++i] : one;
        if (literal === undefined) return undefined;
        tokens.push(literal.codePointAt(0) as number);
      }
    }
    return new Glob(text, tokens);
  }

  matches(name: string): boolean {
    if (this.everything) return true;
    if (this.exact !== undefined) return name === this.exact;
    if (this.prefix !== undefined) return name.startsWith(this.prefix);
    const { tokens } = this;
    const characters = Array.from(name, (one) => one.codePointAt(0) as number);
    let at = 0;
    let token = 0;
    let star = -1;
    let resume = 0;
    while (at < characters.length) {
      const wanted = tokens[token];
      if (wanted === STAR) {
        star = token++;
        resume = at;
      } else if (wanted === ANY || wanted === characters[at]) {
        token++;
        at++;
      } else if (star >= 0) {
        token = star + 1;
        at = ++resume;
      } else return false;
    }
    while (tokens[token] === STAR) token++;
    return token === tokens.length;
  }
}
