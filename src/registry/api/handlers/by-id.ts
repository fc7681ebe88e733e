/** Schemas by id: the first request of every consumer, so it is answered from cached bytes.
 *  Invariants: (1) The cache is keyed by the content itself and the form, so no write can
 *  invalidate an entry; whether the id still exists is checked for each request. (2) An unknown id
 *  may have been written by another instance a moment ago, so it is looked up again after the
 *  latest writes have been read. */
import { findMillraceError } from '../../../core/errors.ts';
import type { StoredSchema, StoredVersion } from '../../store/service.ts';
import { contextOf, parseSubject, qualify } from '../../store/state/names.ts';
import { Ready } from '../answers.ts';
import { type Form, formOf, idOf, schemaDocument } from '../documents.ts';
import type { Call } from '../operation.ts';

/** Runs `find` immediately; if the schema is unknown, once more after `fresh`. @throws
 *  schema_not_found */
export function findOrRefresh<T>(call: Call, find: () => T): T | Promise<T> {
  try {
    return find();
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'schema_not_found') throw thrown;
    return call.service.fresh().then(find);
  }
}

/** True if the bytes may be cached. A rendered text that depends on references is built each time.
 */
const isCacheable = (schema: StoredSchema, form: Form): boolean =>
  form.format === '' || schema.content.references.length === 0;

/** Returns the serialised document of a schema, to which properties may be added. */
export function schemaBytes(call: Call, schema: StoredSchema, form: Form): Uint8Array {
  const content = call.api.byId.numberOf(schema.content);
  const plain = form.format === '' && !form.qualified;
  const key = plain ? content : `${content} ${form.format} ${form.qualified} ${schema.context}`;
  let bytes = call.api.byId.get(key);
  if (bytes === undefined) {
    bytes = Buffer.from(JSON.stringify(schemaDocument(call, schema, form)), 'utf8');
    if (isCacheable(schema, form)) call.api.byId.set(key, bytes);
  }
  return bytes;
}

/** Appends the properties of `more` to `bytes`, a serialised object that is not empty. */
function withMore(bytes: Uint8Array, more: Readonly<Record<string, unknown>>): Uint8Array {
  const text = JSON.stringify(more);
  if (text === '{}') return bytes;
  return Buffer.concat([bytes.subarray(0, -1), Buffer.from(`,${text.slice(1)}`, 'utf8')]);
}

/** Returns the subject whose context an id is looked up in, or undefined. For a subject that may
 *  not be read it returns only the context, so the answer is as if the subject did not use the id.
 *  @throws schema_not_found */
export function contextSubject(call: Call, id: number): string | undefined {
  const subject = call.qualified(call.text('subject') ?? '');
  if (subject === '') return undefined;
  if (call.api.open) return subject;
  const context = `:${contextOf(subject)}:`;
  const meant = call.service.meant(subject);
  if (!call.access.mayRead(subject) || !call.access.mayRead(meant)) return context;
  // A subject without a context may have resolved to its namesake in another context.
  const found = qualify({
    context: call.service.schema(id, subject).context,
    name: parseSubject(meant).name,
  });
  return call.access.mayRead(found) ? subject : context;
}

export function schemaById(call: Call): Ready | Promise<Ready> {
  const id = idOf(call.param('id'));
  if (call.request.query.size === 0 && call.context === '' && call.api.open) {
    return findOrRefresh(call, () => new Ready(schemaBytes(call, call.service.schema(id), PLAIN)));
  }
  return findOrRefresh(call, () => {
    const subject = contextSubject(call, id);
    const schema = call.service.schema(id, subject);
    const use = subject === undefined ? undefined : useOf(call, schema, subject);
    if (use === undefined) demandReadOf(call, schema);
    const bytes = schemaBytes(call, schema, formOf(call));
    return new Ready(
      withMore(bytes, {
        // Java clients up to 5.4 reject these two properties.
        ...(use === undefined || call.api.wire === 7 ? {} : { subject: use.subject, version: use.version }),
        ...(call.flag('fetchMaxId') ? { maxId: call.service.maxId(schema.context) } : {}),
      }),
    );
  });
}

/** Returns the latest version of a subject with this schema, including deleted versions. */
function useOf(call: Call, schema: StoredSchema, subject: string): StoredVersion | undefined {
  try {
    return call.service
      .versions(subject, 'also')
      .findLast(({ id, context }) => id === schema.id && context === schema.context);
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'subject_not_found') throw thrown;
    return undefined;
  }
}

const PLAIN: Form = { format: '', qualified: false };

/** Checks that the caller may read a subject that uses the schema, or has used it. */
export function demandReadOf(call: Call, schema: StoredSchema): void {
  if (!call.api.open) call.demandRead(subjectsOf(call, schema));
}

/** Returns the subjects that use an id, or have used it. */
export function subjectsOf(
  call: Call,
  { context, id }: { readonly context: string; readonly id: number },
): readonly string[] {
  return call.service.uses(id, { subject: `:${context}:`, deleted: true }).map(({ subject }) => subject);
}
