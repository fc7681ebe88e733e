/** Reads keys of variable length from JSON documents, and judges their kinds. */
import { FoundFields, JSON_VALUE, type JsonKernels } from '../../../../core/json/finder.ts';
import { EVENT_STATUS, FRAME } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import type { KeySpans } from '../../../keys/spans.ts';
import type { KeyKind } from '../../../keys/type.ts';
import { ElementFinder, findElements, openListFinder } from '../../list/json.ts';
import type { FieldPath } from '../../list/path.ts';
import type { KeyField } from '../definition.ts';
import { Int64 } from '../int64.ts';

const { MISSING, NULL, NUMBER, INTEGER, STRING, ESCAPED } = JSON_VALUE;
const SIGN_BIT = 1 << 31;
const NO_BYTES = Buffer.alloc(0);

export class JsonKey {
  private readonly found: FoundFields;
  private readonly at: readonly number[];
  private readonly kinds: readonly KeyKind[];
  private readonly int64 = new Int64();

  /** @param at index of each part among the found fields */
  constructor(found: FoundFields, at: readonly number[], parts: ReadonlyArray<{ readonly kind: KeyKind }>) {
    this.found = found;
    this.at = at;
    this.kinds = parts.map(({ kind }) => kind);
  }

  /** Reads the key of the document whose cells begin at `cell`. @returns the status of the row */
  read(bytes: Uint8Array, cell: number, row: number, into: KeySpans): number {
    const { kind } = this.found;
    for (const at of this.at)
      if (kind[cell + at] === MISSING || kind[cell + at] === NULL) return EVENT_STATUS.MISSING_FIELD;
    into.begin();
    for (let part = 0; part < this.at.length; part++)
      if (!this.put(bytes, cell + (this.at[part] as number), this.kinds[part] as KeyKind, into))
        return EVENT_STATUS.BAD_KEY;
    into.end(row);
    return EVENT_STATUS.OK;
  }

  private put(bytes: Uint8Array, at: number, kind: KeyKind, into: KeySpans): boolean {
    const { found, int64 } = this;
    const [start, end] = [found.start[at] as number, found.end[at] as number];
    const is = found.kind[at];
    if (kind === 'i64' || kind === 'u64') {
      if (is !== NUMBER && is !== INTEGER) return false;
      if (!int64.parseJson(bytes, start, end, kind)) return false;
      return into.putWord(int64.low, kind === 'i64' ? int64.high ^ SIGN_BIT : int64.high);
    }
    if (is === STRING && kind === 'uuid') return into.putUuid(bytes, start + 1, end - 1);
    if (is === STRING && kind === 'string') return this.putText(bytes, start + 1, end - 1, into);
    if (is !== STRING && is !== ESCAPED) return false;
    const quoted = Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString('utf8');
    const text = is === ESCAPED ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
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

/** Elements of the list of a record by which kinds are judged. */
const JUDGED_ELEMENTS = 16;

/** Decides the kinds that are open by the first records: a field is a string if it is one more
 *  often than a number. @param list path of the job's list */
export function judgedKinds(
  kernels: JsonKernels,
  records: RecordBatch,
  rows: number,
  fields: readonly KeyField[],
  list: FieldPath | undefined,
): readonly KeyField[] {
  if (fields.every(({ kind }) => kind !== undefined)) return fields;
  const paths = fields.map(({ path }) => path);
  const balance = fields.map(() => 0);
  const note = (found: FoundFields, documents: number): void => {
    for (let row = 0; row < documents; row++)
      for (const at of fields.keys()) {
        const kind = found.isDocument[row] === 1 ? found.kind[row * fields.length + at] : MISSING;
        if (kind === NUMBER || kind === INTEGER) balance[at] = (balance[at] as number) - 1;
        else if (kind === STRING || kind === ESCAPED) balance[at] = (balance[at] as number) + 1;
      }
  };
  const judged =
    list === undefined ? ofDocuments(kernels, paths, note) : ofElements(kernels, paths, list, note);
  for (let row = 0; row < rows; row++) {
    const value = records.value(row);
    if (value === null) continue;
    const from = value[0] === FRAME.MAGIC ? FRAME.HEADER_BYTES : 0;
    if (from <= value.length) judged.judge(value, from);
  }
  judged.close();
  return fields.map((field, at) =>
    field.kind === undefined && (balance[at] as number) > 0 ? { ...field, kind: 'string' } : field,
  );
}

/** Judges one document after the other. */
interface Judge {
  judge(value: Uint8Array, from: number): void;
  close(): void;
}
type Note = (found: FoundFields, documents: number) => void;

const spanOf = (bytes: Uint8Array, from: number) => ({
  bytes,
  start: Uint32Array.of(from),
  length: Int32Array.of(bytes.length - from),
});

function ofDocuments(kernels: JsonKernels, paths: readonly FieldPath[], note: Note): Judge {
  const finder = kernels.openFinder(paths);
  const found = new FoundFields(paths.length, 1);
  return {
    judge(value, from) {
      finder.find(spanOf(value, from), 0, 1, found);
      note(found, 1);
    },
    close: () => finder.close(),
  };
}

/** Judges the first elements of each document's list. */
function ofElements(kernels: JsonKernels, paths: readonly FieldPath[], list: FieldPath, note: Note): Judge {
  const lists = openListFinder(kernels, list);
  const listAt = new FoundFields(1, 1);
  const finder = new ElementFinder(kernels, paths, list);
  const found = new FoundFields(paths.length, JUDGED_ELEMENTS);
  const spans = { starts: new Uint32Array(JUDGED_ELEMENTS), ends: new Uint32Array(JUDGED_ELEMENTS) };
  finder.places = { ...spans, element: Int32Array.from({ length: JUDGED_ELEMENTS }, (_, at) => at) };
  return {
    judge(value, from) {
      lists.find(spanOf(value, from), 0, 1, listAt);
      if (listAt.isDocument[0] === 0 || listAt.kind[0] !== JSON_VALUE.ARRAY) return;
      const [start, end] = [listAt.start[0] as number, listAt.end[0] as number];
      const count = Math.min(JUDGED_ELEMENTS, findElements(value, start, end, spans, 0));
      const payloads = {
        bytes: value,
        start: new Uint32Array(count).fill(from),
        length: new Int32Array(count).fill(value.length - from),
      };
      finder.find(payloads, 0, count, found);
      note(found, count);
    },
    close() {
      lists.close();
      finder.close();
    },
  };
}
