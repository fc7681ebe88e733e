/** Random valid events of any registered schema, the same for the same seed: framed records for a
 *  topic, JSON lines elsewhere. The events are those of the live proof: each leaf has a random one
 *  of the edge values of its type. */
import { framePrefix } from '../../addon/reference/frame.ts';
import { coreError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { RandomStream, seedOf } from '../../core/random/threefry.ts';
import { jsonPrinter } from '../../formats/json-values.ts';
import type { AvroSchema, ProtoSchema } from '../../formats/schema.ts';
import type { BatchSource } from '../../gen/pump.ts';
import { avroProof } from '../../registry/proof/avro/format.ts';
import { protoProof } from '../../registry/proof/protobuf/format.ts';
import type { FormatProof } from '../../registry/proof/witness.ts';
import type { SubjectVersion } from '../../serde/client.ts';
import { readerUnjudged } from '../../serde/codec.ts';

/** Smallest arena of a batch, in bytes: room for one large event. */
export const SCHEMA_EVENTS_BYTES_MIN = 4 << 20;
/** Estimated bytes of an event. */
export const SCHEMA_EVENT_BYTES = 4096;

/** Stream of the generator's random numbers, apart from those of orders and events. */
const STREAM = 7;
/** Random words of one call of the stream. */
const WORDS = 4;

type Render = (payload: Buffer, path: readonly number[]) => Uint8Array;

/** Payload behind its frame. */
function framed(id: number, isProto: boolean): Render {
  return (payload, path) => Buffer.concat([framePrefix(id, isProto ? Int32Array.from(path) : null), payload]);
}

/** JSON line, in the form that `producer -in` reads. */
function jsonLines(schema: AvroSchema | ProtoSchema): Render {
  const made = new Map<string, (payload: Buffer) => string>();
  return (payload, path) => {
    const key = path.join();
    let line = made.get(key);
    if (line === undefined) {
      const decode = readerUnjudged(schema, schema, path);
      const print = jsonPrinter(schema, path);
      line = (bytes) => print(decode(bytes, 0, bytes.length));
      made.set(key, line);
    }
    return Buffer.from(`${line(payload)}\n`, 'utf8');
  };
}

/** Fractions in [0, 1) of a seed, in a fixed sequence. */
function fractionsOf(seed: bigint): () => number {
  const stream = new RandomStream(seedOf(seed), STREAM);
  let index = 0;
  let word = WORDS;
  return () => {
    if (word === WORDS) {
      stream.at(index++);
      word = 0;
    }
    return stream.fraction(word++);
  };
}

class SchemaEvents<S extends AvroSchema | ProtoSchema, Event> implements BatchSource {
  private readonly proof: FormatProof<S, Event>;
  private readonly events: Generator<Event>;
  private readonly encode: (event: Event) => Buffer;
  private readonly render: Render;
  private waiting: Uint8Array | undefined;

  constructor(proof: FormatProof<S, Event>, schema: S, options: SchemaEventsOptions, render: Render) {
    const { count: limit, seed, message } = options;
    const root = message === undefined ? undefined : ({ kind: 'root', message } as const);
    this.proof = proof;
    this.events = proof.witnesses(schema, {
      limit,
      random: fractionsOf(seed),
      onlyRandom: true,
      ...(root === undefined ? {} : { route: { outer: undefined, step: root } }),
    });
    this.encode = proof.encoder(schema);
    this.render = render;
  }

  /** True where the type has no finite event. */
  get isEmpty(): boolean {
    this.waiting ??= this.next();
    return this.waiting === undefined;
  }

  fill(into: RecordBatch, most: number): number {
    into.clear();
    while (into.rowCount < most) {
      this.waiting ??= this.next();
      if (this.waiting === undefined) break;
      if (!into.append({ value: this.waiting })) {
        if (into.rowCount === 0)
          throw coreError('out_of_range', `an event of ${this.waiting.length} bytes does not fit a batch`, {
            next: 'raise -batch-rows',
          });
        break;
      }
      this.waiting = undefined;
    }
    return into.rowCount;
  }

  private next(): Uint8Array | undefined {
    const { value: event, done } = this.events.next();
    if (done === true) return undefined;
    return this.render(this.encode(event), this.proof.pathOf(event));
  }
}

export interface SchemaEventsOptions {
  readonly version: SubjectVersion;
  /** Full name of the Protobuf message; default: the first of the file. */
  readonly message?: string | undefined;
  readonly seed: bigint;
  /** Infinity: without an end. */
  readonly count: number;
  /** True for records of a topic. */
  readonly isFramed: boolean;
}

/** Makes the source of a schema's events.
 *  @throws bad_value for a JSON Schema, a message that the schema lacks, and a type that has no
 *    finite event */
export function schemaEvents(options: SchemaEventsOptions): BatchSource {
  const { schema, id, subject } = options.version;
  if (schema.format === 'JSON')
    throw coreError('bad_value', `${subject} is a JSON Schema, which the codecs do not write`, {
      next: 'give a subject with an Avro or a Protobuf schema',
    });
  const render = options.isFramed ? framed(id, schema.format === 'PROTOBUF') : jsonLines(schema);
  if (schema.format === 'AVRO') {
    if (avroProof.witnesses(schema, { limit: 1 }).next().done === true) throw endless(subject);
    return new SchemaEvents(avroProof, schema, { ...options, message: undefined }, render);
  }
  const { byName, messages } = schema.tree;
  const message = options.message ?? messages[0]?.name ?? '';
  if (!byName.has(message))
    throw coreError('bad_value', `the schema of ${subject} has no message ${message}`, {
      next: `choose from ${[...byName.keys()].join(', ')}`,
    });
  const events = new SchemaEvents(protoProof, schema, { ...options, message }, render);
  if (events.isEmpty) throw endless(subject);
  return events;
}

const endless = (subject: string): Error =>
  coreError('bad_value', `the schema of ${subject} has no finite value`, { next: 'give another version' });
