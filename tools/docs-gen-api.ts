/** Generates the page of the registry's HTTP interface from the description that the registry
 *  serves. */

import { REFERENCE_COUNT_MAX } from '../src/formats/content.ts';
import { SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX } from '../src/formats/format.ts';
import type { Wire } from '../src/registry/api/answers.ts';
import { CONTRACT_ENTRIES_MAX, SCHEMA_LIMITS } from '../src/registry/api/limits.ts';
import { MESSAGES_CHARS_MAX, MESSAGES_MAX } from '../src/registry/api/messages/bound.ts';
import {
  REGISTRY_BODY_BYTES_MAX,
  REGISTRY_PAGE_MAX,
  registryDescription,
} from '../src/registry/api/routes.ts';
import { SUBJECT_CHARS_MAX } from '../src/registry/store/state/names.ts';

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly tags: readonly string[];
  readonly 'x-right': string;
  readonly parameters: ReadonlyArray<{
    readonly name: string;
    readonly in: string;
    readonly description: string;
  }>;
  readonly responses: Readonly<Record<string, { readonly 'x-error-codes'?: readonly number[] }>>;
}

const CONTEXT = '/contexts/{context}';

function operationsOf(wire: Wire): ReadonlyArray<readonly [method: string, path: string, Operation]> {
  const { paths } = registryDescription({ wire }) as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => [method.toUpperCase(), path, operation] as const),
  );
}

/** error_codes specific to an operation: 409 and five digits, without the codes that any operation
 *  may return. */
function codesOf(operation: Operation): readonly number[] {
  const all = Object.values(operation.responses).flatMap((one) => one['x-error-codes'] ?? []);
  return all.filter(
    (code) => (code === 409 || (code > 40_000 && code < 50_000)) && ![40_101, 40_301, 42_901].includes(code),
  );
}

const VERDICTS = [
  '## Verdicts',
  '',
  '`verdictPolicy` in the config of a subject, a context or the whole registry selects how a change is judged. `PROVEN`: by',
  'what the decoders of Millrace do with every event, see [rules](rules/README.md). `STRICT`: by the answers of the existing',
  'registries, in their words. The default is PROVEN, but STRICT for a log that another registry wrote: a topic that held',
  'records when this registry first wrote to it, or any log with records that only other registries write. This registry',
  'marks a topic that was empty with a record of its own, and an export contains that mark. An effective config',
  '(`GET /config`, `?defaultToGlobal=true`) shows `verdictPolicy` if it is set, or if it is STRICT by default; otherwise',
  'PROVEN is in force.',
  '',
  '`lossy` (`ACCEPT`, the default, or `REJECT`) applies to a change after which decoded events lose data in a way that their',
  'format allows; it has no effect under STRICT. A Protobuf field number that is reused, or changes to a type with another',
  'encoding, is refused in every level and policy. JSON Schemas are judged by structure, in the same way under both policies.',
  '',
  'With `verbose=true` a check answers `messages` in the form that clients parse. Under PROVEN the answer also has `findings`',
  'if data is refused or lost: rule, path, and both text fragments with line and column. The first five findings also have',
  'an event that demonstrates the finding (JSON, bytes, the byte where decoding fails) and a change that fixes the schema.',
  'Schema texts of more than 64 KiB together are not tried with events.',
  '',
  '`/ready` reports that reads are answered. It stays 200 while writes fail because of a full disk or an unavailable broker:',
  '`registry_is_writable` is then 0, and `/master_available` reports whether an instance can write.',
];

const DELETES = [
  '## Deletes',
  '',
  'A soft delete removes versions from lists and from compatibility checks. `/schemas/ids/{id}` still answers for records',
  'that were written with them, and the same text gets the same id when it is registered again. Only a later delete with',
  '`permanent=true` removes them, if no schema refers to them. Look-ups by id and by guid are answered from the local state of',
  'an instance, without waiting for writes of other instances, because the meaning of an id never changes. Therefore a',
  'follower may still answer for an id that was just deleted permanently, until it has read that record of the log; the',
  'instance that deleted the id does not. Clients keep the schemas that they looked up.',
];

/** Table of limits, by the name that a refusal mentions. */
function limitLines(): string[] {
  const rows: ReadonlyArray<readonly [name: string, limit: string, answer: string]> = [
    ['`-body-max`', `bytes of a request body (${REGISTRY_BODY_BYTES_MAX >> 20} MiB)`, '413'],
    [
      '`-schema-max`',
      `bytes of a schema text with the names of its references, its metadata and rules, and of metadata and rules in settings (${SCHEMA_LIMITS.schemaMax >> 10} KiB, which is the maximum)`,
      '413',
    ],
    ['`-nesting-max`', `nesting depth of brackets in a text (${SCHEMA_LIMITS.nestingMax})`, '42201'],
    ['`-references-max`', `nesting depth of references (${SCHEMA_LIMITS.referencesMax})`, '42201'],
    ['`-page-max`', `items of one list (${REGISTRY_PAGE_MAX})`, '400'],
    ['subject', `characters of a name with its context (${SUBJECT_CHARS_MAX})`, '42208'],
    ['`-client-rate`', 'requests a second of one client (off)', '42901'],
    ['schema-depth', `nesting depth of types, messages and values (${SCHEMA_DEPTH_MAX})`, '42201'],
    ['schema-nodes', `types, fields, values and options of one text (${SCHEMA_NODES_MAX})`, '42201'],
    [
      'contract-entries',
      `tags, words, properties, sensitive names, rules and parameters of the metadata and rules of a schema, or of settings (${CONTRACT_ENTRIES_MAX})`,
      '413',
    ],
    [
      'references',
      `schemas that a schema references, on all levels together (${REFERENCE_COUNT_MAX})`,
      '42201',
    ],
    [
      'messages',
      `findings in the answer of a check or a refusal (${MESSAGES_MAX}), and their text (${MESSAGES_CHARS_MAX >> 10} Ki characters); one message gives the number of further findings`,
      'the rest is counted',
    ],
  ];
  return [
    '## Limits',
    '',
    'A refusal names its limit. Limits without a flag cannot be set.',
    '',
    '| limit | meaning (default) | answer |',
    '| --- | --- | --- |',
    ...rows.map((cells) => `| ${cells.join(' | ')} |`),
  ];
}

/** @param cell escapes a table cell */
export function registryApiPage(note: string, cell: (text: string) => string): string {
  const operations = operationsOf(7);
  const own = operations.filter(([, path]) => !path.startsWith(`${CONTEXT}/`));
  const below = new Set(operations.map(([method, path]) => `${method} ${path}`));
  const lines = ['# The HTTP interface of the registry', '', note, ''];
  lines.push(
    'A running registry serves this as OpenAPI 3.1 under `/openapi.json`, with the schema of every body. Every error is',
    '`{"error_code", "message"}`; the first three digits of a longer code are the HTTP status. An incompatible schema is',
    '409 (`error_code` 409, with `-wire=8` 40901), an invalid one 422.',
    '',
    'Bodies are `application/vnd.schemaregistry.v1+json`, `application/vnd.schemaregistry+json` or `application/json`.',
    'Where a schema is expected, the body may also be the schema text itself. An Avro schema is accepted in any of these types',
    'if it is a JSON object with `type` and without `schema`, or a non-empty list (a union). Any Avro or Protobuf text, also one',
    'with its own property `schema`, is accepted as `application/octet-stream`:',
    '',
    '```',
    "curl -H 'content-type: application/octet-stream' --data-binary @order.proto http://127.0.0.1:8081/subjects/orders-value/versions",
    '```',
    '',
    'Every path marked with a context also exists below `/contexts/{context}`; a subject there is named `:.context:subject`',
    'elsewhere. Rights are those of `-auth-rules`. Any operation with a right can answer 401 (40101), 403 (40301) and 429',
    '(42901). Any operation can answer 400, 403 (another site), 406, 408, 500 and 503, an operation with a body 413 and 415, and',
    'an operation that writes 50001 to 50004. Under `-auth-rules` a request is authorized by its head: the body of a refused',
    'request is not kept. With `-http=node` or `net` a request that is incomplete after 30 s is answered 408. With `-http=uws`',
    'most incomplete requests get no answer: the backend itself closes a connection that sends less than 16 KiB a second for 10',
    'to 12 s in a head or a body. A faster body that is incomplete after 30 s is answered 408. Clients behind slow links need',
    '`-http=net`.',
    '',
    ...VERDICTS,
    '',
    ...DELETES,
    '',
    ...limitLines(),
    '',
  );
  for (const tag of new Set(own.map(([, , { tags }]) => tags[0] as string))) {
    lines.push(`## ${tag[0]?.toUpperCase()}${tag.slice(1)}`, '');
    lines.push(
      '| operation | meaning | right | query | error codes | context |',
      '| --- | --- | --- | --- | --- | --- |',
    );
    for (const [method, path, operation] of own) {
      if (operation.tags[0] !== tag) continue;
      const query = operation.parameters.filter((one) => one.in === 'query').map(({ name }) => `\`${name}\``);
      const cells = [
        `\`${method} ${path}\``,
        cell(operation.summary),
        operation['x-right'],
        query.join(' '),
        codesOf(operation).join(' '),
        below.has(`${method} ${CONTEXT}${path}`) ? 'yes' : '',
      ];
      lines.push(`| ${cells.join(' | ')} |`);
    }
    lines.push('');
  }
  const parameters = new Map(
    own.flatMap(([, , one]) => one.parameters).map((one) => [`${one.in} ${one.name}`, one]),
  );
  lines.push('## Parameters', '', '| name | in | meaning |', '| --- | --- | --- |');
  for (const one of parameters.values())
    lines.push(`| \`${one.name}\` | ${one.in} | ${cell(one.description)} |`);
  return `${lines.join('\n').trimEnd()}\n`;
}
