/** Makes the cases: registers the schemas of each shape and format, and writes its records. */

import { parseSchema, type Schema, type SchemaRegistry } from '../../src/registry/index.ts';
import { readerCodec } from '../../src/registry/proof/reader.ts';
import { comparable, type SerdeCase, type Wanted } from './case.ts';
import { type SerdeFormat, type SerdeOrder, type Shape, shapesOf, withNumbers } from './shapes.ts';

const FORMATS: Readonly<Record<SerdeFormat, string>> = { AVRO: 'Avro', PROTOBUF: 'Protobuf' };

/** A case with Millrace's exact decoder of framed records, which all contestants are compared
 *  with. */
export interface PreparedCase extends SerdeCase {
  read(frame: Buffer): unknown;
  /** Id of the reader schema. */
  readonly readerId: number;
}

function exactReader(wanted: Schema, writer: Schema, start: number): (frame: Buffer) => unknown {
  const decode = readerCodec(wanted, writer, [0]);
  return (frame) => decode(frame, start, frame.length);
}

async function prepare(shape: Shape, format: SerdeFormat, registry: SchemaRegistry): Promise<PreparedCase> {
  const texts = shape.schemas[format];
  const topicOf = (wanted: Wanted): string => `serde-${shape.name}-${format}-${wanted}`.toLowerCase();
  const topics = { writer: topicOf('writer'), reader: topicOf('reader') };
  const register = (wanted: Wanted, topic: string): Promise<number> =>
    registry.client.register(`${topic}-value`, format, texts[wanted]);
  const id = await register('writer', topics.writer);
  await register('writer', topics.reader);
  const readerId = await register('reader', topics.reader);
  const serializer = await registry
    .serializer({ topic: topics.writer, format, schema: texts.writer })
    .prefetch();
  const frames = shape.orders.map((order) => serializer.serialize(order));
  const [writer, reader] = [parseSchema(format, texts.writer), parseSchema(format, texts.reader)];
  // Protobuf has the path of the first message, one byte, behind the id.
  const start = format === 'AVRO' ? 5 : 6;
  const read = exactReader(writer, writer, start);
  return {
    title: `${FORMATS[format]}, ${shape.name}`,
    shape,
    format,
    texts,
    id,
    readerId,
    prefix: (frames[0] as Buffer).subarray(0, start),
    orders: shape.orders,
    numbers: shape.orders.map((order) => withNumbers(order) as SerdeOrder),
    frames,
    expected: {
      writer: frames.map((frame) => comparable(read(frame))),
      reader: frames.map(exactReader(reader, writer, start)).map(comparable),
    },
    topics,
    read,
  };
}

/** Makes all cases. @param count records of each */
export async function casesOf(count: number, registry: SchemaRegistry): Promise<PreparedCase[]> {
  const cases: PreparedCase[] = [];
  for (const shape of shapesOf(count))
    for (const format of ['AVRO', 'PROTOBUF'] as const) cases.push(await prepare(shape, format, registry));
  return cases;
}
