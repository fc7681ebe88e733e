/** Schema files named on the command line: text, format and references. */
import { closeSync, openSync, readSync } from 'node:fs';
import { basename, extname } from 'node:path';
import { coreError, findMillraceError } from '../../core/errors.ts';
import type { ResolvedReference } from '../../formats/content.ts';
import type { SchemaFormat } from '../../formats/format.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import { gateError } from './errors.ts';

/** Largest schema file that is read, in bytes. */
export const FILE_BYTES_MAX = 16 << 20;
const READ_BYTES = 64 << 10;

export interface SchemaFile {
  /** Path as given on the command line; used in messages and annotations. */
  readonly name: string;
  readonly text: string;
}

/** @throws bad_file */
export function readSchemaFile(path: string, flag: string): SchemaFile {
  const bad = (why: string, cause?: unknown): Error =>
    coreError('bad_file', `-${flag}=${path} ${why}`, { next: 'give the path of a schema file', cause });
  let bytes: Buffer | undefined;
  try {
    bytes = boundedRead(path);
  } catch (thrown) {
    throw bad(`cannot be read (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`, thrown);
  }
  if (bytes === undefined) throw bad(`is larger than ${FILE_BYTES_MAX} bytes`);
  const name = path === '-' ? '(stdin)' : path;
  return { name, text: textOf(name, bytes) };
}

/** Reads a file of unknown size (pipes and devices report none). Returns undefined if the file is
 *  larger than FILE_BYTES_MAX. */
function boundedRead(path: string): Buffer | undefined {
  const file = path === '-' ? 0 : openSync(path, 'r');
  try {
    const parts: Buffer[] = [];
    let length = 0;
    for (;;) {
      const part = Buffer.allocUnsafe(READ_BYTES);
      const count = readSync(file, part, 0, READ_BYTES, null);
      if (count === 0) return Buffer.concat(parts);
      length += count;
      if (length > FILE_BYTES_MAX) return undefined;
      parts.push(part.subarray(0, count));
    }
  } finally {
    if (file !== 0) closeSync(file);
  }
}

/** Decodes strict UTF-8: a lenient decoder would change the text that is checked. @throws
 *  gate_unparsable */
function textOf(name: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw gateError('gate_unparsable', `${name}: it is not UTF-8`, {
      next: 'save the file as UTF-8',
      details: { file: name },
      cause,
    });
  }
}

const BY_EXTENSION: Readonly<Record<string, SchemaFormat>> = {
  '.avsc': 'AVRO',
  '.avro': 'AVRO',
  '.proto': 'PROTOBUF',
};
const BY_FLAG: Readonly<Record<string, SchemaFormat>> = { avro: 'AVRO', protobuf: 'PROTOBUF', json: 'JSON' };
const AVRO_WORDS = /^(record|error|enum|fixed|array|map|null|boolean|int|long|float|double|bytes|string)$/;
/** Keys that only a JSON Schema has. `type` is not among them: "string" and "null" are types in
 *  Avro, too. */
const JSON_KEYS = [
  '$schema',
  '$id',
  '$ref',
  '$defs',
  'definitions',
  'properties',
  'required',
  'additionalProperties',
  'oneOf',
  'anyOf',
  'allOf',
];

export function formatByName(name: string): SchemaFormat | undefined {
  return BY_EXTENSION[extname(name).toLowerCase()];
}

/** @throws bad_value if neither the flag, the name nor the content determines the format */
export function formatOf({ name, text }: SchemaFile, flag: string | undefined): SchemaFormat {
  const named = flag === undefined ? formatByName(name) : BY_FLAG[flag];
  const format = named ?? formatByText(text);
  if (format !== undefined) return format;
  throw coreError('bad_value', `the format of ${basename(name)} is unknown`, {
    next: 'give -format=avro, -format=protobuf or -format=json',
  });
}

function formatByText(text: string): SchemaFormat | undefined {
  const start = text.replace(/^\uFEFF/, '').replace(/^(?:\s|\/\/[^\n]*\n?|\/\*[\s\S]*?\*\/)+/, '');
  if (/^(syntax|edition|package|import|option|message|enum|service|extend)\b/.test(start)) return 'PROTOBUF';
  let json: unknown;
  try {
    json = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch {
    // The Avro parser accepts comments and a bare type name; JSON Schema accepts neither.
    return /^[[{"]/.test(start) || AVRO_WORDS.test(start.trim()) ? 'AVRO' : undefined;
  }
  if (typeof json === 'boolean') return 'JSON';
  if (typeof json === 'string' || Array.isArray(json)) return 'AVRO';
  if (typeof json !== 'object' || json === null) return undefined;
  if (JSON_KEYS.some((key) => Object.hasOwn(json, key))) return 'JSON';
  const { type } = json as { readonly type?: unknown };
  return (typeof type === 'string' && AVRO_WORDS.test(type)) || (typeof type === 'object' && type !== null)
    ? 'AVRO'
    : 'JSON';
}

/** Splits `name=file` at the first equals sign. @throws bad_value */
export function referenceFiles(
  given: readonly string[] | undefined,
): ReadonlyArray<{ readonly name: string; readonly path: string }> {
  const files = (given ?? []).map((one) => {
    const equals = one.indexOf('=');
    if (equals > 0 && equals < one.length - 1)
      return { name: one.slice(0, equals), path: one.slice(equals + 1) };
    throw coreError('bad_value', `-reference=${one} is not name=file`, {
      next: 'give the name that the schema uses, an equals sign and the path of the file',
    });
  });
  const names = new Set<string>();
  for (const { name } of files) {
    if (names.has(name))
      throw coreError('bad_value', `-reference gives ${name} twice`, { next: 'give each name once' });
    names.add(name);
  }
  return files;
}

/** Parses the proposed schema; an unparsable file has its own exit code. @throws gate_unparsable */
export function parseProposed(
  file: SchemaFile,
  format: SchemaFormat,
  references: readonly ResolvedReference[],
): Schema {
  try {
    return parseSchema(format, file.text, { references });
  } catch (thrown) {
    const known = findMillraceError(thrown);
    if (known === undefined) throw thrown;
    throw gateError('gate_unparsable', `${file.name}: ${known.message}`, {
      next: known.next ?? 'correct the schema',
      details: { ...known.details, file: file.name },
      cause: thrown,
    });
  }
}

/** Loads a file that other schemas refer to. @throws gate_unparsable */
export function referenceOf(
  name: string,
  file: SchemaFile,
  format: SchemaFormat,
  others: readonly ResolvedReference[],
): ResolvedReference {
  const { text } = parseProposed(file, format, others);
  return { name, subject: name, version: 1, format, text, references: [] };
}
