/** Rows of an input file, encoded before they reach the producer: a bad row is refused by its line,
 *  and the rows before it are sent. */
import { isUtf8 } from 'node:buffer';
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { JsonNode, JsonObject } from '../../formats/json/text.ts';
import { JsonTextError, readJson } from '../../formats/json/text.ts';
import type { JsonEncoder } from '../../formats/json-values.ts';
import type { Payloads } from '../../formats/payloads.ts';
import type { WriterCodec } from '../../serde/codec.ts';
import { registryError } from '../errors.ts';

/** Record that is ready to be framed. */
export interface EncodedRow {
  readonly key: Uint8Array | null;
  /** Null for a tombstone. */
  readonly payload: Uint8Array | null;
  /** Milliseconds that the encoding took. */
  readonly tookMs: number;
}

/** Codec that copies the payloads of encoded rows. */
export const rowCodec = (messageIndexes: Int32Array | null): WriterCodec => ({
  messageIndexes,
  encode: (row, into: Payloads) => {
    const { payload } = row as EncodedRow;
    if (payload === null) {
      into.pushNull();
      return;
    }
    if (into.used + payload.length > into.bytes.length) into.grow(payload.length);
    into.bytes.set(payload, into.used);
    into.push(into.used + payload.length);
  },
});

/** Makes the key bytes of a key's JSON. @throws value_refused */
export type KeyEncoder = (json: JsonNode) => Uint8Array | null;

/** Key as its text: a string without quotes, a number by its digits. @throws value_refused */
export const textKey: KeyEncoder = (json) => {
  switch (json.kind) {
    case 'null':
      return null;
    case 'string':
      return Buffer.from(json.value, 'utf8');
    case 'number':
      return Buffer.from(json.digits, 'latin1');
    case 'boolean':
      return Buffer.from(String(json.value), 'latin1');
    case 'object': {
      const bytes = json.members.get('base64')?.value;
      if (json.members.size === 1 && bytes?.kind === 'string') return Buffer.from(bytes.value, 'base64');
      break;
    }
    case 'array':
  }
  throw registryError('value_refused', 'the key is neither a text, a number nor a boolean', {
    next: 'give -key-schema=FILE for a key with fields',
  });
};

export interface RowReaderOptions {
  readonly encoder: JsonEncoder;
  /** record: a line has the members key and value, as `consumer` prints them. */
  readonly lines: 'value' | 'record';
  /** Path of the member that is the key, with the names of each step; undefined for none. Ignored
   *  for lines of records. */
  readonly keyField: ReadonlyArray<readonly string[]> | undefined;
  readonly keyOf: KeyEncoder;
  readonly nowMs: () => number;
}

/** Makes the reader of a line's bytes. @throws value_refused */
export function rowReader(options: RowReaderOptions): (bytes: Buffer) => EncodedRow {
  const { encoder, lines, keyField, keyOf, nowMs } = options;
  return (bytes) => {
    const startMs = nowMs();
    const json = parseLine(bytes);
    const record = lines === 'record' ? recordOf(json) : undefined;
    const value = record === undefined ? json : memberOf(record, 'value');
    const keyJson = record === undefined ? fieldOf(json, keyField) : record.members.get('key')?.value;
    const key = keyJson === undefined ? null : keyOf(keyJson);
    // In a line of a record, null is a tombstone; such a line names its key.
    const isTombstone = record !== undefined && value.kind === 'null';
    const payload = isTombstone ? null : encoder.encode(value);
    return { key, payload, tookMs: nowMs() - startMs };
  };
}

function parseLine(bytes: Buffer): JsonNode {
  if (!isUtf8(bytes)) throw registryError('value_refused', 'the line is not UTF-8');
  try {
    return readJson(bytes.toString('utf8'), { comments: false, repeatedKeys: false });
  } catch (cause) {
    if (!(cause instanceof JsonTextError)) throw cause;
    throw registryError(
      'value_refused',
      `the line is not JSON: ${cause.message}, at column ${cause.at + 1}`,
      {
        cause,
      },
    );
  }
}

function recordOf(json: JsonNode): JsonObject {
  if (json.kind === 'object') return json;
  throw registryError('value_refused', 'the line is no object with the members key and value');
}

function memberOf(record: JsonObject, name: string): JsonNode {
  const member = record.members.get(name);
  if (member === undefined) throw registryError('value_refused', `the line has no member "${name}"`);
  return member.value;
}

/** @throws value_refused where the line has no such member */
function fieldOf(json: JsonNode, path: RowReaderOptions['keyField']): JsonNode | undefined {
  if (path === undefined) return undefined;
  let at = json;
  for (const names of path) {
    const members = at.kind === 'object' ? at.members : undefined;
    const next = names.map((name) => members?.get(name)?.value).find((one) => one !== undefined);
    if (next === undefined) {
      const shown = path.map(([name]) => name).join('.');
      throw registryError('value_refused', `the line has no member ${shown}, which is the key`);
    }
    at = next;
  }
  return at;
}

/** Error of a line with its place in the input. @param place such as `orders.jsonl line 3` */
export function placedError(thrown: unknown, place: string): MillraceError | undefined {
  const error = findMillraceError(thrown);
  if (error?.code !== 'value_refused' && error?.code !== 'malformed_payload') return undefined;
  return registryError('value_refused', `${place}: ${error.message}`, {
    next: error.next ?? 'correct the line, or give -on-error=skip',
    details: { ...error.details, place },
    cause: thrown,
  });
}
