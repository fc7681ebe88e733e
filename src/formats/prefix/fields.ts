/** Fields that were read from a payload before it cannot be read further, as text for a person. */

/** Most fields that are kept. */
const FIELDS_MAX = 64;
/** Most values, messages and items that are visited: a hostile payload has many without a field. */
const VISITS_MAX = 10_000;
/** Most characters of a path, and of a value. */
const PATH_CHARS_MAX = 120;
const VALUE_CHARS_MAX = 80;
/** Most bytes of a binary value that are shown. */
const BINARY_BYTES_MAX = 16;

/** Thrown when enough fields are kept. */
class Full extends Error {}

const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text);

/** Collector of fields in the order of the payload: `items[0].sku="a"`. */
export class PrefixFields {
  readonly texts: string[] = [];
  private full = false;
  private visits = 0;

  /** True when further fields were left out. */
  get isFull(): boolean {
    return this.full;
  }

  /** Counts a value, a message or an item. Throws when there were enough; see `collect`. */
  visit(): void {
    if (++this.visits > VISITS_MAX) this.end();
  }

  add(path: string, value: unknown): void {
    if (this.texts.length >= FIELDS_MAX) this.end();
    const text = cut(shown(value), VALUE_CHARS_MAX);
    this.texts.push(path === '' ? text : `${cut(path, PATH_CHARS_MAX)}=${text}`);
  }

  private end(): never {
    this.full = true;
    throw new Full();
  }

  /** Runs a reader until it ends or enough fields are kept. @throws errors of the reader */
  collect(read: () => void): void {
    try {
      read();
    } catch (thrown) {
      if (!(thrown instanceof Full)) throw thrown;
    }
  }
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, VALUE_CHARS_MAX + 1));
  if (!(value instanceof Uint8Array)) return String(value);
  const hex = Buffer.from(value.subarray(0, BINARY_BYTES_MAX)).toString('hex');
  return `0x${hex}${value.length > BINARY_BYTES_MAX ? '…' : ''}`;
}
