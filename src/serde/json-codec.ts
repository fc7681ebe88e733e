/** Values of JSON Schemas: written as JSON text, and validated. */
import { isUtf8 } from 'node:buffer';
import { MillraceError } from '../core/errors.ts';
import type { Decode, WriterCodec } from '../formats/decode.ts';
import { plainJson } from '../formats/json/plain.ts';
import type { JsonSchema, Schema } from '../formats/schema.ts';
import { PAYLOAD_BYTES_MAX } from '../formats/sink.ts';
import { serdeError } from './errors.ts';
import { type JsonMisfit, type JsonValidator, jsonChecker } from './json-validator.ts';

const sentenceOf = ({ path, message }: JsonMisfit): string =>
  `${path === '' ? 'the value' : path} ${message}`;

/** Compiles a writer of values as JSON. The text is validated, not the value: it is what readers
 *  see, after `toJSON` and without properties that are undefined.
 *  @param validator default: Ajv
 *  @throws invalid_schema, bad_option */
export function jsonWriter(schema: JsonSchema, validator: JsonValidator | undefined): WriterCodec {
  const check = jsonChecker(schema, validator);
  return {
    messageIndexes: null,
    encode(value, into) {
      const text = textOf(value);
      const misfit = check(JSON.parse(text));
      if (misfit !== undefined)
        throw serdeError('value_refused', sentenceOf(misfit), { details: { path: misfit.path } });
      const bytes = Buffer.from(text, 'utf8');
      if (bytes.length > PAYLOAD_BYTES_MAX)
        throw serdeError(
          'value_refused',
          `the value makes the payload longer than ${PAYLOAD_BYTES_MAX} bytes`,
        );
      if (into.bytes.length - into.used < bytes.length) into.grow(bytes.length);
      bytes.copy(into.bytes, into.used);
      into.push(into.used + bytes.length);
    },
  };
}

function textOf(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    if (cause instanceof MillraceError) throw cause;
    throw serdeError('value_refused', `the value is not a JSON value: ${String((cause as Error)?.message)}`, {
      cause,
      details: { path: '' },
    });
  }
  if (text !== undefined) return text;
  throw serdeError('value_refused', `the value is not a JSON value: ${typeof value}`, {
    details: { path: '' },
  });
}

/** Compiles a reader of JSON records. Integers beyond 2^53 are bigint.
 *  @param reader schema that each value must fit; undefined: every JSON value is read
 *  @param validator default: Ajv
 *  @throws incompatible_schema for a reader of another format; invalid_schema, bad_option */
export function jsonReader(reader: Schema | undefined, validator: JsonValidator | undefined): Decode {
  if (reader !== undefined && reader.format !== 'JSON')
    throw serdeError('incompatible_schema', `the reader's schema is ${reader.format} and the writer's JSON`);
  const check = reader === undefined ? undefined : jsonChecker(reader, validator);
  return (bytes, start, end) => {
    const { text, parsed } = parsedIn(bytes.subarray(start, end));
    const misfit = check?.(parsed);
    if (misfit === undefined) return plainJson(text, parsed);
    throw serdeError(
      'incompatible_schema',
      `the reader's schema cannot read this record: ${sentenceOf(misfit)}`,
      {
        details: { path: misfit.path },
      },
    );
  };
}

function parsedIn(payload: Buffer): { readonly text: string; readonly parsed: unknown } {
  if (!isUtf8(payload)) throw serdeError('malformed_payload', 'the value is not UTF-8, so it is not JSON');
  const text = payload.toString('utf8');
  try {
    return { text, parsed: JSON.parse(text) };
  } catch (cause) {
    throw serdeError('malformed_payload', `the value is not JSON: ${(cause as Error).message}`, { cause });
  }
}
