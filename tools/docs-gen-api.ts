/** The page of the registry's HTTP interface, from the description that the registry serves. */

import { REFERENCE_COUNT_MAX } from '../src/formats/content.ts';
import { SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX } from '../src/formats/format.ts';
import type { Wire } from '../src/registry/api/answers.ts';
import { SCHEMA_LIMITS } from '../src/registry/api/limits.ts';
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

/** error_codes of an operation itself: five digits, and not those any operation may give. */
function codesOf(operation: Operation): readonly number[] {
  const all = Object.values(operation.responses).flatMap((one) => one['x-error-codes'] ?? []);
  return all.filter(
    (code) => (code === 409 || (code > 40_000 && code < 50_000)) && ![40_101, 40_301, 42_901].includes(code),
  );
}

const VERDICTS = [
  '## Verdicts',
  '',
  '`verdictPolicy` of a config, of a subject, a context or all, says what decides. `PROVEN`: what our decoders do with every',
  'event, see [rules](rules/README.md). `STRICT`: what the existing registries answer, in their words. Where none is set it',
  'is PROVEN, but STRICT for a log that another registry wrote: a topic that held records when this registry first wrote to',
  'it, or any log with records that only others write. A topic that was empty then gets one record of ours that says so,',
  'and an export says it too. A config in force (`GET /config`, `?defaultToGlobal=true`) shows `verdictPolicy` where it is',
  'set, and where it is STRICT without being set; without it PROVEN is in force.',
  '',
  '`lossy` (`ACCEPT`, the default, or `REJECT`) says what happens to a change after which events come back changed in a way',
  'that their format allows; it means nothing under STRICT. A Protobuf number that comes back, or changes to a type of',
  'other bytes, is refused in every level and policy. JSON Schemas are judged by structure, the same under both.',
  '',
  'With `verbose=true` a check answers `messages` in the form that clients parse. Under PROVEN `findings` stands beside them',
  'where something is refused or lost: rule, path, both pieces of text with line and column, and for the first five an event',
  'that shows it (JSON, bytes, the byte where decoding breaks) and the change that mends the schema. Texts of more than 64 KiB',
  'together are not tried out.',
  '',
  '`/ready` says that reads are answered. It stays 200 while writes fail, for a full disk or a broker that is away:',
  '`registry_is_writable` is 0 then, and `/master_available` says whether there is one who writes.',
];

const DELETES = [
  '## Deletes',
  '',
  'A soft delete takes versions out of the lists and out of compatibility checks; `/schemas/ids/{id}` goes on answering',
  'for the records that were written with them, and the same text, registered again, keeps its id. Only `permanent=true`',
  'after it removes them, where nothing refers to them. Look-ups by id and by guid are answered from what an instance',
  'knows, without asking for writes of others, because what an id means never changes. So an instance that follows',
  'may answer for an id that was deleted for good a moment ago, until it has read that record of the log; and clients keep',
  'what they looked up. The instance that deleted it does not.',
];

/** Every limit by the name that its message gives. */
function limitLines(): string[] {
  const rows: ReadonlyArray<readonly [name: string, limit: string, answer: string]> = [
    ['`-body-max`', `bytes of a request body (${REGISTRY_BODY_BYTES_MAX >> 20} MiB)`, '413'],
    [
      '`-schema-max`',
      `bytes of a schema text with its metadata and rules, and of those in settings (${SCHEMA_LIMITS.schemaMax >> 10} KiB, which is the most)`,
      '413',
    ],
    ['`-nesting-max`', `brackets inside brackets of a text (${SCHEMA_LIMITS.nestingMax})`, '42201'],
    ['`-references-max`', `references inside references (${SCHEMA_LIMITS.referencesMax})`, '42201'],
    ['`-page-max`', `items of one list (${REGISTRY_PAGE_MAX})`, '400'],
    ['subject', `characters of a name with its context (${SUBJECT_CHARS_MAX})`, '42208'],
    ['`-client-rate`', 'requests a second of one client (off)', '42901'],
    ['schema-depth', `types, messages or values inside each other (${SCHEMA_DEPTH_MAX})`, '42201'],
    ['schema-nodes', `types, fields, values and options of one text (${SCHEMA_NODES_MAX})`, '42201'],
    ['references', `schemas that one schema draws in, all levels together (${REFERENCE_COUNT_MAX})`, '42201'],
    [
      'messages',
      `findings that a check or a refusal names (${MESSAGES_MAX}), and their text (${MESSAGES_CHARS_MAX >> 10} Ki characters); one message says how many more there are`,
      'the rest is counted',
    ],
  ];
  return [
    '## Limits',
    '',
    'A refusal names the limit that it is about. Those without a flag cannot be set.',
    '',
    '| limit | of what (default) | answer |',
    '| --- | --- | --- |',
    ...rows.map((cells) => `| ${cells.join(' | ')} |`),
  ];
}

/** @param cell escapes a table's cell */
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
    'Where a schema is expected, its own text is taken too: an Avro schema (a JSON object with `type` and without',
    '`schema`, or a list that is not empty: a union) in any of these types, and any Avro or Protobuf text as',
    '`application/octet-stream`, one with a property `schema` of its own too:',
    '',
    '```',
    "curl -H 'content-type: application/octet-stream' --data-binary @order.proto http://127.0.0.1:8081/subjects/orders-value/versions",
    '```',
    '',
    'Every path marked with a context also stands below `/contexts/{context}`; a subject there is `:.context:subject`',
    'elsewhere. Rights are those of `-auth-rules`. Any operation with a right can answer 401 (40101), 403 (40301) and 429',
    '(42901), any at all 400, 403 (another site), 406, 408, 500 and 503, one with a body 413 and 415, one that writes',
    '50001 to 50004. Under `-auth-rules` a request is judged by its head: the body of a refused one is not kept.',
    'With `-http=node` or `net` a request that is not there after 30 s is answered 408. With `-http=uws` most are not: the backend',
    'itself closes a connection that sends less than 16 KiB a second for 10 to 12 s in a head or a body, without an answer;',
    '408 is left for a body that is faster and still not there after 30 s. Clients behind slow links need `-http=net`.',
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
      '| operation | what | right | query | error codes | context |',
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
