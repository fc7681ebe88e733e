/** List of a quarantine: counts by reason, schema id and producer, and records with the byte where
 *  they break. It writes nothing. */
import { isUtf8 } from 'node:buffer';
import type { MillraceError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Schema } from '../../formats/schema.ts';
import { isRegistryAway } from '../../serde/client.ts';
import type { RecordDecoder } from '../consumer/decoder.ts';
import { batchOf } from '../consumer/deliver.ts';
import { isSelected, type QuarantineFilter } from './filter.ts';
import { type BreakPlace, breakPlace } from './place.ts';
import { RecordIds } from './progress.ts';
import { type Quarantined, readQuarantined, restored, type SourcePlace } from './record.ts';
import type { Scan } from './scan.ts';

/** Most groups that are counted one by one: a hostile producer may send many schema ids. */
const GROUPS_MAX = 1000;
/** Most bytes of a key or header that are shown. */
const SHOWN_BYTES_MAX = 120;
/** Bytes of a value that are shown around the byte where it breaks. */
const HEX_BEFORE = 8;
const HEX_AFTER = 8;

export interface QuarantineGroup {
  readonly reason: string;
  /** Id or guid; empty without one. */
  readonly schemaId: string;
  /** Empty: no header names the producer. */
  readonly producer: string;
  count: number;
}

export interface ListedRecord extends BreakPlace {
  readonly id: string;
  readonly source: SourcePlace;
  /** Milliseconds since the epoch. */
  readonly timestamp: bigint;
  readonly reason: string;
  readonly schemaId: string;
  readonly producer: string;
  readonly readerVersion: string;
  readonly key: string | null;
  /** Error when the record was quarantined. */
  readonly error: string;
  /** Error of reading the record now; absent: it can be read. */
  readonly now?: string;
  /** False: the registry did not answer, so the record was not read now. */
  readonly isRead: boolean;
  readonly bytes: number;
  /** Bytes around the break in hex, and the offset of the first. */
  readonly hexFrom: number;
  readonly hex: string;
}

export interface ListTally {
  /** Records of the quarantine topic. */
  read: number;
  foreign: number;
  otherTopics: number;
  /** Not selected by reason, partition or time. */
  skipped: number;
  /** Redriven before, into any topic. */
  redriven: number;
  /** Further copies of a record in the quarantine. */
  copies: number;
  /** Selected records that were not redriven. */
  left: number;
}

export interface ListOptions {
  readonly scan: Scan;
  readonly topic: string;
  readonly filter: QuarantineFilter;
  readonly decoder: RecordDecoder;
  readonly schemaOf: (id: number | string) => Schema | undefined;
  /** Records that were redriven, into any output. */
  readonly redriven: RecordIds;
  /** Names of the headers that name the producer; the first that a record has counts. */
  readonly producerHeaders: readonly string[];
  readonly recordsMax: number;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly onRead: (records: number) => void;
}

interface Row {
  readonly one: Quarantined;
  readonly row: number;
  readonly producer: string;
}

export class QuarantineList {
  readonly tally: ListTally = {
    read: 0,
    foreign: 0,
    otherTopics: 0,
    skipped: 0,
    redriven: 0,
    copies: 0,
    left: 0,
  };
  readonly records: ListedRecord[] = [];
  private readonly options: ListOptions;
  private readonly counts = new Map<string, QuarantineGroup>();
  private readonly seen = new RecordIds();

  constructor(options: ListOptions) {
    this.options = options;
  }

  /** Groups, the largest first. */
  get groups(): readonly QuarantineGroup[] {
    return [...this.counts.values()].sort((a, b) => b.count - a.count);
  }

  /** @throws timeout, broker_unavailable */
  async run(): Promise<void> {
    const { scan, drain, onRead, recordsMax } = this.options;
    await scan.run(async (records, isInRange) => {
      const before = this.tally.read;
      const rows = this.select(records, isInRange).slice(0, recordsMax - this.records.length);
      if (rows.length > 0) await this.show(records, rows);
      onRead(this.tally.read - before);
      return !drain.aborted;
    });
  }

  private select(records: RecordBatch, isInRange: (row: number) => boolean): readonly Row[] {
    const { topic, filter, redriven } = this.options;
    const { tally } = this;
    const rows: Row[] = [];
    for (let row = 0; row < records.rowCount; row++) {
      if (!isInRange(row)) continue;
      tally.read++;
      const one = readQuarantined(records, row);
      if (one.kind === 'foreign') tally.foreign++;
      else if (one.source.topic !== topic) tally.otherTopics++;
      else if (!isSelected(filter, one, records, row)) tally.skipped++;
      else if (redriven.has(one.id)) tally.redriven++;
      else if (this.seen.has(one.id)) tally.copies++;
      else {
        this.seen.add(one.id);
        tally.left++;
        const producer = this.producerOf(one);
        this.count(one, producer);
        rows.push({ one, row, producer });
      }
    }
    return rows;
  }

  private producerOf({ headers }: Quarantined): string {
    for (const wanted of this.options.producerHeaders) {
      const value = headers.findLast(([name]) => name === wanted)?.[1];
      if (value !== undefined && value !== null) return shownBytes(value) ?? '';
    }
    return '';
  }

  private count({ reason, schemaId }: Quarantined, producer: string): void {
    const key = JSON.stringify([reason, schemaId, producer]);
    const known = this.counts.get(key);
    if (known !== undefined) known.count++;
    else if (this.counts.size < GROUPS_MAX) this.counts.set(key, { reason, schemaId, producer, count: 1 });
    else {
      const rest = this.counts.get('') ?? { reason: 'further groups', schemaId: '', producer: '', count: 0 };
      rest.count++;
      this.counts.set('', rest);
    }
  }

  /** Reads the rows as a consumer reads them now. */
  private async show(records: RecordBatch, rows: readonly Row[]): Promise<void> {
    const { decoder, log } = this.options;
    const batch = batchOf(rows.map(({ one, row }) => restored(records, row, one)));
    const errors = new Map<number, MillraceError>();
    let isRead = true;
    try {
      await decoder.prepare(batch);
      for (const { row, error } of decoder.decode(batch).failed) errors.set(row, error);
    } catch (thrown) {
      if (!isRegistryAway(thrown)) throw thrown;
      isRead = false;
      log.warn(
        { error: (thrown as Error).message },
        'the registry does not answer; records are listed without their fields',
      );
    }
    rows.forEach((row, at) => {
      this.records.push(this.listed(batch, at, row, errors.get(at), isRead));
    });
  }

  private listed(
    batch: RecordBatch,
    row: number,
    { one, producer }: Row,
    error: MillraceError | undefined,
    isRead: boolean,
  ): ListedRecord {
    const value = batch.value(row) ?? new Uint8Array();
    const key = batch.key(row);
    const place: BreakPlace =
      error === undefined
        ? { decoded: [], isCut: false }
        : breakPlace(value, one.headers, error, this.options.schemaOf);
    const hexFrom = Math.max(0, Math.min(place.byte ?? 0, value.length) - HEX_BEFORE);
    return {
      id: one.id,
      source: one.source,
      timestamp: batch.columns.timestamp[row] as bigint,
      reason: one.reason,
      schemaId: one.schemaId,
      producer,
      readerVersion: one.readerVersion,
      key: key === null ? null : shownBytes(key),
      error: one.error,
      ...(error === undefined ? {} : { now: error.message }),
      isRead,
      bytes: value.length,
      hexFrom,
      hex: Buffer.from(value.subarray(hexFrom, hexFrom + HEX_BEFORE + HEX_AFTER)).toString('hex'),
      ...place,
    };
  }
}

/** Text of bytes that are UTF-8, else their hex digits. */
function shownBytes(bytes: Uint8Array): string {
  const part = Buffer.from(bytes.subarray(0, SHOWN_BYTES_MAX));
  return isUtf8(part) ? part.toString('utf8') : `0x${part.toString('hex')}`;
}
