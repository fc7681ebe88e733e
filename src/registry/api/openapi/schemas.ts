/** JSON Schemas of the bodies, for the description of the interface; tests check every answer
 *  against them.
 */
import { LEVELS, VERDICT_POLICIES } from '../../compatibility/modes.ts';
import { REGISTRY_MODES } from '../../store/service.ts';
import { READ_ID_MAX, VERSION_MAX } from '../../store/state/records.ts';
import { COMPATIBILITY_POLICIES, LOSSY_CHOICES } from '../../store/state/settings.ts';
import type { Wire } from '../answers.ts';
import { CONFIG_PROPERTIES } from '../bodies.ts';
import type { OpenApiSchema } from '../parameters.ts';

export const ref = (name: string): OpenApiSchema => ({ $ref: `#/components/schemas/${name}` });
export const arrayOf = (items: OpenApiSchema): OpenApiSchema => ({ type: 'array', items });

export const STRINGS: OpenApiSchema = arrayOf({ type: 'string' });
export const INTEGERS: OpenApiSchema = arrayOf({ type: 'integer' });

const TEXT: OpenApiSchema = { type: 'string' };
const SWITCH: OpenApiSchema = { type: 'boolean' };
const NUMBER: OpenApiSchema = { type: 'integer', minimum: 1, maximum: VERSION_MAX };
/** Ids up to 2^31-1 are assigned; another registry's log may hold greater ids, and 0. */
const ID: OpenApiSchema = { type: 'integer', minimum: 0, maximum: READ_ID_MAX };
const GUID: OpenApiSchema = {
  type: 'string',
  pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$',
};

/** Object of an answer, without other properties. */
function closed(
  properties: Readonly<Record<string, OpenApiSchema>>,
  required: readonly string[],
): OpenApiSchema {
  return { type: 'object', properties, required, additionalProperties: false };
}
/** Object of a request; other properties are ignored. */
function open(
  properties: Readonly<Record<string, OpenApiSchema>>,
  required: readonly string[],
  description: string,
): OpenApiSchema {
  return { type: 'object', description, properties, required };
}

/** Type of a setting that null removes. */
const orNull = (type: string): OpenApiSchema => ({ type: [type, 'null'] });

const refOrNull = (name: string): OpenApiSchema => ({ anyOf: [ref(name), { type: 'null' }] });

/** Setting that is one of a few words, in any case. */
const oneOf = (words: readonly string[]): OpenApiSchema => ({
  anyOf: [{ enum: words }, { type: 'null' }],
});
const WORDS_SENT: Readonly<Record<string, OpenApiSchema>> = {
  compatibilityPolicy: oneOf(COMPATIBILITY_POLICIES),
  verdictPolicy: oneOf(VERDICT_POLICIES),
  lossy: oneOf(LOSSY_CHOICES),
};

type ConfigKind = (typeof CONFIG_PROPERTIES)[string];
/** Form in answers: another registry's log may hold other documents. */
const ANSWERED: Readonly<Record<ConfigKind, OpenApiSchema>> = {
  text: TEXT,
  switch: SWITCH,
  metadata: { type: 'object' },
  ruleSet: { type: 'object' },
};
const SENT: Readonly<Record<ConfigKind, OpenApiSchema>> = {
  text: orNull('string'),
  switch: orNull('boolean'),
  metadata: refOrNull('Metadata'),
  ruleSet: refOrNull('RuleSet'),
};
const config = (as: Readonly<Record<ConfigKind, OpenApiSchema>>): Readonly<Record<string, OpenApiSchema>> =>
  Object.fromEntries(
    Object.entries(CONFIG_PROPERTIES)
      .filter(([name]) => name !== 'compatibilityLevel')
      .map(([name, kind]) => [name, (as === SENT ? WORDS_SENT[name] : undefined) ?? as[kind]]),
  );

const WORDS: OpenApiSchema = { ...arrayOf(TEXT), description: 'A set: sorted, each word once.' };
const TEXTS: OpenApiSchema = { type: 'object', additionalProperties: TEXT };
/** The default mode is WRITEREAD, so rules with other modes must name theirs. */
const rulesOf = (...modes: readonly string[]): OpenApiSchema =>
  arrayOf({
    allOf: [
      ref('Rule'),
      modes.includes('WRITEREAD')
        ? { properties: { mode: { enum: [...modes, null] } } }
        : { required: ['mode'], properties: { mode: { enum: modes } } },
    ],
  });

/** Documents that belong to a schema. Null and unknown properties are dropped. */
const DOCUMENTS: Readonly<Record<string, OpenApiSchema>> = {
  Metadata: open(
    {
      tags: { type: ['object', 'null'], additionalProperties: WORDS },
      properties: { ...TEXTS, type: ['object', 'null'] },
      sensitive: { ...WORDS, type: ['array', 'null'] },
    },
    [],
    'Metadata of a schema, which counts for its identity. An empty object counts too.',
  ),
  RuleSet: open(
    {
      migrationRules: { ...rulesOf('UPGRADE', 'DOWNGRADE', 'UPDOWN'), type: ['array', 'null'] },
      domainRules: { ...rulesOf('WRITE', 'READ', 'WRITEREAD'), type: ['array', 'null'] },
      encodingRules: { ...rulesOf('WRITE', 'READ', 'WRITEREAD'), type: ['array', 'null'] },
      enableAt: orNull('string'),
    },
    [],
    'Rules that clients run; stored, and never run here. Each name occurs once. An empty rule set removes the rules of the previous version.',
  ),
  Rule: open(
    {
      name: { type: 'string', maxLength: 64, pattern: '^[\\p{L}_][\\p{L}\\p{Nd}_-]*$' },
      doc: orNull('string'),
      kind: { enum: ['TRANSFORM', 'CONDITION', null], default: 'TRANSFORM' },
      mode: { type: ['string', 'null'], default: 'WRITEREAD' },
      type: TEXT,
      tags: { ...WORDS, type: ['array', 'null'] },
      params: { ...TEXTS, type: ['object', 'null'] },
      expr: orNull('string'),
      onSuccess: orNull('string'),
      onFailure: orNull('string'),
      disabled: { type: ['boolean', 'null'], default: false },
    },
    ['name', 'type'],
    'One rule.',
  ),
};

/** Fragment of a schema's text. */
const FRAGMENT: OpenApiSchema = closed(
  { source: TEXT, line: { type: 'integer' }, column: { type: 'integer' }, text: TEXT },
  ['source', 'line', 'column', 'text'],
);

const VERDICTS: Readonly<Record<string, OpenApiSchema>> = {
  Compatibility: closed(
    {
      is_compatible: SWITCH,
      messages: {
        ...STRINGS,
        minItems: 1,
        description: 'With `verbose`: messages in the form that clients parse.',
      },
      findings: {
        ...arrayOf(ref('Finding')),
        minItems: 1,
        description:
          'With `verbose`, where the verdict policy is PROVEN and a change is refused or lossy: the findings for programs.',
      },
    },
    ['is_compatible'],
  ),
  Finding: {
    ...closed(
      {
        rule: { ...TEXT, description: 'Name of the rule in the catalog of rules.' },
        severity: { enum: ['fail', 'unjudged', 'lossy', 'note'] },
        direction: { enum: ['BACKWARD', 'FORWARD', 'HISTORY'] },
        version: {
          ...NUMBER,
          description: 'The version it was compared with; absent: all earlier versions.',
        },
        path: TEXT,
        message: TEXT,
        reader: { ...FRAGMENT, description: 'The place in the reader schema.' },
        writer: FRAGMENT,
        counterexample: ref('Counterexample'),
        fix: ref('Fix'),
      },
      ['rule', 'severity', 'direction', 'path', 'message'],
    ),
    description: 'One finding. Only the first few have a counterexample and a fix.',
  },
  Counterexample: {
    ...closed(
      {
        outcome: { enum: ['OK', 'LOSSY', 'FAIL'] },
        json: { ...TEXT, description: 'The event.' },
        hex: { ...TEXT, description: 'The payload of the event, without the frame.' },
        bytes: { type: 'integer', minimum: 0 },
        offset: { type: 'integer', minimum: 0, description: 'The byte where decoding fails.' },
        got: TEXT,
        promised: TEXT,
        alone: {
          const: true,
          description: 'Read without the fields around it, which would show another finding first.',
        },
      },
      ['outcome', 'json', 'hex', 'bytes', 'got', 'promised'],
    ),
    description: 'The smallest event found that the decoder refuses, or reads as something else.',
  },
  Fix: {
    ...closed(
      {
        words: TEXT,
        edits: arrayOf(
          closed({ at: { type: 'integer' }, end: { type: 'integer' }, text: TEXT }, ['at', 'end', 'text']),
        ),
      },
      ['words', 'edits'],
    ),
    description: 'Fix of the finding: a description, and edits of the proposed text in UTF-16 units.',
  },
};

/** Body of a registration, a look-up or a check. */
const SCHEMA_REQUEST = open(
  {
    schema: {
      type: ['string', 'null'],
      description: 'The text. A registration without a text uses the latest text of the subject.',
    },
    schemaType: { type: ['string', 'null'], default: 'AVRO', description: 'AVRO, PROTOBUF or JSON.' },
    references: {
      ...arrayOf(
        open(
          { name: TEXT, subject: TEXT, version: { type: 'integer', minimum: -1, maximum: VERSION_MAX } },
          ['name', 'subject', 'version'],
          'A reference of the schema.',
        ),
      ),
    },
    metadata: refOrNull('Metadata'),
    ruleSet: refOrNull('RuleSet'),
    id: {
      anyOf: [{ type: 'integer', minimum: 1, maximum: VERSION_MAX }, { enum: [-1, null] }],
      description: 'Only in modes IMPORT and FORWARD; -1 means absent.',
    },
    version: {
      type: ['integer', 'null'],
      minimum: -1,
      maximum: VERSION_MAX,
      description: 'The next version; any version in modes IMPORT and FORWARD; -1 means absent.',
    },
  },
  [],
  'A schema with its references, metadata and rules. An Avro schema itself (a JSON object with `type` and without `schema`, or a list that is not empty) is accepted too; as application/octet-stream, or without a content type, any Avro or Protobuf text is accepted.',
);

/** Bodies about settings, modes and the registry itself. */
const SETTING_BODIES: Readonly<Record<string, OpenApiSchema>> = {
  Config: closed({ compatibilityLevel: { type: 'string', enum: [...LEVELS] }, ...config(ANSWERED) }, []),
  ConfigRequest: open(
    {
      compatibility: { type: ['string', 'null'], enum: [...LEVELS, null] },
      ...config(SENT),
    },
    [],
    'The settings to change. The answer repeats them.',
  ),
  Mode: closed({ mode: { type: 'string', enum: [...REGISTRY_MODES] } }, ['mode']),
  ModeRequest: open({ mode: { type: 'string', enum: [...REGISTRY_MODES] } }, ['mode'], 'The mode to set.'),
  ClusterId: closed(
    {
      scope: closed({ path: STRINGS, clusters: { type: 'object', additionalProperties: TEXT } }, [
        'path',
        'clusters',
      ]),
      id: TEXT,
    },
    ['scope', 'id'],
  ),
  ServerVersion: closed({ version: TEXT, commitId: TEXT }, ['version', 'commitId']),
  Deployment: closed({ attributes: { type: 'array', items: TEXT } }, ['attributes']),
  MasterAvailable: closed({ master_available: SWITCH }, ['master_available']),
};

export function bodySchemas(wire: Wire): Readonly<Record<string, OpenApiSchema>> {
  const guid = wire === 8 ? { guid: GUID } : {};
  const ts = wire === 8 ? { ts: { type: 'integer' } } : {};
  const content = {
    ...guid,
    schemaType: { type: 'string', enum: ['AVRO', 'PROTOBUF', 'JSON'] },
    references: { ...arrayOf(ref('Reference')), minItems: 1 },
    metadata: { type: 'object', minProperties: 1 },
    ruleSet: { type: 'object', minProperties: 1 },
    schema: TEXT,
  };
  const always = [...Object.keys(guid), ...(wire === 7 ? [] : ['schemaType']), 'schema'];
  return {
    Error: closed({ error_code: { type: 'integer' }, message: TEXT }, ['error_code', 'message']),
    Reference: closed({ name: TEXT, subject: TEXT, version: { type: 'integer' } }, [
      'name',
      'subject',
      'version',
    ]),
    ...DOCUMENTS,
    SchemaRequest: SCHEMA_REQUEST,
    Registered:
      wire === 8
        ? closed({ id: ID, version: NUMBER, ...content, ...ts }, ['id', 'version', ...always])
        : closed({ id: ID }, ['id']),
    Version: closed(
      {
        subject: TEXT,
        version: NUMBER,
        id: ID,
        ...content,
        ...ts,
        ...(wire === 8 ? { deleted: { const: true } } : {}),
      },
      ['subject', 'version', 'id', ...always],
    ),
    Schema: closed(
      {
        ...content,
        ...(wire === 7 ? {} : { subject: TEXT, version: NUMBER }),
        maxId: { type: 'integer', minimum: 0 },
      },
      always,
    ),
    SubjectVersion: closed({ subject: TEXT, version: NUMBER }, ['subject', 'version']),
    ContextId: closed({ context: TEXT, id: ID }, ['context', 'id']),
    ...VERDICTS,
    ...SETTING_BODIES,
  };
}
