/** Records of `millrace producer -in`: JSON lines or the values of an Avro container file. */
import { type FileHandle, open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { framePrefix } from '../../addon/reference/frame.ts';
import { coreError, type MillraceError } from '../../core/errors.ts';
import { valueAt } from '../../core/filter/compile.ts';
import { avroSequenceDecoder } from '../../formats/avro/codec/decoder.ts';
import { AvroContainer } from '../../formats/avro/container.ts';
import { jsonEncoder } from '../../formats/json-values.ts';
import { Payloads } from '../../formats/payloads.ts';
import { type AvroSchema, parseSchema, type Schema } from '../../formats/schema.ts';
import { registryError } from '../../registry/errors.ts';
import { keyNames } from '../../registry/producer/key-names.ts';
import { readLines } from '../../registry/producer/lines.ts';
import {
  type EncodedRow,
  type KeyEncoder,
  placedError,
  rowReader,
  textKey,
} from '../../registry/producer/row.ts';
import { writerCodec } from '../../serde/codec.ts';
import { keyPath, type ProducerContext } from './settings.ts';

/** Rows in the order of the input. */
export interface InputGroup {
  readonly rows: readonly EncodedRow[];
  /** Rows that were left out. */
  readonly skipped: number;
  /** Error of the row behind `rows`; the input ends there. */
  readonly error?: MillraceError;
}

export interface ProducerInput {
  /** Schema that an Avro container file has; undefined for JSON lines. */
  readonly ownSchema: Schema | undefined;
  /** Yields the rows, encoded with a schema. */
  groups(schema: Schema, key: FramedKey | undefined): AsyncGenerator<InputGroup, void>;
}

/** Registered schema of the keys. */
export interface FramedKey {
  readonly schema: Schema;
  readonly id: number;
}

/** Values of a container file in one group. */
const GROUP_ROWS = 1024;
/** Skipped rows that are logged; further ones are only counted. */
const LOGGED_SKIPS_MAX = 100;

/** Opens the input. @throws bad_file, malformed_payload, invalid_schema */
export async function openInput(context: ProducerContext, path: string): Promise<ProducerInput> {
  const stream = path === '-' ? process.stdin : (await openFile(path)).createReadStream();
  context.onClose(() => void stream.destroy());
  const stop = (): void => void stream.destroy();
  context.drain.addEventListener('abort', stop, { once: true });
  const chunks = chunksOf(stream, path, context.drain);
  const name = path === '-' ? 'standard input' : path;
  if (!path.toLowerCase().endsWith('.avro'))
    return { ownSchema: undefined, groups: (schema, key) => lineGroups(context, chunks, name, schema, key) };
  const container = await AvroContainer.open(chunks);
  const ownSchema = parseSchema('AVRO', container.schema, { lenient: true }) as AvroSchema;
  return {
    ownSchema,
    groups: (schema, key) => containerGroups(context, container, name, ownSchema, schema, key),
  };
}

const unreadable = (path: string, cause: unknown): Error => {
  const { code = String(cause) } = cause as NodeJS.ErrnoException;
  return coreError('bad_file', `-in=${path} cannot be read (${code})`, {
    next: 'give - for standard input, or a file of JSON lines or an Avro container file',
    cause,
  });
};

/** Opens the file before any connection is made. A stream that opens its file by itself fails
 *  before its first read, when no handler of its error exists. @throws bad_file */
async function openFile(path: string): Promise<FileHandle> {
  try {
    return await open(path);
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

/** Chunks of a stream; they end at the drain. @throws bad_file */
async function* chunksOf(
  stream: Readable,
  path: string,
  drain: AbortSignal,
): AsyncGenerator<Uint8Array, void> {
  try {
    for await (const chunk of stream) yield chunk as Uint8Array;
  } catch (cause) {
    if (drain.aborted) return;
    throw unreadable(path, cause);
  }
}

/** Handles a row that cannot be encoded: counts it, or returns its error. */
class Refusals {
  private readonly context: ProducerContext;
  private logged = 0;

  constructor(context: ProducerContext) {
    this.context = context;
  }

  /** Undefined: the row is skipped. @throws an error that is not about the row */
  errorOf(thrown: unknown, place: string): MillraceError | undefined {
    const error = placedError(thrown, place);
    if (error === undefined) throw thrown;
    if (this.context.settings['on-error'] === 'fail') return error;
    if (++this.logged <= LOGGED_SKIPS_MAX) this.context.log.warn({ error: error.message }, 'row skipped');
    return undefined;
  }
}

async function* lineGroups(
  context: ProducerContext,
  chunks: AsyncIterable<Uint8Array>,
  name: string,
  schema: Schema,
  key: FramedKey | undefined,
): AsyncGenerator<InputGroup, void> {
  const { settings, clock } = context;
  const limit = settings['line-bytes'];
  const path = keyPath(context, '');
  const read = rowReader({
    encoder: jsonEncoder(schema, settings.message),
    lines: settings.lines as 'value' | 'record',
    keyField: path === undefined ? undefined : keyNames(schema, path, settings.message),
    keyOf: key === undefined ? textKey : framedKey(key),
    nowMs: () => clock.monotonicMs(),
  });
  const refusals = new Refusals(context);
  for await (const lines of readLines(chunks, limit)) {
    const rows: EncodedRow[] = [];
    let skipped = 0;
    for (const { number, bytes } of lines) {
      try {
        if (bytes === undefined)
          throw registryError('value_refused', `the line is longer than ${limit} bytes`, {
            next: 'raise -line-bytes',
          });
        rows.push(read(bytes));
      } catch (thrown) {
        const error = refusals.errorOf(thrown, `${name} line ${number}`);
        if (error !== undefined) {
          yield { rows, skipped, error };
          return;
        }
        skipped++;
      }
    }
    yield { rows, skipped };
  }
}

/** Encoder of framed keys. */
function framedKey({ schema, id }: FramedKey): KeyEncoder {
  const { encode, messageIndexes } = jsonEncoder(schema);
  const prefix = Buffer.from(framePrefix(id, messageIndexes));
  return (json) => (json.kind === 'null' ? null : Buffer.concat([prefix, encode(json)]));
}

async function* containerGroups(
  context: ProducerContext,
  container: AvroContainer,
  name: string,
  own: AvroSchema,
  schema: Schema,
  key: FramedKey | undefined,
): AsyncGenerator<InputGroup, void> {
  if (schema.format !== 'AVRO')
    throw coreError('usage', `${name} is an Avro container file, and -schema is ${schema.format}`, {
      next: 'give an Avro schema, or leave -schema out',
    });
  const { clock } = context;
  const decode = avroSequenceDecoder(schema.identity === own.identity ? own.tree : schema.tree, own.tree);
  const payloadOf = plainEncoder(schema);
  const keyOf = containerKey(keyPath(context, ''), key);
  const refusals = new Refusals(context);
  let number = 0;
  for await (const { count, bytes } of container.blocks()) {
    let rows: EncodedRow[] = [];
    try {
      let startMs = clock.monotonicMs();
      for (const value of decode(bytes, count)) {
        number++;
        const row = { key: keyOf(value), payload: payloadOf(value) };
        const endMs = clock.monotonicMs();
        rows.push({ ...row, tookMs: endMs - startMs });
        startMs = endMs;
        if (rows.length < GROUP_ROWS) continue;
        yield { rows, skipped: 0 };
        rows = [];
      }
    } catch (thrown) {
      // The values behind a bad one cannot be found, so its block ends there.
      const error = refusals.errorOf(thrown, `${name} near value ${number + 1}`);
      yield { rows, skipped: error === undefined ? 1 : 0, ...(error === undefined ? {} : { error }) };
      if (error !== undefined) return;
      rows = [];
    }
    if (rows.length > 0) yield { rows, skipped: 0 };
  }
}

/** Encoder of plain values, which returns bytes of their own. */
function plainEncoder(schema: Schema): (value: unknown) => Buffer {
  const { encode } = writerCodec(schema);
  const payloads = new Payloads(1, 4096);
  return (value) => {
    payloads.clear();
    encode(value, payloads);
    return Buffer.from(payloads.bytes.subarray(0, payloads.used));
  };
}

function containerKey(
  path: readonly string[] | undefined,
  key: FramedKey | undefined,
): (value: unknown) => Uint8Array | null {
  if (path === undefined) return () => null;
  const framed = key === undefined ? undefined : plainEncoder(key.schema);
  const prefix =
    key === undefined ? undefined : Buffer.from(framePrefix(key.id, writerCodec(key.schema).messageIndexes));
  return (value) => {
    const part = valueAt(value, path);
    if (part === null) return null;
    if (part === undefined)
      throw registryError('value_refused', `the value has no field ${path.join('.')}, which is the key`);
    if (framed !== undefined) return Buffer.concat([prefix as Buffer, framed(part)]);
    if (typeof part === 'object')
      throw registryError('value_refused', `the key ${path.join('.')} is neither a text nor a number`, {
        next: 'give -key-schema=FILE for a key with fields',
      });
    return Buffer.from(String(part), 'utf8');
  };
}
