/** A Parquet file of results: encoded row group by row group, and read back. */
import { type AsyncBuffer, parquetMetadataAsync, parquetReadObjects, type SchemaElement } from 'hyparquet';
import { ByteWriter, ParquetWriter } from 'hyparquet-writer';
import { decimalText, integerOfBytes, unscaledOf } from '../../../core/decimal/exact.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import {
  type ColumnType,
  type ColumnValue,
  DECIMAL_PRECISION,
  type ResultColumn,
  type ResultShape,
  resultOfValues,
  type TopItem,
  topItems,
  topText,
} from '../columns.ts';

/** Rows of a row group: encoding one takes some ms, and tens of ms before it is optimised. */
export const ROW_GROUP_ROWS = 2_048;
const CREATED_BY = 'millrace engine';

type Element = Omit<SchemaElement, 'name'>;
const ELEMENT: Readonly<Record<Exclude<ColumnType, 'decimal'>, Element>> = {
  // Without the logical type of integers, whose width the library writes in a form that DuckDB
  // refuses.
  u64: { type: 'INT64', converted_type: 'UINT_64' },
  i64: { type: 'INT64' },
  f64: { type: 'DOUBLE' },
  string: { type: 'BYTE_ARRAY', converted_type: 'UTF8', logical_type: { type: 'STRING' } },
  bytes: { type: 'BYTE_ARRAY' },
  uuid: { type: 'FIXED_LEN_BYTE_ARRAY', type_length: 16, logical_type: { type: 'UUID' } },
  timestamp: {
    type: 'INT64',
    converted_type: 'TIMESTAMP_MILLIS',
    logical_type: { type: 'TIMESTAMP', isAdjustedToUTC: true, unit: 'MILLIS' },
  },
  bool: { type: 'BOOLEAN' },
  top: { type: 'BYTE_ARRAY', converted_type: 'JSON', logical_type: { type: 'JSON' } },
};

/** Bytes of a decimal of DECIMAL_PRECISION digits. */
const DECIMAL_BYTES = 16;

function elementOf({ type, scale = 0 }: ResultColumn): Element {
  if (type !== 'decimal') return ELEMENT[type];
  const places = { precision: DECIMAL_PRECISION, scale };
  return {
    ...{ type: 'FIXED_LEN_BYTE_ARRAY', type_length: DECIMAL_BYTES, converted_type: 'DECIMAL' },
    ...places,
    logical_type: { type: 'DECIMAL', ...places },
  };
}

/** Encoder of one file. The bytes of a file are those of all calls, one after the other. */
export class ParquetEncoder {
  private readonly columns: readonly ResultColumn[];
  private readonly bytes = new ByteWriter(256 * 1024);
  private readonly file: ParquetWriter;

  constructor(columns: readonly ResultColumn[]) {
    this.columns = columns;
    this.file = new ParquetWriter({
      writer: this.bytes,
      createdBy: CREATED_BY,
      schema: [
        { name: 'window_results', num_children: columns.length },
        ...columns.map((column) => ({
          ...{ name: column.name, ...elementOf(column) },
          repetition_type: column.nullable ? ('OPTIONAL' as const) : ('REQUIRED' as const),
        })),
      ],
    });
  }

  /** Encodes a row group of at least one row. */
  rowGroup(rows: readonly WindowResult[]): Uint8Array {
    const columnData = this.columns.map(({ name, type, read }) => ({
      name,
      data: rows.map((row) => parquetValue(type, read(row))),
      // Values of wide range repeat rarely: a dictionary would cost time and no byte.
      ...(type === 'bool' ? {} : { encoding: 'PLAIN' as const }),
    }));
    void this.file.write({ columnData, rowGroupSize: rows.length });
    return this.taken();
  }

  /** Encodes the end of the file. */
  end(): Uint8Array {
    void this.file.finish();
    return this.taken();
  }

  private taken(): Uint8Array {
    const bytes = this.bytes.getBytes().slice();
    this.bytes.index = 0;
    return bytes;
  }
}

function parquetValue(type: ColumnType, value: ColumnValue): unknown {
  // The library prints JSON itself.
  if (type === 'top' && value !== null) return topItems(value as string);
  // The library takes a bigint as the value times 10^scale.
  if (type === 'decimal' && value !== null) return unscaledOf(value as string);
  return type === 'timestamp' && value !== null ? BigInt(value as number) : value;
}

/** Reads the results of a file, row group by row group. @throws the library's error for a file that
 *  it cannot read */
export async function* readParquet(
  disk: Disk,
  name: string,
  shape: ResultShape,
): AsyncIterable<readonly WindowResult[]> {
  const bytes = await disk.read(name);
  if (bytes === undefined) return;
  const file: AsyncBuffer = {
    byteLength: bytes.length,
    slice: (from, to) => bytes.slice(from, to).buffer,
  };
  const metadata = await parquetMetadataAsync(file);
  // The library would read decimals as doubles.
  for (const element of metadata.schema)
    if (element.converted_type === 'DECIMAL') {
      delete element.converted_type;
      delete element.logical_type;
    }
  let rowStart = 0;
  for (const { num_rows: count } of metadata.row_groups) {
    const rowEnd = rowStart + Number(count);
    const rows = await parquetReadObjects({ file, metadata, rowStart, rowEnd, utf8: false });
    rowStart = rowEnd;
    yield rows.map((row) => resultOfValues(shape, (column) => readValue(column, row[column.name])));
  }
}

function readValue({ type, scale = 0 }: ResultColumn, value: unknown): ColumnValue {
  if (value === undefined || value === null) return null;
  if (type === 'timestamp') return (value as Date).getTime();
  if (type === 'top') return topText(value as readonly TopItem[]);
  if (type === 'decimal') return decimalText(integerOfBytes(value as Uint8Array), scale);
  return value as ColumnValue;
}
