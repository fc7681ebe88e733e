/** Schemas by id: what every consumer asks first, so it is answered from bytes made before.
 *
 *  Invariants: (1) bytes are kept by what they say (the guid, and the form), so no write can make
 *  them wrong; whether the id still exists is asked each time; (2) an id that is not known here may
 *  be a write of a moment ago elsewhere, so it is looked for again after that was read.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { StoredSchema, StoredVersion } from '../../store/service.ts';
import { contextOf, parseSubject, qualify } from '../../store/state/names.ts';
import { Ready } from '../answers.ts';
import { type Form, formOf, idOf, schemaDocument } from '../documents.ts';
import type { Call } from '../operation.ts';

/** Runs at once where the schema is known, else once more after `fresh`. @throws schema_not_found
 */
export function settled<T>(call: Call, find: () => T): T | Promise<T> {
  try {
    return find();
  } catch (thrown) {
    if (findMillraceError(thrown)?.code !== 'schema_not_found') throw thrown;
    return call.service.fresh().then(find);
  }
}

/** A form of the text that depends on what is referred to is made each time. */
const isLasting = (schema: StoredSchema, form: Form): boolean =>
  form.format === '' || schema.content.references.length === 0;

/** The document of a schema, complete but for what is added to it. */
export function schemaBytes(call: Call, schema: StoredSchema, form: Form): Uint8Array {
  const plain = form.format === '' && !form.qualified;
  const key = plain ? schema.guid : `${schema.guid} ${form.format} ${form.qualified} ${schema.context}`;
  let bytes = call.api.byId.get(key);
  if (bytes === undefined) {
    bytes = Buffer.from(JSON.stringify(schemaDocument(call, schema, form)), 'utf8');
    if (isLasting(schema, form)) call.api.byId.set(key, bytes);
  }
  return bytes;
}

/** `bytes` is an object that is not empty; the properties of `more` are added. */
function withMore(bytes: Uint8Array, more: Readonly<Record<string, unknown>>): Uint8Array {
  const text = JSON.stringify(more);
  if (text === '{}') return bytes;
  return Buffer.concat([bytes.subarray(0, -1), Buffer.from(`,${text.slice(1)}`, 'utf8')]);
}

/** The subject whose context an id is looked up in, or undefined. Of one that may not be read its
 *  context alone is left: the answer is as if that subject did not use the id. @throws
 *  schema_not_found */
export function contextSubject(call: Call, id: number): string | undefined {
  const subject = call.qualified(call.text('subject') ?? '');
  if (subject === '') return undefined;
  if (call.api.open) return subject;
  const context = `:${contextOf(subject)}:`;
  const meant = call.service.meant(subject);
  if (!call.access.mayRead(subject) || !call.access.mayRead(meant)) return context;
  // One without a context may have led to its namesake in another one.
  const found = qualify({
    context: call.service.schema(id, subject).context,
    name: parseSubject(meant).name,
  });
  return call.access.mayRead(found) ? subject : context;
}

export function schemaById(call: Call): Ready | Promise<Ready> {
  const id = idOf(call.param('id'));
  if (call.request.query.size === 0 && call.context === '' && call.api.open) {
    return settled(call, () => new Ready(schemaBytes(call, call.service.schema(id), PLAIN)));
  }
  return settled(call, () => {
    const subject = contextSubject(call, id);
    const schema = call.service.schema(id, subject);
    const use = subject === undefined ? undefined : useOf(call, schema, subject);
    if (use === undefined) demandReadOf(call, schema);
    const bytes = schemaBytes(call, schema, formOf(call));
    return new Ready(
      withMore(bytes, {
        // Java clients up to 5.4 do not know the two.
        ...(use === undefined || call.api.wire === 7 ? {} : { subject: use.subject, version: use.version }),
        ...(call.flag('fetchMaxId') ? { maxId: call.service.maxId(schema.context) } : {}),
      }),
    );
  });
}

/** The latest version of a subject with this schema, deleted ones too. */
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

/** An id may be read by who may read a subject that uses it, or ever did. */
export function demandReadOf(call: Call, schema: StoredSchema): void {
  if (!call.api.open) call.demandRead(subjectsOf(call, schema));
}

/** The subjects that use an id, or ever did. */
export function subjectsOf(
  call: Call,
  { context, id }: { readonly context: string; readonly id: number },
): readonly string[] {
  return call.service.uses(id, { subject: `:${context}:`, deleted: true }).map(({ subject }) => subject);
}
