/** Reads keys of variable length from JSON documents, and judges their kinds. */
import { EVENT_STATUS, FRAME } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import { JSON_VALUE, JsonScanner } from '../../../../formats/json/scan.ts';
import type { KeySpans } from '../../../keys/spans.ts';
import type { KeyKind } from '../../../keys/type.ts';
import type { KeyField } from '../definition.ts';
import { Int64 } from '../int64.ts';

const { MISSING, NULL, NUMBER, STRING, ESCAPED } = JSON_VALUE;
const SIGN_BIT = 1 << 31;
const NO_BYTES = Buffer.alloc(0);

export class JsonKey {
  private readonly scanner: JsonScanner;
  private readonly at: readonly number[];
  private readonly kinds: readonly KeyKind[];
  private readonly int64 = new Int64();

  /** @param at index of each part in the scanner */
  constructor(scanner: JsonScanner, at: readonly number[], parts: ReadonlyArray<{ readonly kind: KeyKind }>) {
    this.scanner = scanner;
    this.at = at;
    this.kinds = parts.map(({ kind }) => kind);
  }

  /** Reads the key of the scanned document. @returns the status of the row */
  read(bytes: Uint8Array, row: number, into: KeySpans): number {
    const { kind } = this.scanner;
    for (const at of this.at)
      if (kind[at] === MISSING || kind[at] === NULL) return EVENT_STATUS.MISSING_FIELD;
    into.begin();
    for (let part = 0; part < this.at.length; part++)
      if (!this.put(bytes, this.at[part] as number, this.kinds[part] as KeyKind, into))
        return EVENT_STATUS.BAD_KEY;
    into.end(row);
    return EVENT_STATUS.OK;
  }

  private put(bytes: Uint8Array, at: number, kind: KeyKind, into: KeySpans): boolean {
    const { scanner, int64 } = this;
    const [start, end] = [scanner.start[at] as number, scanner.end[at] as number];
    const found = scanner.kind[at];
    if (kind === 'i64' || kind === 'u64') {
      if (found !== NUMBER || !int64.parseJson(bytes, start, end, kind)) return false;
      return into.putWord(int64.low, kind === 'i64' ? int64.high ^ SIGN_BIT : int64.high);
    }
    if (found === STRING && kind === 'uuid') return into.putUuid(bytes, start + 1, end - 1);
    if (found === STRING && kind === 'string') return this.putText(bytes, start + 1, end - 1, into);
    if (found !== STRING && found !== ESCAPED) return false;
    const text = scanner.text(at);
    if (kind === 'bytes') {
      const decoded = base64(text);
      return decoded !== undefined && this.putSpan(decoded, into);
    }
    // A lone surrogate has no UTF-8: two of them would become one key.
    const utf8 = /\p{Surrogate}/u.test(text) ? undefined : Buffer.from(text, 'utf8');
    if (utf8 === undefined) return false;
    return kind === 'uuid' ? into.putUuid(utf8, 0, utf8.length) : this.putText(utf8, 0, utf8.length, into);
  }

  private get isAlone(): boolean {
    return this.at.length === 1;
  }

  private putText(bytes: Uint8Array, from: number, to: number, into: KeySpans): boolean {
    return (this.isAlone || into.putLength(to - from)) && into.putText(bytes, from, to);
  }

  private putSpan(bytes: Uint8Array, into: KeySpans): boolean {
    return (this.isAlone || into.putLength(bytes.length)) && into.put(bytes, 0, bytes.length);
  }
}

/** Decodes base64 as RFC 4648 prints it, so that two texts never give one key; undefined for any
 *  other text. */
function base64(text: string): Buffer | undefined {
  if (text === '') return NO_BYTES;
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}

/** Decides the kinds that are open by the first records: a field is a string if it is one more
 *  often than a number. */
export function judgedKinds(
  records: RecordBatch,
  rows: number,
  fields: readonly KeyField[],
): readonly KeyField[] {
  if (fields.every(({ kind }) => kind !== undefined)) return fields;
  const scanner = new JsonScanner(fields.map(({ path }) => path));
  const balance = fields.map(() => 0);
  for (let row = 0; row < rows; row++) {
    const value = records.value(row);
    if (value === null) continue;
    const from = value[0] === FRAME.MAGIC ? FRAME.HEADER_BYTES : 0;
    if (from > value.length || !scanner.scan(value, from, value.length)) continue;
    for (const at of fields.keys()) {
      const kind = scanner.kind[at];
      if (kind === NUMBER) balance[at] = (balance[at] as number) - 1;
      else if (kind === STRING || kind === ESCAPED) balance[at] = (balance[at] as number) + 1;
    }
  }
  return fields.map((field, at) =>
    field.kind === undefined && (balance[at] as number) > 0 ? { ...field, kind: 'string' } : field,
  );
}
