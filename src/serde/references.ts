/** Loads the references of schemas; each referenced version is requested once a process.
 *  Invariants: (1) concurrent requests for one (subject, version) share one HTTP request, and an
 *  answer is cached for good; only a failed request is repeated;
 *  (2) a cycle of references is an error, never an endless wait: all texts are loaded first, and
 *  assembled afterwards. */

import { subjectWithin } from '../core/subject.ts';
import {
  REFERENCE_COUNT_MAX,
  REFERENCE_DEPTH_MAX,
  type Reference,
  type ResolvedReference,
} from '../formats/content.ts';
import { isSchemaFormat, type SchemaFormat } from '../formats/format.ts';
import { serdeError } from './errors.ts';

/** Schema as the registry answers it, not parsed. */
export interface SchemaDocument {
  readonly format: SchemaFormat;
  readonly text: string;
  readonly references: readonly Reference[];
}

/** Returns the document of one version.
 *  @throws subject_not_found, version_not_found, registry_unavailable */
export type FetchVersion = (subject: string, version: number) => Promise<SchemaDocument>;

/** Most requests in flight for one schema. */
const REQUESTS_MAX = 8;

const keyOf = ({ subject, version }: Reference): string => JSON.stringify([subject, version]);
const describe = ({ name, subject, version }: Reference): string =>
  `${JSON.stringify(name)} (subject ${subject}, version ${version})`;

function isReference(value: unknown): value is Reference {
  if (typeof value !== 'object' || value === null) return false;
  const { name, subject, version } = value as Partial<Record<keyof Reference, unknown>>;
  return typeof name === 'string' && typeof subject === 'string' && Number.isInteger(version);
}

/** Parses a registry's answer.
 *  @param context of the schema: subjects of references that name none belong to it
 *  @throws registry_protocol, incompatible_schema */
export function schemaDocument(document: Readonly<Record<string, unknown>>, context = ''): SchemaDocument {
  const { schema, schemaType, references } = document;
  const format = schemaType ?? 'AVRO';
  const protocol = (why: string): Error =>
    serdeError('registry_protocol', `unexpected answer of the registry: ${why}`, {
      next: 'check that -registry is the address of a schema registry',
    });
  if (typeof schema !== 'string') throw protocol('a schema without its text');
  if (typeof format !== 'string' || !isSchemaFormat(format))
    throw serdeError('incompatible_schema', `schema type ${String(format)} cannot be read`);
  const list = references ?? [];
  if (!Array.isArray(list) || !list.every(isReference)) throw protocol('references that are none');
  return {
    format,
    text: schema,
    references: list.map(({ name, subject, version }) => ({
      name,
      subject: subjectWithin(context, subject),
      version,
    })),
  };
}

export class ReferenceCache {
  private readonly fetch: FetchVersion;
  private readonly documents = new Map<string, SchemaDocument>();
  private readonly fetching = new Map<string, Promise<SchemaDocument>>();

  constructor(fetch: FetchVersion) {
    this.fetch = fetch;
  }

  /** Resolves references to their texts.
   *  @throws incompatible_schema if a reference can never be resolved
   *  @throws registry_unavailable, registry_protocol */
  async resolve(references: readonly Reference[]): Promise<readonly ResolvedReference[]> {
    if (references.length === 0) return [];
    await this.load(references);
    return this.assemble(references, [], new Map());
  }

  private async load(references: readonly Reference[]): Promise<void> {
    const met = new Map<string, Reference>();
    let level = references;
    for (let depth = 1; level.length > 0; depth++) {
      if (depth > REFERENCE_DEPTH_MAX)
        throw serdeError('incompatible_schema', `references are nested deeper than ${REFERENCE_DEPTH_MAX}`);
      const fresh: Reference[] = [];
      for (const reference of level) {
        if (met.has(keyOf(reference))) continue;
        met.set(keyOf(reference), reference);
        fresh.push(reference);
      }
      if (met.size > REFERENCE_COUNT_MAX)
        throw serdeError('incompatible_schema', `a schema refers to more than ${REFERENCE_COUNT_MAX} others`);
      const documents = await inTurns(REQUESTS_MAX, fresh, (reference) => this.document(reference));
      level = documents.flatMap((document) => document.references);
    }
  }

  private document(reference: Reference): Promise<SchemaDocument> {
    const key = keyOf(reference);
    const known = this.documents.get(key);
    if (known !== undefined) return Promise.resolve(known);
    let pending = this.fetching.get(key);
    if (pending === undefined) {
      pending = this.fetch(reference.subject, reference.version)
        .then((document) => {
          this.documents.set(key, document);
          return document;
        })
        .finally(() => this.fetching.delete(key));
      this.fetching.set(key, pending);
    }
    return pending.catch((cause: unknown) => {
      const { code, message } = cause as { readonly code?: string; readonly message: string };
      if (code !== 'subject_not_found' && code !== 'version_not_found') throw cause;
      throw serdeError('incompatible_schema', `the reference ${describe(reference)} is missing: ${message}`, {
        cause,
      });
    });
  }

  private assemble(
    references: readonly Reference[],
    path: readonly string[],
    made: Map<string, ResolvedReference>,
  ): readonly ResolvedReference[] {
    return references.map((reference) => {
      const key = keyOf(reference);
      if (path.includes(key))
        throw serdeError('incompatible_schema', `the reference ${describe(reference)} leads back to itself`);
      // Several references may name one version differently, so the name is a part of the key.
      const named = `${key}${reference.name}`;
      const known = made.get(named);
      if (known !== undefined) return known;
      const { format, text, references: inner } = this.documents.get(key) as SchemaDocument;
      const resolved = { ...reference, format, text, references: this.assemble(inner, [...path, key], made) };
      made.set(named, resolved);
      return resolved;
    });
  }
}

/** Runs work for each item, at most `most` at a time. Returns the results in order. */
export async function inTurns<T, R>(
  most: number,
  items: readonly T[],
  run: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += most)
    results.push(...(await Promise.all(items.slice(at, at + most).map(run))));
  return results;
}
