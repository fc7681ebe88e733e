/** Decodes batches of a replay with one reader schema: the records of each writer schema go through
 *  the column kernels together.
 *  Invariants: (1) every row that counts is decoded, a tombstone, or a failure with a reason of the
 *  closed list, as the consumer decides about it; (2) `decode` does no I/O, because `prepare` loads
 *  the schemas first. */
import type { Kernels } from '../../addon/surface.ts';
import type { ColumnKernels } from '../../core/columns/kernel.ts';
import { findMillraceError } from '../../core/errors.ts';
import { FrameBatch } from '../../core/layout/frame-batch.ts';
import { FRAME_STATUS, RECORD_FLAG } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { LruMap } from '../../core/lru-map.ts';
import type { Schema } from '../../formats/schema.ts';
import type { RecordCodecs } from '../../serde/codec.ts';
import { messagePath, readHeaderId, readMessage, VALUE_ID_HEADER } from '../../serde/frame.ts';
import { type FailedRow, failedRow, frameError } from '../consumer/decoder.ts';
import { type WantedSchemas, type WriterSchemas, want } from '../consumer/writers.ts';
import { registryError } from '../errors.ts';
import { type PairPayloads, type PairReader, pairReader } from './pair.ts';

/** Compiled pairs that are kept; a pair keeps a batch of columns. */
const PAIRS_MAX = 64;

export interface ReplayDecoderOptions {
  readonly kernels: Kernels;
  readonly columns: ColumnKernels;
  readonly codecs: RecordCodecs;
  readonly reader: Schema;
  readonly writers: WriterSchemas;
  readonly rowCapacity: number;
}

/** Result of a batch. */
export interface ReplayedBatch {
  readonly tombstones: number;
  /** Decoded records by the id or guid of their writer schema. */
  readonly decoded: ReadonlyMap<number | string, number>;
  /** In the order of the batch. */
  readonly failed: readonly FailedRow[];
}

/** Rows of a batch with one writer schema and one message. */
class Group implements PairPayloads {
  readonly schemaId: number | string;
  readonly path: readonly number[];
  readonly start: Uint32Array;
  readonly length: Int32Array;
  readonly rows: Uint32Array;
  bytes: Uint8Array = new Uint8Array(0);
  count = 0;

  constructor(schemaId: number | string, path: readonly number[], rowCapacity: number) {
    this.schemaId = schemaId;
    this.path = path;
    this.start = new Uint32Array(rowCapacity);
    this.length = new Int32Array(rowCapacity);
    this.rows = new Uint32Array(rowCapacity);
  }

  add(row: number, start: number, length: number): void {
    this.rows[this.count] = row;
    this.start[this.count] = start;
    this.length[this.count++] = length;
  }
}

/** Writer schema, message and payload of a row. */
interface Place {
  schemaId: number | string;
  /** Index of a top-level message, or indexes of a nested one. */
  message: number | readonly number[];
  start: number;
  length: number;
}

/** Messages of one schema whose pairs have a number as key. */
const NUMBERED_MESSAGES = 1024;

const keyOf = ({ schemaId, message }: Place): number | string =>
  typeof schemaId === 'number' && typeof message === 'number' && message < NUMBERED_MESSAGES
    ? schemaId * NUMBERED_MESSAGES + message
    : `${schemaId} ${typeof message === 'number' ? message : message.join()}`;

/** Group with its reader, or the error of all its records. */
interface Pair {
  readonly group: Group;
  readonly reader: PairReader | undefined;
  readonly error: unknown;
}

export class ReplayDecoder {
  private readonly options: ReplayDecoderOptions;
  private readonly frames: FrameBatch;
  private readonly hasIndexes: boolean;
  private readonly pairs = new LruMap<number | string, Pair>();
  /** Pairs with rows of the current batch. */
  private readonly filled = new Set<Pair>();
  /** Place of the current row. */
  private readonly place: Place = { schemaId: 0, message: 0, start: 0, length: 0 };

  constructor(options: ReplayDecoderOptions) {
    this.options = options;
    this.frames = FrameBatch.create(options.rowCapacity);
    this.hasIndexes = options.reader.format === 'PROTOBUF';
  }

  /** Scans the frames and loads the schemas that are missing. May be called again for the same
   *  batch.
   *  @throws registry_unavailable, registry_protocol: wait and call again */
  async prepare(records: RecordBatch): Promise<void> {
    const { kernels, writers } = this.options;
    kernels.scanFrames(records, this.hasIndexes, this.frames);
    const { status, schemaId } = this.frames.columns;
    const { flags } = records.columns;
    const wanted: WantedSchemas = new Map();
    for (let row = 0; row < records.rowCount; row++) {
      const guid = (flags[row] as number) & RECORD_FLAG.HAS_HEADERS ? guidOf(records, row) : undefined;
      if (guid !== undefined) want(wanted, guid);
      else if (status[row] === FRAME_STATUS.OK) want(wanted, schemaId[row] as number);
    }
    await writers.load(wanted);
  }

  /** Decodes the batch of the latest `prepare`.
   *  @param counts 1 for each row that counts; absent: all do */
  decode(records: RecordBatch, counts?: Uint8Array): ReplayedBatch {
    const decoded = new Map<number | string, number>();
    const failed: FailedRow[] = [];
    let tombstones = 0;
    for (let row = 0; row < records.rowCount; row++) {
      if (counts !== undefined && counts[row] !== 1) continue;
      if (this.frames.columns.status[row] === FRAME_STATUS.NULL_VALUE) {
        tombstones++;
        continue;
      }
      const { place } = this;
      place.schemaId = 0;
      try {
        this.locate(records, row);
        const pair = this.pairOf(place);
        if (pair.error !== undefined) throw pair.error;
        pair.group.add(row, place.start, place.length);
        this.filled.add(pair);
      } catch (thrown) {
        failed.push(failedRow(row, place.schemaId, thrown));
      }
    }
    for (const { group, reader } of this.filled) {
      const before = failed.length;
      group.bytes = records.columns.arena;
      reader?.read(group, (index, error) =>
        failed.push(failedRow(group.rows[index] as number, group.schemaId, error)),
      );
      const readable = group.count - (failed.length - before);
      decoded.set(group.schemaId, (decoded.get(group.schemaId) ?? 0) + readable);
      group.count = 0;
    }
    this.filled.clear();
    return { tombstones, decoded, failed: failed.sort((a, b) => a.row - b.row) };
  }

  close(): void {
    for (let entry = this.pairs.shift(); entry !== undefined; entry = this.pairs.shift())
      entry[1].reader?.close();
  }

  /** Sets the place of the current row. @throws bad_magic, truncated_frame, bad_message_index */
  private locate(records: RecordBatch, row: number): void {
    const { place, hasIndexes } = this;
    const { valueStart, valueLength, flags, arena } = records.columns;
    if (((flags[row] as number) & RECORD_FLAG.HAS_HEADERS) !== 0) {
      const header = headerOf(records, row);
      if (header !== undefined) {
        const id = readHeaderId(header);
        place.schemaId = id.id;
        place.message = readMessage(id, hasIndexes).path;
        place.start = valueStart[row] as number;
        place.length = valueLength[row] as number;
        return;
      }
    }
    const { status, schemaId, messageIndex, indexStart, payloadStart, payloadLength } = this.frames.columns;
    if (status[row] !== FRAME_STATUS.OK) throw frameError(status[row] as number, valueLength[row] as number);
    place.schemaId = schemaId[row] as number;
    place.start = payloadStart[row] as number;
    place.length = payloadLength[row] as number;
    const index = messageIndex[row] as number;
    place.message =
      !hasIndexes || index >= 0
        ? Math.max(0, index)
        : messagePath(arena, indexStart[row] as number, place.start);
  }

  private pairOf(place: Place): Pair {
    const key = keyOf(place);
    const known = this.pairs.get(key);
    if (known !== undefined) return known;
    const { schemaId, message } = place;
    // A schema that is not loaded is a fact about this batch only.
    const writer = this.options.writers.schemaOf(schemaId);
    const path = typeof message === 'number' ? [message] : message;
    const made = this.compile(writer, new Group(schemaId, path, this.options.rowCapacity));
    this.pairs.set(key, made);
    if (this.pairs.size > PAIRS_MAX) this.evict();
    return made;
  }

  /** Closes the pair that was used longest ago and has no rows of this batch. */
  private evict(): void {
    for (let left = this.pairs.size; left > 0; left--) {
      const [key, pair] = this.pairs.shift() as readonly [number | string, Pair];
      if (!this.filled.has(pair)) {
        pair.reader?.close();
        return;
      }
      this.pairs.set(key, pair);
    }
  }

  private compile(writer: Schema, group: Group): Pair {
    const { reader, columns, codecs, rowCapacity } = this.options;
    try {
      const made = pairReader(reader, writer, group.path, { kernels: columns, codecs, rowCapacity });
      return { group, reader: made, error: undefined };
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      const fact =
        error.row.reason === undefined
          ? registryError('incompatible_schema', error.message, { cause: error })
          : error;
      return { group, reader: undefined, error: fact };
    }
  }
}

function headerOf(records: RecordBatch, row: number): Uint8Array | undefined {
  return records.headers(row).findLast(([name]) => name === VALUE_ID_HEADER)?.[1] ?? undefined;
}

/** Guid in the header of a record; undefined without a readable one. */
function guidOf(records: RecordBatch, row: number): string | undefined {
  const header = headerOf(records, row);
  if (header === undefined) return undefined;
  try {
    return readHeaderId(header).id as string;
  } catch {
    return undefined;
  }
}
