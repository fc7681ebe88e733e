/** Limits of one schema, checked before it is parsed: size, nesting, and depth of references. */

import type { Json, Reference } from '../../formats/content.ts';
import { REFERENCE_COUNT_MAX, REFERENCE_DEPTH_MAX } from '../../formats/content.ts';
import { contractEntries } from '../../formats/contract.ts';
import { SCHEMA_TEXT_CHARS_MAX } from '../../formats/format.ts';
import { registryError } from '../errors.ts';
import type { RegisterInput, RegistryService } from '../store/service.ts';
import { qualifyWith } from '../store/state/names.ts';

export interface SchemaLimits {
  /** Bytes of the text with its references, metadata and rules, as UTF-8. */
  readonly schemaMax: number;
  /** Depth of nested brackets, of any kind. */
  readonly nestingMax: number;
  /** Depth of nested references. */
  readonly referencesMax: number;
}

/** A nested type adds up to three brackets. No schema nested deeper than this is accepted. */
const NESTING_MAX = 200;

/** Entries of the metadata and rules of a schema, or of settings. A registration reads, sorts and
 *  hashes all of them several times on the thread that serves requests. */
export const CONTRACT_ENTRIES_MAX = 4000;

/** Largest values that can be set. */
export const SCHEMA_LIMITS: SchemaLimits = {
  schemaMax: SCHEMA_TEXT_CHARS_MAX,
  nestingMax: NESTING_MAX,
  referencesMax: REFERENCE_DEPTH_MAX,
};

/** @throws schema_too_large, invalid_schema */
export function checkLimits(
  subject: string,
  input: RegisterInput,
  limits: SchemaLimits,
  service: Pick<RegistryService, 'version'>,
): void {
  const beside = [input.metadata, input.ruleSet].filter((document) => document !== undefined);
  const references = (input.references ?? []).flatMap(({ name, subject }) => [name, subject]);
  const bytes = [input.text, ...references, ...beside.map((document) => JSON.stringify(document))].reduce(
    (sum, text) => sum + Buffer.byteLength(text),
    0,
  );
  if (bytes > limits.schemaMax) {
    const parts = [
      ...(references.length === 0 ? [] : ['references']),
      ...(beside.length === 0 ? [] : ['metadata and rules']),
    ];
    throw registryError(
      'schema_too_large',
      `the schema${parts.length === 0 ? '' : ` with its ${parts.join(', ')}`} has ${bytes} bytes, over the limit -schema-max=${limits.schemaMax}`,
    );
  }
  checkEntries('schema', beside);
  if (nests(input, limits.nestingMax)) {
    throw registryError(
      'invalid_schema',
      `the schema nests its brackets deeper than the limit -nesting-max=${limits.nestingMax}`,
    );
  }
  if (limits.referencesMax < REFERENCE_DEPTH_MAX)
    checkReferences(subject, input.references ?? [], limits.referencesMax, service);
}

/** @throws schema_too_large */
function checkEntries(what: string, documents: readonly Json[]): void {
  const entries = documents.reduce<number>((sum, document) => sum + contractEntries(document), 0);
  if (entries <= CONTRACT_ENTRIES_MAX) return;
  throw registryError(
    'schema_too_large',
    `the metadata and rules of the ${what} have more than ${CONTRACT_ENTRIES_MAX} entries (the limit contract-entries)`,
  );
}

/** Limits the metadata and rules that settings add to every schema, as those of a schema are
 *  limited.
 *  @throws schema_too_large */
export function checkSettings(update: Readonly<Record<string, unknown>>, { schemaMax }: SchemaLimits): void {
  const documents = Object.values(update).filter((value) => typeof value === 'object' && value !== null);
  const bytes = documents.reduce<number>((sum, value) => sum + Buffer.byteLength(JSON.stringify(value)), 0);
  checkEntries('settings', documents as readonly Json[]);
  if (bytes > schemaMax) {
    throw registryError(
      'schema_too_large',
      `the metadata and rules of the settings have ${bytes} bytes, over the limit -schema-max=${schemaMax}`,
    );
  }
}

/** Returns the end, exclusive, of the token at `at`: a string of either format, a Protobuf comment,
 *  or a single character. The caller makes one pass over the text, so hostile texts cost no more.
 */
function endOf(text: string, at: number, isProto: boolean): number {
  const char = text[at];
  if (char === '"' || (isProto && char === "'")) {
    let end = at + 1;
    while (end < text.length && text[end] !== char) end += text[end] === '\\' ? 2 : 1;
    return end + 1;
  }
  if (!isProto || char !== '/') return at + 1;
  const closing = text[at + 1] === '/' ? '\n' : text[at + 1] === '*' ? '*/' : undefined;
  if (closing === undefined) return at + 1;
  const end = text.indexOf(closing, at + 2);
  return end < 0 ? text.length : end + closing.length;
}

/** True if brackets nest deeper than `most`; ignores those in strings and comments. */
function nests({ text, format }: RegisterInput, most: number): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at = endOf(text, at, format === 'PROTOBUF')) {
    const char = text[at];
    if (char === '{' || char === '[') {
      if (++depth > most) return true;
    } else if (char === '}' || char === ']') depth--;
  }
  return false;
}

/** Walks the references level by level, so that a shared reference is visited once. */
function checkReferences(
  subject: string,
  references: readonly Reference[],
  most: number,
  service: Pick<RegistryService, 'version'>,
): void {
  const seen = new Set<string>();
  let level = references.map((one) => ({ subject: qualifyWith(subject, one.subject), version: one.version }));
  for (let depth = 0; level.length > 0; depth++) {
    if (depth >= most) {
      throw registryError(
        'invalid_schema',
        `the references of the schema go deeper than the limit -references-max=${most}`,
      );
    }
    level = level.flatMap((at) => {
      const key = `${at.version} ${at.subject}`;
      if (seen.has(key) || seen.size > REFERENCE_COUNT_MAX) return [];
      seen.add(key);
      return referencesAt(at, service);
    });
  }
}

function referencesAt(
  at: { readonly subject: string; readonly version: number },
  service: Pick<RegistryService, 'version'>,
): Array<{ readonly subject: string; readonly version: number }> {
  try {
    const { content, subject } = service.version(at.subject, String(at.version), { deleted: true });
    return content.references.map((one) => ({
      subject: qualifyWith(subject, one.subject),
      version: one.version,
    }));
  } catch {
    // A missing reference is reported when the references are resolved.
    return [];
  }
}
