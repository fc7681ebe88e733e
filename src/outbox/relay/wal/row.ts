/** Reader of outbox rows from the cells of decoded inserts; it finds the columns by name, in any
 *  order. */

import { RECORD_COLUMNS, type RecordFields } from '../../append/record-columns.ts';
import { outboxError } from '../../errors.ts';
import { canonicalUuid } from '../../ids.ts';
import type { OutboxRow } from '../store.ts';
import { CELL, type Relation, type Tuple } from './pgoutput.ts';

/** Columns that every outbox has and the relay reads. */
export const WAL_COLUMNS = ['id', 'aggregate_id', 'msg_id', 'event_type', 'payload', 'created_at'] as const;

const OID = {
  int8: 20,
  int4: 23,
  int2: 21,
  uuid: 2950,
  bytea: 17,
  timestamptz: 1184,
  timestamp: 1114,
  jsonb: 3802,
};
const EPOCH_2000_MS = 946_684_800_000;
/** Range of Date; PostgreSQL's `infinity` lies beyond it too. */
const DATE_MS_MAX = 8.64e15;

const UUID_BYTES = 16;
const UUID_CHARS = 36;
const DIGITS = Buffer.from('0123456789abcdef');
const scratch = Buffer.alloc(UUID_CHARS, '-');

/** Formats a UUID as one flat string: a string concatenated from slices would be flattened again by
 *  its readers. */
function uuidOf(bytes: Buffer, start: number): string {
  let to = 0;
  for (let i = 0; i < UUID_BYTES; i++) {
    if (i === 4 || i === 6 || i === 8 || i === 10) to++;
    const byte = bytes[start + i] as number;
    scratch[to++] = DIGITS[byte >> 4] as number;
    scratch[to++] = DIGITS[byte & 15] as number;
  }
  return scratch.toString('latin1', 0, UUID_CHARS);
}

/** Parses `2026-01-02 03:04:05.678901+00`, the output of DateStyle ISO. */
function dateOf(text: string): Date {
  const iso = text.replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00');
  return new Date(/[+-]\d\d:\d\d$/.test(iso) ? iso : `${iso}Z`);
}

/** Reader of the rows of one table version; a new description of the relation needs a new
 *  reader. */
export class WalRowReader {
  private readonly relation: Relation;
  private readonly places: readonly number[];
  private readonly traceparent: number;
  /** Places of RECORD_COLUMNS; undefined where the publication lacks them. */
  private readonly recordPlaces: readonly number[] | undefined;
  /** Cache of the last event type and its bytes: event types are few and repeat. */
  private event = '';
  private eventBytes = Buffer.alloc(0);

  /** Finds the columns. @throws wal_undecodable: the publication lacks a column */
  constructor(relation: Relation) {
    this.relation = relation;
    const place = (name: string): number => relation.columns.findIndex((column) => column.name === name);
    this.places = WAL_COLUMNS.map(place);
    this.traceparent = place('traceparent');
    const recordPlaces = RECORD_COLUMNS.map(place);
    this.recordPlaces = recordPlaces.every((found) => found >= 0) ? recordPlaces : undefined;
    const missing = WAL_COLUMNS.filter((_, i) => (this.places[i] as number) < 0);
    if (missing.length > 0)
      throw outboxError(
        'wal_undecodable',
        `the publication lacks columns of ${relation.schema}.${relation.name}: ${missing.join(', ')}`,
        { next: 'drop the publication: the relay creates it again with the columns that it needs' },
      );
  }

  /** Reads a row. @throws wal_undecodable: a cell does not have the type of its column */
  read(tuple: Tuple): OutboxRow {
    const [id, aggregateId, msgId, eventType, payload, createdAt] = this.places as [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    const row: OutboxRow = {
      id: this.integer(tuple, id),
      aggregateId: this.uuid(tuple, aggregateId),
      msgId: this.uuid(tuple, msgId),
      eventType: this.eventType(tuple, eventType),
      payload: this.bytes(tuple, payload),
      createdAt: this.time(tuple, createdAt),
    };
    const traceparent = this.traceparent < 0 ? null : this.optionalText(tuple, this.traceparent);
    const record = this.recordFields(tuple);
    if (traceparent === null && record === undefined) return row;
    return {
      ...row,
      ...(traceparent === null ? {} : { traceparent }),
      ...(record === undefined ? {} : { record }),
    };
  }

  private optionalText(tuple: Tuple, place: number): string | null {
    if (tuple.kind[place] === CELL.null) return null;
    this.isBinary(tuple, place);
    return this.text(tuple, place);
  }

  private recordFields(tuple: Tuple): RecordFields | undefined {
    const places = this.recordPlaces;
    if (places?.some((place) => tuple.kind[place] !== CELL.null) !== true) return undefined;
    const [aggregateKey = null, partitionKey = null, topic = null, headers = null, contentType = null] =
      places.map((place) => this.optionalText(tuple, place));
    return { aggregateKey, partitionKey, topic, headers, contentType };
  }

  private wrong(place: number): Error {
    const column = this.relation.columns[place];
    return outboxError(
      'wal_undecodable',
      `column ${column?.name} (type ${column?.typeOid}) of ${this.relation.schema}.${this.relation.name} has a value that the relay cannot read`,
      { next: 'use the column types of the outbox table: bigint, uuid, uuid, text, bytea, timestamptz' },
    );
  }

  /** True for a binary cell, false for a text cell. */
  private isBinary(tuple: Tuple, place: number): boolean {
    const kind = tuple.kind[place];
    if (kind === CELL.binary) return true;
    if (kind === CELL.text) return false;
    throw this.wrong(place);
  }

  private text(tuple: Tuple, place: number): string {
    return tuple.bytes.toString('utf8', tuple.start[place], tuple.end[place]);
  }

  private integer(tuple: Tuple, place: number): bigint {
    const start = tuple.start[place] as number;
    const length = (tuple.end[place] as number) - start;
    if (!this.isBinary(tuple, place)) {
      const text = length <= 20 ? this.text(tuple, place) : '';
      if (!/^-?\d+$/.test(text)) throw this.wrong(place);
      return BigInt(text);
    }
    if (length === 8) return tuple.bytes.readBigInt64BE(start);
    if (length === 4) return BigInt(tuple.bytes.readInt32BE(start));
    if (length === 2) return BigInt(tuple.bytes.readInt16BE(start));
    throw this.wrong(place);
  }

  private uuid(tuple: Tuple, place: number): string {
    const start = tuple.start[place] as number;
    const end = tuple.end[place] as number;
    if (this.isBinary(tuple, place) && this.relation.columns[place]?.typeOid === OID.uuid) {
      if (end - start !== UUID_BYTES) throw this.wrong(place);
      return uuidOf(tuple.bytes, start);
    }
    const found = canonicalUuid(end - start === UUID_CHARS ? this.text(tuple, place) : '');
    if (found === undefined) throw this.wrong(place);
    return found;
  }

  private eventType(tuple: Tuple, place: number): string {
    this.isBinary(tuple, place);
    const start = tuple.start[place] as number;
    const end = tuple.end[place] as number;
    const known = this.eventBytes;
    if (known.length === end - start && tuple.bytes.compare(known, 0, known.length, start, end) === 0)
      return this.event;
    this.event = this.text(tuple, place);
    this.eventBytes = Buffer.from(tuple.bytes.subarray(start, end));
    return this.event;
  }

  private bytes(tuple: Tuple, place: number): Uint8Array {
    const start = tuple.start[place] as number;
    const end = tuple.end[place] as number;
    const oid = this.relation.columns[place]?.typeOid;
    if (this.isBinary(tuple, place)) {
      // Binary jsonb has a version byte before its text.
      return tuple.bytes.subarray(oid === OID.jsonb && end > start ? start + 1 : start, end);
    }
    if (oid !== OID.bytea) return tuple.bytes.subarray(start, end);
    const text = tuple.bytes.toString('latin1', start, end);
    const bytes = Buffer.from(text.slice(2), 'hex');
    if (!text.startsWith('\\x') || bytes.length * 2 !== text.length - 2) throw this.wrong(place);
    return bytes;
  }

  private time(tuple: Tuple, place: number): Date {
    let ms: number;
    if (this.isBinary(tuple, place)) {
      const start = tuple.start[place] as number;
      if ((tuple.end[place] as number) - start !== 8) throw this.wrong(place);
      const us = tuple.bytes.readInt32BE(start) * 2 ** 32 + tuple.bytes.readUInt32BE(start + 4);
      ms = Math.floor(us / 1000) + EPOCH_2000_MS;
    } else {
      const text = this.text(tuple, place);
      ms = text === 'infinity' ? DATE_MS_MAX : text === '-infinity' ? -DATE_MS_MAX : dateOf(text).getTime();
    }
    if (Number.isNaN(ms)) throw this.wrong(place);
    return new Date(Math.min(DATE_MS_MAX, Math.max(-DATE_MS_MAX, ms)));
  }
}
