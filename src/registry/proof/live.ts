/** Live decode: events of the writer's schema are encoded, decoded by the consumer's decoder, and
 *  compared with the value that the specification promises. Works for Avro and Protobuf. */
import { MillraceError } from '../../core/errors.ts';
import type { Decode } from '../../formats/decode.ts';
import type { AvroSchema, ProtoSchema, Schema } from '../../formats/schema.ts';
import { readerUnjudged } from '../../serde/codec.ts';
import { avroProof } from './avro/format.ts';
import { protoProof } from './protobuf/format.ts';
import { sameValue } from './same.ts';
import type { Outcome, Projection, Trial, Witness } from './trial.ts';
import type { FormatProof, WitnessOptions } from './witness.ts';

export interface Tried {
  /** Worst outcome of all events; OK if the writer has none. */
  readonly outcome: Outcome;
  readonly trials: number;
  /** Smallest event with that outcome; absent if the writer has none. */
  readonly worst?: Trial;
}

/** Pair of schemas with one compiled decoder for each message of the writer. */
class Pair<S extends AvroSchema | ProtoSchema, Event> {
  private readonly reader: S;
  private readonly writer: S;
  private readonly proof: FormatProof<S, Event>;
  private readonly decoders = new Map<string, Decode | MillraceError>();

  constructor(proof: FormatProof<S, Event>, reader: S, writer: S) {
    this.proof = proof;
    this.reader = reader;
    this.writer = writer;
  }

  *trials(options: WitnessOptions): Generator<Trial> {
    const { proof, reader, writer } = this;
    const encode = proof.encoder(writer);
    const project = proof.projector(reader, writer);
    for (const event of proof.witnesses(writer, options)) {
      const bytes = encode(event);
      const path = proof.pathOf(event);
      const witness: Witness = {
        get json() {
          return proof.json(event, writer);
        },
        bytes,
        path,
      };
      const projection = project(event);
      const read = this.read(bytes, path);
      yield { outcome: outcomeOf(projection, read), witness, projection, read };
    }
  }

  private read(bytes: Buffer, path: readonly number[]): Trial['read'] {
    try {
      const decode = this.decoderOf(path);
      if (decode instanceof MillraceError) return { error: decode, at: undefined };
      return { value: decode(bytes, 0, bytes.length) };
    } catch (thrown) {
      if (!(thrown instanceof MillraceError)) throw thrown;
      const at = thrown.details['at'];
      return { error: thrown, at: typeof at === 'number' ? at : undefined };
    }
  }

  private decoderOf(path: readonly number[]): Decode | MillraceError {
    const key = path.join();
    const known = this.decoders.get(key);
    if (known !== undefined) return known;
    const made = this.compile(path);
    this.decoders.set(key, made);
    return made;
  }

  /** An error of compilation, such as a message that the reader lacks, is the outcome of the event.
   */
  private compile(path: readonly number[]): Decode | MillraceError {
    try {
      return readerUnjudged(this.reader, this.writer, path);
    } catch (thrown) {
      if (thrown instanceof MillraceError) return thrown;
      throw thrown;
    }
  }
}

function outcomeOf(projection: Projection, read: Trial['read']): Outcome {
  if (projection.kind === 'none' || 'error' in read) return 'FAIL';
  if (!sameValue(projection.value, read.value)) return 'FAIL';
  return projection.lossless ? 'OK' : 'LOSSY';
}

/** Yields a trial of each event lazily. Yields nothing for two different formats, and for JSON
 *  Schema, whose events have no codec. */
export function trialsOf(reader: Schema, writer: Schema, options: WitnessOptions): Iterable<Trial> {
  if (reader.format === 'AVRO' && writer.format === 'AVRO')
    return new Pair(avroProof, reader, writer).trials(options);
  if (reader.format === 'PROTOBUF' && writer.format === 'PROTOBUF')
    return new Pair(protoProof, reader, writer).trials(options);
  return [];
}

const RANK: Readonly<Record<Outcome, number>> = { OK: 0, LOSSY: 1, FAIL: 2 };

export function tryAll(reader: Schema, writer: Schema, options: WitnessOptions): Tried {
  let trials = 0;
  let worst: Trial | undefined;
  for (const trial of trialsOf(reader, writer, options)) {
    trials++;
    const worse = worst === undefined ? 1 : RANK[trial.outcome] - RANK[worst.outcome];
    const smaller = worst !== undefined && trial.witness.bytes.length < worst.witness.bytes.length;
    if (worse > 0 || (worse === 0 && smaller)) worst = trial;
  }
  return worst === undefined ? { outcome: 'OK', trials } : { outcome: worst.outcome, trials, worst };
}

/** True if the decoded value contradicts the rules of the format: a bug of Millrace, whatever the
 *  verdict is. */
export function isSurprise({ projection, read }: Trial): boolean {
  if (projection.kind === 'value') return 'error' in read || !sameValue(projection.value, read.value);
  const { answer } = projection;
  if (answer === undefined) return false;
  if (answer === 'error') return !('error' in read);
  return 'error' in read || !sameValue(answer.left, read.value);
}
