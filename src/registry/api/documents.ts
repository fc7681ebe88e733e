/** JSON documents about schemas and versions, in each wire generation. Omits empty collections. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Json, Reference } from '../../formats/content.ts';
import { registryError } from '../errors.ts';
import type { SchemaTextFormat, StoredSchema, StoredVersion, SubjectConfig } from '../store/service.ts';
import { qualify, qualifyWith } from '../store/state/names.ts';
import { READ_ID_MAX } from '../store/state/records.ts';
import { untilDone } from '../worker/checks.ts';
import { Ready } from './answers.ts';
import type { Call } from './operation.ts';
import { formatOf, pageTooLarge } from './parameters.ts';

/** Limit of schema text in one list, in characters. */
const LIST_TEXT_CHARS_MAX = 64 << 20;
/** Characters of a list that one turn of the event loop prints. */
const TURN_CHARS_MAX = 1 << 20;
/** Estimated characters of a document beside its schema text. */
const DOCUMENT_CHARS = 256;

/** Form in which a request wants its schema texts. */
export interface Form {
  readonly format: SchemaTextFormat;
  readonly qualified: boolean;
}

export function formOf(call: Call): Form {
  const qualified = call.operation.query?.includes('referenceFormat') === true;
  return {
    format: formatOf(call.request),
    qualified: qualified && call.text('referenceFormat')?.toLowerCase() === 'qualified',
  };
}

const isEmpty = (value: Json | undefined): boolean =>
  value === undefined || value === null || (typeof value === 'object' && Object.keys(value).length === 0);

function referencesOf(schema: StoredSchema, qualified: boolean): readonly Reference[] {
  const { references } = schema.content;
  if (!qualified) return references;
  const parent = qualify({ context: schema.context, name: '' });
  return references.map((reference) => ({ ...reference, subject: qualifyWith(parent, reference.subject) }));
}

/** Builds the properties that every document about a schema shares. @throws invalid_schema */
function contentOf(call: Call, schema: StoredSchema, form: Form): Record<string, unknown> {
  const { format, metadata, ruleSet } = schema.content;
  const references = referencesOf(schema, form.qualified);
  return {
    ...(call.api.wire === 8 ? { guid: schema.guid } : {}),
    // Java clients up to 5.4 reject unknown properties, and treat a missing type as Avro.
    ...(call.api.wire === 7 && format === 'AVRO' ? {} : { schemaType: format }),
    ...(references.length === 0 ? {} : { references }),
    ...(isEmpty(metadata) ? {} : { metadata }),
    ...(isEmpty(ruleSet) ? {} : { ruleSet }),
    schema: form.format === '' ? schema.content.text : call.service.textOf(schema, form.format),
  };
}

export function schemaDocument(call: Call, schema: StoredSchema, form: Form): Record<string, unknown> {
  return contentOf(call, schema, form);
}

function tail(call: Call, version: StoredVersion): Record<string, unknown> {
  if (call.api.wire !== 8) return {};
  return { ...(version.ts > 0 ? { ts: version.ts } : {}), ...(version.deleted ? { deleted: true } : {}) };
}

export function versionDocument(call: Call, version: StoredVersion, form: Form): Record<string, unknown> {
  const { subject, id } = version;
  return {
    subject,
    version: version.version,
    id,
    ...contentOf(call, version, form),
    ...tail(call, version),
  };
}

/** @throws page_too_large */
export function versionDocuments(
  call: Call,
  versions: readonly StoredVersion[],
  form: Form,
): unknown[] | Promise<unknown> {
  let chars = 0;
  for (const version of versions) {
    chars += version.content.text.length;
    if (chars > LIST_TEXT_CHARS_MAX)
      throw pageTooLarge('so many schemas', `of ${LIST_TEXT_CHARS_MAX} characters of schema text`);
  }
  if (form.format !== '') return parsedDocuments(call, versions, form);
  return chars + versions.length * DOCUMENT_CHARS <= TURN_CHARS_MAX
    ? versions.map((version) => versionDocument(call, version, form))
    : printedDocuments(call, versions, form);
}

/** Prints a long list in several turns of the event loop, so that other requests run in between. */
async function printedDocuments(call: Call, versions: readonly StoredVersion[], form: Form): Promise<Ready> {
  const parts: Buffer[] = [];
  let turn: string[] = [];
  let chars = 0;
  const endTurn = async (): Promise<void> => {
    parts.push(Buffer.from(`${parts.length === 0 ? '[' : ','}${turn.join(',')}`, 'utf8'));
    turn = [];
    chars = 0;
    await nextTurn();
  };
  for (const version of versions) {
    turn.push(JSON.stringify(versionDocument(call, version, form)));
    chars += version.content.text.length + DOCUMENT_CHARS;
    if (chars > TURN_CHARS_MAX) await endTurn();
  }
  if (turn.length > 0) await endTurn();
  return new Ready(Buffer.concat([...parts, Buffer.from(']')]));
}

/** Builds documents whose text is rendered from the parsed schema. Each document is a step of its
 *  own, so that other requests run in between. */
async function parsedDocuments(
  call: Call,
  versions: readonly StoredVersion[],
  form: Form,
): Promise<unknown[]> {
  const documents: unknown[] = [];
  for (const version of versions) {
    await nextTurn();
    const make = (): unknown => call.service.step(() => versionDocument(call, version, form));
    documents.push(await untilDone(make, call.api.checkMs));
  }
  return documents;
}

/** Answer to a registration. */
export function registeredDocument(call: Call, version: StoredVersion, form: Form): Record<string, unknown> {
  if (call.api.wire !== 8) return { id: version.id };
  return {
    id: version.id,
    version: version.version,
    ...contentOf(call, version, form),
    ...(version.ts > 0 ? { ts: version.ts } : {}),
  };
}

/** Config as GET and DELETE return it. */
export function configDocument(config: SubjectConfig): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config as Readonly<Record<string, unknown>>).filter(
      ([, value]) => value !== undefined && value !== null,
    ),
  );
}

/** Config as PUT returns it: the properties of the request, with their values after the change. */
export function configEcho(
  config: SubjectConfig,
  update: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  const echo: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(configDocument(config))) {
    if (update[name] === undefined || update[name] === null) continue;
    echo[name === 'compatibilityLevel' ? 'compatibility' : name] = value;
  }
  return echo;
}

/** Parses a schema id.
 *  @throws path_not_found if `text` is not a whole number of 32 bits, as in the existing registries
 *  @throws schema_not_found if the number is negative */
export function idOf(text: string): number {
  const id = Number(text);
  if (!/^[+-]?\d{1,10}$/.test(text) || id > READ_ID_MAX || id < -READ_ID_MAX - 1)
    throw registryError('path_not_found', 'HTTP 404 Not Found');
  if (id < 0) throw registryError('schema_not_found', `Schema ${id} not found`);
  return id;
}
