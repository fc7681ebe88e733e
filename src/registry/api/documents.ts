/** Documents about schemas and versions, in both generations. Empty collections are left out. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Json, Reference } from '../../formats/content.ts';
import { registryError } from '../errors.ts';
import type { SchemaTextFormat, StoredSchema, StoredVersion, SubjectConfig } from '../store/service.ts';
import { qualify, qualifyWith } from '../store/state/names.ts';
import { READ_ID_MAX } from '../store/state/records.ts';
import { untilDone } from '../worker/checks.ts';
import type { Call } from './operation.ts';
import { formatOf, pageTooLarge } from './parameters.ts';

/** Characters of the schema texts in one list. */
const LIST_TEXT_CHARS_MAX = 64 << 20;

/** In which form a request wants what it gets. */
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
  return references.map((one) => ({ ...one, subject: qualifyWith(parent, one.subject) }));
}

/** What a schema says, wherever it is answered. @throws invalid_schema */
function contentOf(call: Call, schema: StoredSchema, form: Form): Record<string, unknown> {
  const { format, metadata, ruleSet } = schema.content;
  const references = referencesOf(schema, form.qualified);
  return {
    ...(call.api.wire === 8 ? { guid: schema.guid } : {}),
    // Java clients up to 5.4 fail on a property that they do not know, and to them no type means
    // Avro.
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
): unknown[] | Promise<unknown[]> {
  let chars = 0;
  for (const version of versions) {
    chars += version.content.text.length;
    if (chars > LIST_TEXT_CHARS_MAX)
      throw pageTooLarge('so many schemas', `of ${LIST_TEXT_CHARS_MAX} characters of schema text`);
  }
  return form.format === ''
    ? versions.map((version) => versionDocument(call, version, form))
    : parsedDocuments(call, versions, form);
}

/** Texts in a form that has to be made of the parsed schema: one after the other, each a step of
 *  its own. */
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

/** A config as GET and DELETE show it. */
export function configDocument(config: SubjectConfig): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config as Readonly<Record<string, unknown>>).filter(
      ([, value]) => value !== undefined && value !== null,
    ),
  );
}

/** A config as PUT echoes it: what was asked for, as it is now. */
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

/** @throws path_not_found for what is no whole number of 32 bits, as the existing registries
 *  answer; schema_not_found for
 *  what can be no id */
export function idOf(text: string): number {
  const id = Number(text);
  if (!/^[+-]?\d{1,10}$/.test(text) || id > READ_ID_MAX || id < -READ_ID_MAX - 1)
    throw registryError('path_not_found', 'HTTP 404 Not Found');
  if (id < 0) throw registryError('schema_not_found', `Schema ${id} not found`);
  return id;
}
