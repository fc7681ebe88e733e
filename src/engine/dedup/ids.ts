/** Identifiers of the events of a batch, which `-dedup` compares.
 *
 *  An identifier is one letter for its type and then its value: `i` and decimal digits, `s` and the
 *  UTF-8 bytes of a text, `b` and bytes, `u` and the 32 hex digits of a uuid. Bytes are Latin-1
 *  characters, so two identifiers are equal if and only if their bytes are. */
import type { Column } from '../../core/columns/column.ts';
import type { BatchViews, ColumnViews } from '../../core/columns/views.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../core/layout/layouts.gen.ts';
import { type ColumnReader, type Place, signOf } from '../source/input/columns.ts';

/** Greatest length of an identifier, in bytes. */
export const ID_BYTES_MAX = 1024;
const UUID_BYTES = 16;
const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i;

export class EventIds {
  private static readonly made = new WeakMap<EventBatch, EventIds>();
  private readonly texts: string[] = [];

  static of(batch: EventBatch): EventIds {
    const made = EventIds.made.get(batch) ?? new EventIds();
    EventIds.made.set(batch, made);
    return made;
  }

  set(row: number, text: string): void {
    this.texts[row] = text;
  }

  /** REQUIRES: the row of the present batch has status OK. */
  text(row: number): string {
    return this.texts[row] as string;
  }
}

/** Identifier of a text in UTF-8. */
export const textId = (bytes: Buffer, start: number, end: number): string =>
  `s${bytes.toString('latin1', start, end)}`;

/** Identifier of a uuid as text in any case; of another text, that text. */
function uuidId(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString('latin1', start, end);
  return UUID.test(text) ? `u${text.replaceAll('-', '').toLowerCase()}` : `s${text}`;
}

/** True if a column can be an identifier. */
export const isIdentifier = (column: Column): boolean =>
  signOf(column) !== undefined || ['utf8', 'binary', 'fixed'].includes(column.kind);

/** Reads the identifiers of a column. REQUIRES: `isIdentifier` of it */
export function idReader({ columns }: BatchViews, { index, column }: Place): ColumnReader {
  const views = columns[index] as ColumnViews;
  const get = idGet(views, column);
  return ({ count, rows }, { status, batch }) => {
    const ids = EventIds.of(batch);
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      const text = get(i);
      // One letter is the type.
      if (text.length - 1 > ID_BYTES_MAX) status[row] = EVENT_STATUS.BAD_VALUE;
      else ids.set(row, text);
    }
  };
}

/** Value of an identifier as a text: digits, the text, hexadecimal digits of bytes, or a uuid with
 *  its dashes. U+0000, which PostgreSQL has in no text, is U+FFFD. */
export function idText(identifier: Uint8Array): string {
  const value = Buffer.from(identifier.buffer, identifier.byteOffset + 1, identifier.length - 1);
  switch (String.fromCharCode(identifier[0] as number)) {
    case 'b':
      return value.toString('hex');
    case 'u':
      return value.toString('latin1').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
    default:
      return value.toString('utf8').replaceAll('\0', '\ufffd');
  }
}

/** Reads an identifier of a column by its row. */
export function idGet(views: ColumnViews, column: Column): (at: number) => string {
  const isUuid = column.logical?.type === 'uuid';
  const size = column.size ?? 0;
  const start = (at: number): number => views.offsets[at] as number;
  const end = (at: number): number => views.offsets[at + 1] as number;
  switch (column.kind) {
    case 'int32':
      return (at) => `i${views.int32[at]}`;
    case 'uint32':
      return (at) => `i${views.uint32[at]}`;
    case 'int64':
      return (at) => `i${views.int64[at]}`;
    case 'uint64':
      return (at) => `i${views.uint64[at]}`;
    case 'binary':
      return (at) => `b${views.bytes.toString('latin1', start(at), end(at))}`;
    case 'fixed':
      return isUuid && size === UUID_BYTES
        ? (at) => `u${views.bytes.toString('hex', at * size, (at + 1) * size)}`
        : (at) => `b${views.bytes.toString('latin1', at * size, (at + 1) * size)}`;
    default:
      return isUuid
        ? (at) => uuidId(views.bytes, start(at), end(at))
        : (at) => textId(views.bytes, start(at), end(at));
  }
}
