/** Operations on schemas by id and guid, and on the schemas of all subjects. */
import { invariant } from '../../../core/errors.ts';
import type { StoredSchema, StoredVersion } from '../../store/service.ts';
import { Ready } from '../answers.ts';
import { formOf, idOf, versionDocuments } from '../documents.ts';
import { arrayOf, ref, STRINGS } from '../openapi/schemas.ts';
import type { Call, Operation } from '../operation.ts';
import { deletedOf } from '../parameters.ts';
import { contextSubject, demandReadOf, findOrRefresh, schemaById, schemaBytes, subjectsOf } from './by-id.ts';
import { prefixOf } from './subjects.ts';

/** Supported types, in the order of the existing registries. */
const TYPES = ['JSON', 'PROTOBUF', 'AVRO'];

function uses(call: Call): readonly StoredVersion[] {
  const id = idOf(call.param('id'));
  const subject = contextSubject(call, id);
  const found = call.service.uses(id, {
    ...(subject === undefined ? {} : { subject }),
    deleted: call.flag('deleted'),
  });
  return call.api.open ? found : found.filter((one) => call.access.mayRead(one.subject));
}

function hasRule(schema: StoredSchema, type: string): boolean {
  const rules = schema.content.ruleSet as Readonly<Record<string, unknown>> | undefined | null;
  return Object.values(rules ?? {}).some(
    (list) => Array.isArray(list) && list.some((rule) => (rule as { type?: unknown } | null)?.type === type),
  );
}

/** Returns the contexts and ids of a guid that the caller may read. A reference may resolve to
 *  another text in another context, so the caller needs a right to each.
 *  @throws schema_not_found, forbidden */
function idsOfGuid(call: Call): ReturnType<Call['service']['idsOfGuid']> {
  const { guid } = call.service.schemaByGuid(call.param('guid').toLowerCase());
  const ids = call.service.idsOfGuid(guid);
  if (call.api.open) return ids;
  call.demandRead(ids.flatMap((one) => subjectsOf(call, one)));
  return ids.filter((one) => call.readable(subjectsOf(call, one)).length > 0);
}

function byGuid(call: Call): StoredSchema {
  const [first] = idsOfGuid(call);
  invariant(first !== undefined, 'a readable guid has no id');
  return call.service.schema(first.id, `:${first.context}:`);
}

export const SCHEMA_OPERATIONS: readonly Operation[] = [
  {
    id: 'listSchemas',
    method: 'GET',
    path: '/schemas',
    summary: 'Versions of all subjects, by subject and version.',
    tag: 'schemas',
    right: 'read',
    query: [
      'subjectPrefix',
      'deleted',
      'deletedOnly',
      'latestOnly',
      'aliases',
      'ruleType',
      'format',
      'offset',
      'limit',
    ],
    answer: arrayOf(ref('Version')),
    errors: ['malformed_request', 'page_too_large', 'invalid_schema', 'check_too_long', 'checks_busy'],
    run: (call) => {
      const deleted = deletedOf(call.request);
      const all = call.service.browse({
        prefix: prefixOf(call),
        deleted: deleted !== 'no',
        latestOnly: call.flag('latestOnly'),
      });
      const ruleType = call.text('ruleType');
      const found = all.filter(
        (one) =>
          (deleted !== 'only' || one.deleted) &&
          (ruleType === null || ruleType === '' || hasRule(one, ruleType)) &&
          (call.api.open || call.access.mayRead(one.subject)),
      );
      return versionDocuments(call, call.page(found), formOf(call));
    },
  },
  {
    id: 'listTypes',
    method: 'GET',
    path: '/schemas/types',
    summary: 'Types of schemas that this registry accepts.',
    tag: 'schemas',
    right: 'read',
    answer: STRINGS,
    errors: [],
    settled: true,
    run: () => TYPES,
  },
  {
    id: 'getSchema',
    method: 'GET',
    path: '/schemas/ids/{id}',
    summary: 'The schema with an id.',
    tag: 'schemas',
    right: 'read',
    query: ['subject', 'format', 'fetchMaxId', 'referenceFormat', 'findTags'],
    answer: ref('Schema'),
    errors: ['path_not_found', 'schema_not_found', 'invalid_schema', 'check_too_long', 'checks_busy'],
    settled: true,
    run: schemaById,
  },
  {
    id: 'getSchemaText',
    method: 'GET',
    path: '/schemas/ids/{id}/schema',
    summary: 'The text of the schema with an id, and nothing else.',
    tag: 'schemas',
    right: 'read',
    query: ['subject', 'format'],
    answer: 'text',
    errors: ['path_not_found', 'schema_not_found', 'invalid_schema', 'check_too_long', 'checks_busy'],
    settled: true,
    run: (call) =>
      findOrRefresh(call, () => {
        const id = idOf(call.param('id'));
        const schema = call.service.schema(id, contextSubject(call, id));
        demandReadOf(call, schema);
        return new Ready(call.service.textOf(schema, formOf(call).format));
      }),
  },
  {
    id: 'listSubjectsOfSchema',
    method: 'GET',
    path: '/schemas/ids/{id}/subjects',
    summary: 'Subjects that use an id, sorted.',
    tag: 'schemas',
    right: 'read',
    query: ['subject', 'deleted', 'offset', 'limit'],
    answer: STRINGS,
    errors: ['path_not_found', 'schema_not_found', 'malformed_request', 'page_too_large'],
    run: (call) => call.page([...new Set(uses(call).map(({ subject }) => subject))]),
  },
  {
    id: 'listVersionsOfSchema',
    method: 'GET',
    path: '/schemas/ids/{id}/versions',
    summary: 'Versions that use an id, by subject and version.',
    tag: 'schemas',
    right: 'read',
    query: ['subject', 'deleted', 'offset', 'limit'],
    answer: arrayOf(ref('SubjectVersion')),
    errors: ['path_not_found', 'schema_not_found', 'malformed_request', 'page_too_large'],
    run: (call) => call.page(uses(call).map(({ subject, version }) => ({ subject, version }))),
  },
  {
    id: 'getSchemaByGuid',
    method: 'GET',
    path: '/schemas/guids/{guid}',
    summary: 'The schema with a guid.',
    tag: 'schemas',
    right: 'read',
    query: ['format', 'referenceFormat', 'findTags'],
    answer: ref('Schema'),
    errors: ['schema_not_found', 'invalid_schema', 'check_too_long', 'checks_busy'],
    settled: true,
    run: (call) => findOrRefresh(call, () => new Ready(schemaBytes(call, byGuid(call), formOf(call)))),
  },
  {
    id: 'listIdsOfGuid',
    method: 'GET',
    path: '/schemas/guids/{guid}/ids',
    summary: 'Ids of a guid, by context.',
    tag: 'schemas',
    right: 'read',
    answer: arrayOf(ref('ContextId')),
    errors: ['schema_not_found'],
    run: idsOfGuid,
  },
];
