/** Operations on subjects and their versions. */
import { registryError } from '../../errors.ts';
import type { StoredVersion } from '../../store/service.ts';
import { Ready } from '../answers.ts';
import { formOf, registeredDocument, versionDocument } from '../documents.ts';
import { INTEGERS, ref, STRINGS } from '../openapi/schemas.ts';
import type { Call, Operation } from '../operation.ts';
import { deletedOf } from '../parameters.ts';
import { refusalOf } from './compatibility.ts';

const requestedVersion = (call: Call): StoredVersion =>
  call.service.version(call.subject, call.param('version'), { deleted: call.flag('deleted') });

/** Returns the prefix as a qualified name: below a context's path, or without one, a plain prefix
 *  refers to that context. */
export function prefixOf(call: Call): string {
  const asked = call.text('subjectPrefix');
  // Qualified explicitly, because a plain prefix would match qualified names too.
  const isDefault = call.request.params['context'] !== undefined && call.context === '';
  if (isDefault && asked?.startsWith(':') !== true) return `:.:${asked ?? ''}`;
  if (asked?.startsWith(':.:') === true) return asked;
  return call.qualified(asked ?? (call.context === '' ? ':*:' : ''));
}

async function register(call: Call): Promise<unknown> {
  const input = call.schema();
  const form = formOf(call);
  try {
    const { version } = await call.service.register(call.subject, input, call.normalize());
    return registeredDocument(call, version, form);
  } catch (thrown) {
    throw refusalOf(call, thrown, input);
  }
}

function metadataOf(call: Call): ReadonlyMap<string, string> {
  const keys = call.all('key');
  const values = call.all('value');
  if (keys.length === 0 || keys.length !== values.length) {
    throw registryError(
      'malformed_request',
      `${keys.length} keys and ${values.length} values: send them in pairs`,
    );
  }
  return new Map(keys.map((key, i) => [key, values[i] as string]));
}

export const SUBJECT_OPERATIONS: readonly Operation[] = [
  {
    id: 'listSubjects',
    method: 'GET',
    path: '/subjects',
    summary: 'Names of subjects, sorted.',
    tag: 'subjects',
    right: 'read',
    query: ['subjectPrefix', 'deleted', 'deletedOnly', 'offset', 'limit'],
    answer: STRINGS,
    errors: ['malformed_request', 'page_too_large'],
    run: (call) =>
      call.page(
        call.readable(call.service.subjects({ prefix: prefixOf(call), deleted: deletedOf(call.request) })),
      ),
  },
  {
    id: 'lookUp',
    method: 'POST',
    path: '/subjects/{subject}',
    summary: 'The version of a subject that has this schema.',
    tag: 'subjects',
    right: 'read',
    query: ['normalize', 'deleted', 'format', 'findTags'],
    body: 'SchemaRequest',
    answer: ref('Version'),
    errors: [
      'subject_not_found',
      'schema_not_found',
      'invalid_schema',
      'check_too_long',
      'checks_busy',
      'schema_too_large',
    ],
    run: (call) => {
      const input = call.schema();
      const options = { ...call.normalize(), deleted: call.flag('deleted') };
      return versionDocument(call, call.service.lookup(call.subject, input, options), formOf(call));
    },
  },
  {
    id: 'deleteSubject',
    method: 'DELETE',
    path: '/subjects/{subject}',
    summary: 'Soft-delete a subject, or remove a soft-deleted one for good. Answers with the versions.',
    tag: 'subjects',
    right: 'delete',
    query: ['permanent'],
    answer: INTEGERS,
    errors: [
      'subject_not_found',
      'subject_soft_deleted',
      'subject_not_soft_deleted',
      'reference_exists',
      'not_permitted',
    ],
    write: true,
    run: (call) => call.service.deleteSubject(call.subject, call.flag('permanent')),
  },
  {
    id: 'listVersions',
    method: 'GET',
    path: '/subjects/{subject}/versions',
    summary: 'Versions of a subject, ascending.',
    tag: 'subjects',
    right: 'read',
    query: ['deleted', 'deletedOnly', 'deletedAsNegative', 'offset', 'limit'],
    answer: INTEGERS,
    errors: ['subject_not_found', 'malformed_request', 'page_too_large'],
    run: (call) => {
      const negative = call.flag('deletedAsNegative');
      const versions = call.service.versions(call.subject, deletedOf(call.request));
      return call.page(versions.map(({ version, deleted }) => (negative && deleted ? -version : version)));
    },
  },
  {
    id: 'register',
    method: 'POST',
    path: '/subjects/{subject}/versions',
    summary: 'Register a schema under a subject. A schema the subject already has is answered with its id.',
    tag: 'subjects',
    right: 'write',
    query: ['normalize', 'format'],
    body: 'SchemaRequest',
    answer: ref('Registered'),
    errors: [
      'incompatible',
      'invalid_schema',
      'check_too_long',
      'checks_busy',
      'invalid_version',
      'not_permitted',
      'id_mismatch',
      'schema_too_large',
    ],
    write: true,
    run: register,
  },
  {
    id: 'getVersion',
    method: 'GET',
    path: '/subjects/{subject}/versions/{version}',
    summary: 'One version of a subject.',
    tag: 'subjects',
    right: 'read',
    query: ['deleted', 'format', 'referenceFormat', 'findTags'],
    answer: ref('Version'),
    errors: [
      'subject_not_found',
      'version_not_found',
      'invalid_version',
      'invalid_schema',
      'check_too_long',
      'checks_busy',
    ],
    run: (call) => versionDocument(call, requestedVersion(call), formOf(call)),
  },
  {
    id: 'deleteVersion',
    method: 'DELETE',
    path: '/subjects/{subject}/versions/{version}',
    summary: 'Soft-delete a version, or remove a soft-deleted one for good. Answers with its number.',
    tag: 'subjects',
    right: 'delete',
    query: ['permanent'],
    answer: { type: 'integer' },
    errors: [
      'subject_not_found',
      'version_not_found',
      'version_soft_deleted',
      'version_not_soft_deleted',
      'invalid_version',
      'reference_exists',
      'not_permitted',
    ],
    write: true,
    run: (call) => call.service.deleteVersion(call.subject, call.param('version'), call.flag('permanent')),
  },
  {
    id: 'getVersionText',
    method: 'GET',
    path: '/subjects/{subject}/versions/{version}/schema',
    summary: 'The text of a version, and nothing else.',
    tag: 'subjects',
    right: 'read',
    query: ['deleted', 'format'],
    answer: 'text',
    errors: [
      'subject_not_found',
      'version_not_found',
      'invalid_version',
      'invalid_schema',
      'check_too_long',
      'checks_busy',
    ],
    run: (call) => new Ready(call.service.textOf(requestedVersion(call), formOf(call).format)),
  },
  {
    id: 'listReferences',
    method: 'GET',
    path: '/subjects/{subject}/versions/{version}/referencedby',
    summary: 'Ids of the schemas that refer to a version, ascending.',
    tag: 'subjects',
    right: 'read',
    query: ['deleted', 'offset', 'limit'],
    answer: INTEGERS,
    errors: [
      'subject_not_found',
      'version_not_found',
      'invalid_version',
      'malformed_request',
      'page_too_large',
    ],
    run: (call) =>
      call.page(
        call.service.referencedBy(
          call.subject,
          call.param('version'),
          call.flag('deleted'),
          (one) => call.readable([one]).length > 0,
        ),
      ),
  },
  {
    id: 'getByMetadata',
    method: 'GET',
    path: '/subjects/{subject}/metadata',
    summary: 'The latest version whose metadata has these properties.',
    tag: 'subjects',
    right: 'read',
    query: ['key', 'value', 'deleted', 'format', 'findTags'],
    answer: ref('Version'),
    errors: ['subject_not_found', 'metadata_not_found', 'malformed_request'],
    run: (call) =>
      versionDocument(
        call,
        call.service.latestWithMetadata(call.subject, metadataOf(call), call.flag('deleted')),
        formOf(call),
      ),
  },
];
