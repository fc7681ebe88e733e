/** Hides secret values in texts of other origin: messages of libraries and servers, stack traces.
 *
 *  Texts of Millrace never contain a secret. A library may quote a value that it was given: whole,
 *  escaped, or cut off at the end of a buffer. So a long secret is hidden by its pieces too.
 */
export const HIDDEN = '***';

/** Length in characters of the pieces by which a longer secret is hidden. */
const PIECE_CHARS = 12;
/** Length in characters of the shortest line of a secret that is hidden on its own. */
const LINE_CHARS_MIN = 6;

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function encoded(text: string): string {
  try {
    return encodeURIComponent(text);
  } catch {
    // A lone surrogate has no encoding.
    return text;
  }
}

export class Secrets {
  /** Forms of the secrets, longest first: a shorter form can be a part of a longer one, and hiding
   *  it first would leave the rest of the longer one. */
  private readonly whole: readonly string[];
  private readonly pieces = new Set<string>();

  constructor(values: Iterable<string>) {
    const forms = new Set<string>();
    for (const value of values) {
      for (const text of [value, decoded(value)]) {
        forms.add(text).add(text.trim()).add(encoded(text));
        forms.add(JSON.stringify(text).slice(1, -1));
        const lines = text.split(/\s*[\r\n]+\s*/);
        forms.add(lines.join(' '));
        for (const line of lines) if (line.length >= LINE_CHARS_MIN) forms.add(line);
      }
    }
    forms.delete('');
    this.whole = [...forms].sort((a, b) => b.length - a.length);
    for (const form of this.whole) {
      for (const line of form.split(/[\r\n]+/)) {
        for (let at = 0; at + PIECE_CHARS < line.length; at++)
          this.pieces.add(line.slice(at, at + PIECE_CHARS));
        if (line.length > PIECE_CHARS) this.pieces.add(line.slice(-PIECE_CHARS));
      }
    }
  }

  get isEmpty(): boolean {
    return this.whole.length === 0;
  }

  hide(text: string): string {
    let out = text;
    for (const known of this.whole) out = out.replaceAll(known, HIDDEN);
    return this.pieces.size === 0 ? out : this.hidePieces(out);
  }

  private hidePieces(text: string): string {
    let out = '';
    /** End of the text that is copied or hidden. */
    let done = 0;
    /** End of the pieces found so far; the text between `done` and this end is hidden. */
    let hiddenTo = 0;
    for (let at = 0; at + PIECE_CHARS <= text.length; at++) {
      if (!this.pieces.has(text.slice(at, at + PIECE_CHARS))) continue;
      if (at > hiddenTo || hiddenTo === 0) {
        out += hiddenTo === 0 ? text.slice(0, at) : HIDDEN + text.slice(hiddenTo, at);
        done = at;
      }
      hiddenTo = at + PIECE_CHARS;
    }
    return hiddenTo === 0 ? text : `${out}${done < hiddenTo ? HIDDEN : ''}${text.slice(hiddenTo)}`;
  }
}
