/** Millrace's columns as contestants: a batch of framed records is scanned and decoded in one call,
 *  with the addon's kernels and with the TypeScript reference implementation. */
import { loadColumnKernels } from '../../src/addon/codec.ts';
import { loadKernels } from '../../src/addon/load.ts';
import type { Kernels } from '../../src/addon/surface.ts';
import type { ColumnBatch } from '../../src/core/columns/batch.ts';
import { EncodedFrames } from '../../src/core/columns/frames.ts';
import { invariant } from '../../src/core/errors.ts';
import { FrameBatch } from '../../src/core/layout/frame-batch.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { type AvroColumnDecoder, avroColumnDecoder } from '../../src/formats/avro/columns/decoder.ts';
import { type BatchEncoder, batchEncoder } from '../../src/formats/columns/encoder.ts';
import { writtenMessage } from '../../src/formats/protobuf/codec/record-codec.ts';
import { type ProtoColumnDecoder, protoColumnDecoder } from '../../src/formats/protobuf/columns/decoder.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import type { Batching, Contestants, SerdeCase, Wanted } from './case.ts';
import type { PreparedCase } from './cases.ts';

type Mode = 'native' | 'reference';

/** Fields that the lazy row reads. */
const LAZY_FIELDS = ['order_id', 'account_id', 'amount_cents'] as const;
type LazyOrder = Readonly<Record<(typeof LAZY_FIELDS)[number], unknown>>;

type Decoder = AvroColumnDecoder | ProtoColumnDecoder;

function decoderOf(one: SerdeCase, mode: Mode, wanted: Wanted, fields?: readonly string[]): Decoder {
  const kernels = loadColumnKernels(mode);
  const reader = parseSchema(one.format, one.texts[wanted]);
  const writer = parseSchema(one.format, one.texts.writer);
  if (reader.format === 'AVRO' && writer.format === 'AVRO')
    return avroColumnDecoder(kernels, reader, writer, fields);
  invariant(reader.format === 'PROTOBUF', 'columns are decoded from Avro and Protobuf');
  return protoColumnDecoder(kernels, writtenMessage(reader, undefined), fields);
}

/** Decoder of all records of a case into one batch of columns. */
class ColumnReading {
  private readonly records: RecordBatch;
  private readonly frames: FrameBatch;
  private readonly into: ColumnBatch;
  private readonly isProtobuf: boolean;
  private readonly decoder: Decoder;
  private readonly rows: ReturnType<Decoder['rows']>;
  private readonly kernels: Kernels;
  private readonly count: number;

  constructor(one: SerdeCase, mode: Mode, wanted: Wanted, fields?: readonly string[]) {
    this.kernels = loadKernels(mode);
    this.count = one.frames.length;
    const bytes = one.frames.reduce((sum, frame) => sum + frame.length, 0);
    this.records = RecordBatch.create(this.count, bytes);
    for (const value of one.frames) this.records.append({ value });
    this.frames = FrameBatch.create(this.count);
    this.isProtobuf = one.format === 'PROTOBUF';
    this.decoder = decoderOf(one, mode, wanted, fields);
    this.into = this.decoder.createBatch(this.count);
    this.rows = this.decoder.rows();
  }

  /** Scans the frames and decodes their payloads. */
  decode(): ColumnBatch {
    const { records, frames, into, count } = this;
    this.kernels.scanFrames(records, this.isProtobuf, frames);
    const { payloadStart: start, payloadLength: length } = frames.columns;
    into.clear();
    const read = this.decoder.decode({ bytes: records.columns.arena, start, length }, 0, count, into);
    invariant(read === count, 'every record is decoded');
    return into;
  }

  values(): unknown[] {
    const batch = this.decode();
    invariant(
      batch.status.every((status) => status === 0),
      'every record can be read',
    );
    this.rows.attach(batch);
    return Array.from({ length: this.count }, (_, row) => this.rows.value(row));
  }

  /** Reads three fields of each row from its lazy view. */
  readLazily(visit: (order: LazyOrder) => void): void {
    this.rows.attach(this.decode());
    for (let row = 0; row < this.count; row++) visit(this.rows.at(row) as LazyOrder);
  }
}

function whole(one: SerdeCase, mode: Mode, wanted: Wanted, fields?: readonly string[]): Batching {
  const reading = new ColumnReading(one, mode, wanted, fields);
  return {
    kind: 'batch',
    wanted,
    readAll: () => reading.decode(),
    values: () => reading.values(),
    ...(fields === undefined ? {} : { fields }),
  };
}

function lazily(one: SerdeCase): Batching {
  const reading = new ColumnReading(one, 'native', 'writer');
  return {
    kind: 'batch',
    wanted: 'writer',
    fields: LAZY_FIELDS,
    readAll() {
      let last: unknown[] = [];
      reading.readLazily(({ order_id: id, account_id: account, amount_cents: cents }) => {
        last = [id, account, cents];
      });
      return last;
    },
    values() {
      const orders: unknown[] = [];
      reading.readLazily(({ order_id, account_id, amount_cents }) => {
        orders.push({ order_id, account_id, amount_cents });
      });
      return orders;
    },
  };
}

/** Encodes the columns of all records into one buffer of frames. */
function encoding(one: PreparedCase, mode: Mode): Batching {
  const columns = new ColumnReading(one, mode, 'writer').decode();
  const schema = parseSchema(one.format, one.texts.writer);
  const encoder: BatchEncoder = batchEncoder(loadColumnKernels(mode), schema);
  const frames = EncodedFrames.create(columns.rowCount);
  const encode = (): EncodedFrames => {
    frames.clear();
    const rows = encoder.encode(columns, 0, columns.rowCount, one.prefix, frames);
    invariant(rows === columns.rowCount, 'every row is encoded');
    return frames;
  };
  return {
    kind: 'batch',
    wanted: 'writer',
    readAll: encode,
    values: () => one.frames.map((_, row) => one.read(encode().frame(row) as Buffer)),
  };
}

/** Column contestants of a case. */
export function columnSides(one: PreparedCase): Contestants {
  const names = Object.keys(one.orders[0] as object);
  const two = one.shape.twoFields.map((at) => names[at] as string);
  const ends = [names[0] as string, names.at(-1) as string];
  return {
    'columns, all fields': whole(one, 'native', 'writer'),
    'columns, reader schema': whole(one, 'native', 'reader'),
    'columns, two fields': whole(one, 'native', 'writer', two),
    'columns, first and last field': whole(one, 'native', 'writer', ends),
    'columns in TypeScript, all fields': whole(one, 'reference', 'writer'),
    'lazy row, three fields': lazily(one),
    'columns, encode': encoding(one, 'native'),
    'columns in TypeScript, encode': encoding(one, 'reference'),
  };
}
