/** Records of the `_schemas` topic as the existing registries write them: JSON keys with an exact
 *  order of bytes, and JSON values.
 *
 *    SCHEMA          {"keytype":"SCHEMA","subject":s,"version":n,"magic":1}    null: hard-deleted
 *    CONFIG, MODE    {"keytype":"CONFIG","subject":s|null,"magic":0}           subject null: global
 *    DELETE_SUBJECT  {"keytype":"DELETE_SUBJECT","subject":s,"magic":0}        soft-deletes up to n
 *    CLEAR_SUBJECT   {"keytype":"CLEAR_SUBJECT","subject":s|null,"magic":0}    removes soft-deleted
 *    CONTEXT         {"keytype":"CONTEXT","tenant":"default","context":c,"magic":0}
 *    NOOP            {"keytype":"NOOP","magic":0}
 *    ours            {"keytype":"NOOP","magic":0,"millrace":kind,…}
 *                    kind: POLICY, MAX_ID, BURNED, ORIGIN
 *
 *  An unknown keytype ends the reader thread of the JVM registry. A NOOP with an additional
 *  property is a NOOP to every registry, and log compaction still sees a key of its own; so our
 *  kinds are written as NOOPs. The reader accepts the properties in any order (Karapace's differs)
 *  and keeps unknown ones.
 *
 *  Source: core/src/main/java/.../storage/{SchemaKey,ConfigKey,ModeKey,NoopKey,DeleteSubjectKey,
 *  ContextKey,SchemaValue,ConfigValue,SchemaRegistryKeyType,KafkaStoreReaderThread}.java of
 *  confluentinc/schema-registry (facts only); KeyFormatCase in the tests of Aiven-Open/karapace.
 */

import type { Json, Reference } from '../../../formats/content.ts';
import { isVerdictPolicy, type VerdictPolicy } from '../../compatibility/modes.ts';
import type { LogRecord } from '../log.ts';
import { REGISTRY_MODES, type RegistryMode, type SubjectConfig } from '../service.ts';

/** Greatest id that is assigned or accepted: clients hold ids in signed 32-bit numbers. */
export const SCHEMA_ID_MAX = 0x7fff_ffff;
/** Greatest id that is read. Frames carry ids as unsigned 32-bit numbers; another registry's log
 *  may hold such ids, and they are served.
 */
export const READ_ID_MAX = 0xffff_ffff;
export const VERSION_MAX = 0x7fff_ffff;

export interface SchemaFields {
  readonly id: number;
  /** Format as written; absent: AVRO. */
  readonly format: string;
  readonly text: string;
  readonly references: readonly Reference[];
  readonly metadata?: Json;
  readonly ruleSet?: Json;
  readonly deleted: boolean;
  /** Unknown properties, written back when the version changes. */
  readonly extra?: Readonly<Record<string, Json>>;
}

/** Settings that decide verdicts here and that no other registry has. */
export type Policy = Pick<SubjectConfig, 'verdictPolicy' | 'lossy'>;

/** Version that is deleted for good and whose field numbers still count. */
export interface BurnedVersion {
  readonly version: number;
  readonly format: string;
  readonly text: string;
  readonly references: readonly Reference[];
  /** True: the subject had no version left after this one, so the next versions count from 1 again.
   */
  readonly last: boolean;
}

export type StoreRecord =
  | {
      readonly kind: 'schema';
      readonly subject: string;
      readonly version: number;
      readonly value: SchemaFields | null;
    }
  | { readonly kind: 'config'; readonly subject: string | null; readonly value: SubjectConfig | null }
  | { readonly kind: 'mode'; readonly subject: string | null; readonly value: RegistryMode | null }
  | { readonly kind: 'deleteSubject'; readonly subject: string; readonly value: number | null }
  | { readonly kind: 'clearSubject'; readonly subject: string | null; readonly value: true | null }
  | { readonly kind: 'context'; readonly context: string; readonly value: true | null }
  | { readonly kind: 'policy'; readonly subject: string | null; readonly value: Policy | null }
  | { readonly kind: 'maxId'; readonly context: string; readonly value: number | null }
  | {
      readonly kind: 'burned';
      readonly subject: string;
      readonly seq: number;
      readonly value: BurnedVersion | null;
    }
  /** Verdict policy of the log's origin: ours, or that of the registry that wrote the log. */
  | { readonly kind: 'origin'; readonly value: VerdictPolicy | null }
  | { readonly kind: 'noop' };

export type Decoded =
  | { readonly record: StoreRecord; readonly keyIsExact: boolean }
  /** Unknown or malformed record: kept in the log, without effect. `unread` is the reason. */
  | { readonly unread: string };

const utf8 = (value: unknown): Buffer => Buffer.from(JSON.stringify(value), 'utf8');

function keyOf(record: StoreRecord): unknown {
  switch (record.kind) {
    case 'schema':
      return { keytype: 'SCHEMA', subject: record.subject, version: record.version, magic: 1 };
    case 'config':
      return { keytype: 'CONFIG', subject: record.subject, magic: 0 };
    case 'mode':
      return { keytype: 'MODE', subject: record.subject, magic: 0 };
    case 'deleteSubject':
      return { keytype: 'DELETE_SUBJECT', subject: record.subject, magic: 0 };
    case 'clearSubject':
      return { keytype: 'CLEAR_SUBJECT', subject: record.subject, magic: 0 };
    case 'context':
      return { keytype: 'CONTEXT', tenant: 'default', context: record.context, magic: 0 };
    case 'noop':
      return { keytype: 'NOOP', magic: 0 };
    case 'policy':
      return { keytype: 'NOOP', magic: 0, millrace: 'POLICY', subject: record.subject };
    case 'maxId':
      return { keytype: 'NOOP', magic: 0, millrace: 'MAX_ID', context: record.context };
    case 'burned':
      return { keytype: 'NOOP', magic: 0, millrace: 'BURNED', subject: record.subject, seq: record.seq };
    case 'origin':
      return { keytype: 'NOOP', magic: 0, millrace: 'ORIGIN' };
  }
}

/** Exact bytes of the record's key. */
export function encodeKey(record: StoreRecord): Buffer {
  return utf8(keyOf(record));
}

/** Omits null, but not an empty object, which counts for the identity of a schema. */
const present = (name: string, value: Json | undefined): Record<string, Json> =>
  value === undefined || value === null ? {} : { [name]: value };

function schemaValue(subject: string, version: number, value: SchemaFields): unknown {
  const { md5, ...extra } = value.extra ?? {};
  return {
    subject,
    version,
    id: value.id,
    ...(md5 === undefined ? {} : { md5 }),
    ...(value.format === 'AVRO' ? {} : { schemaType: value.format }),
    ...(value.references.length === 0
      ? {}
      : { references: value.references.map(({ name, subject, version }) => ({ name, subject, version })) }),
    ...present('metadata', value.metadata),
    ...present('ruleSet', value.ruleSet),
    schema: value.text,
    deleted: value.deleted,
    ...extra,
  };
}

/** Properties in the order of the JVM registry's class. */
const CONFIG_FIELDS = [
  'alias',
  'normalize',
  'validateFields',
  'validateNewSchemas',
  'validateRules',
  'compatibilityLevel',
  'compatibilityPolicy',
  'compatibilityGroup',
  'defaultMetadata',
  'overrideMetadata',
  'defaultRuleSet',
  'overrideRuleSet',
] as const satisfies readonly (keyof SubjectConfig)[];

function valueFor(record: StoreRecord): unknown {
  switch (record.kind) {
    case 'noop':
      return null;
    case 'schema':
      return record.value === null ? null : schemaValue(record.subject, record.version, record.value);
    case 'config': {
      if (record.value === null) return null;
      const value: Record<string, unknown> = record.subject === null ? {} : { subject: record.subject };
      for (const name of CONFIG_FIELDS)
        if (record.value[name] !== undefined) value[name] = record.value[name];
      return value;
    }
    case 'mode':
      if (record.value === null) return null;
      return record.subject === null
        ? { mode: record.value }
        : { subject: record.subject, mode: record.value };
    case 'deleteSubject':
      return record.value === null ? null : { subject: record.subject, version: record.value };
    case 'clearSubject':
      return record.value === null ? null : { subject: record.subject };
    case 'context':
      return record.value === null ? null : { tenant: 'default', context: record.context };
    case 'policy':
      return record.value === null ? null : { subject: record.subject, ...record.value };
    case 'maxId':
      return record.value === null ? null : { context: record.context, maxId: record.value };
    case 'burned':
      return record.value === null ? null : { subject: record.subject, ...record.value };
    case 'origin':
      return record.value === null ? null : { verdictPolicy: record.value };
  }
}

export function encodeRecord(record: StoreRecord, ts?: number): LogRecord {
  const value = valueFor(record);
  return {
    key: encodeKey(record),
    value: value === null ? null : utf8(value),
    ...(ts === undefined ? {} : { ts }),
  };
}

type Fields = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Parses a JSON object in UTF-8; undefined for anything else. */
function objectOf(bytes: Uint8Array): Fields | undefined {
  try {
    const value: unknown = JSON.parse(
      Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'),
    );
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const isCount = (value: unknown, max: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max;

function referencesOf(value: unknown): readonly Reference[] | undefined {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) return undefined;
  const references: Reference[] = [];
  for (const item of value as unknown[]) {
    if (!isObject(item)) return undefined;
    const { name, subject, version } = item;
    if (typeof name !== 'string' || typeof subject !== 'string' || typeof version !== 'number')
      return undefined;
    references.push({ name, subject, version });
  }
  return references;
}

const SCHEMA_FIELDS = new Set([
  'subject',
  'version',
  'id',
  'schemaType',
  'references',
  'metadata',
  'ruleSet',
  'schema',
  'deleted',
]);

function readSchema(fields: Fields): SchemaFields | undefined {
  const { id, schemaType, schema, metadata, ruleSet, deleted } = fields;
  const references = referencesOf(fields['references']);
  // The first registries counted ids from 0.
  if (references === undefined || typeof schema !== 'string' || !(id === 0 || isCount(id, READ_ID_MAX)))
    return undefined;
  const extra: Record<string, Json> = {};
  for (const name of Object.keys(fields))
    if (!SCHEMA_FIELDS.has(name) && fields[name] !== null) extra[name] = fields[name] as Json;
  return {
    id,
    format: typeof schemaType === 'string' ? schemaType : 'AVRO',
    text: schema,
    references,
    ...present('metadata', metadata as Json | undefined),
    ...present('ruleSet', ruleSet as Json | undefined),
    deleted: deleted === true,
    ...(Object.keys(extra).length === 0 ? {} : { extra }),
  };
}

function readConfig(fields: Fields): SubjectConfig {
  const config: Record<string, unknown> = {};
  for (const name of CONFIG_FIELDS) {
    const value = fields[name];
    const fits =
      name === 'normalize' || name.startsWith('validate')
        ? typeof value === 'boolean'
        : name.endsWith('Metadata') || name.endsWith('RuleSet')
          ? isObject(value)
          : typeof value === 'string';
    if (fits) config[name] = value;
  }
  return config;
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
const textOrNull = (value: unknown): string | null | undefined =>
  value === null || value === undefined ? null : text(value);
const isMode = (value: unknown): value is RegistryMode =>
  (REGISTRY_MODES as readonly unknown[]).includes(value);

/** Reads a record; undefined when the key or the value does not fit its kind. */
function read(key: Fields, value: Fields | null): StoreRecord | undefined {
  const subject = text(key['subject']);
  const scope = textOrNull(key['subject']);
  switch (key['keytype']) {
    case 'SCHEMA': {
      const version = key['version'];
      if (subject === undefined || !isCount(version, VERSION_MAX)) return undefined;
      if (value === null) return { kind: 'schema', subject, version, value };
      const schema = readSchema(value);
      return schema === undefined ? undefined : { kind: 'schema', subject, version, value: schema };
    }
    case 'CONFIG':
      if (scope === undefined) return undefined;
      return { kind: 'config', subject: scope, value: value === null ? null : readConfig(value) };
    case 'MODE': {
      const mode = value?.['mode'];
      if (scope === undefined || (value !== null && !isMode(mode))) return undefined;
      return { kind: 'mode', subject: scope, value: isMode(mode) ? mode : null };
    }
    case 'DELETE_SUBJECT': {
      if (subject === undefined) return undefined;
      if (value === null) return { kind: 'deleteSubject', subject, value };
      // Redpanda names no version, which means all versions.
      const version = value['version'] ?? VERSION_MAX;
      if (version !== 0 && !isCount(version, VERSION_MAX)) return undefined;
      return { kind: 'deleteSubject', subject, value: version };
    }
    case 'CLEAR_SUBJECT':
      if (scope === undefined) return undefined;
      return { kind: 'clearSubject', subject: scope, value: value === null ? null : true };
    case 'CONTEXT': {
      const context = text(key['context']);
      if (context === undefined || (key['tenant'] ?? 'default') !== 'default') return undefined;
      return { kind: 'context', context, value: value === null ? null : true };
    }
    case 'NOOP':
      return key['millrace'] === undefined ? { kind: 'noop' } : readOurs(key, value);
    default:
      return undefined;
  }
}

function readOurs(key: Fields, value: Fields | null): StoreRecord | undefined {
  switch (key['millrace']) {
    case 'POLICY': {
      const subject = textOrNull(key['subject']);
      if (subject === undefined) return undefined;
      if (value === null) return { kind: 'policy', subject, value };
      const verdictPolicy = text(value['verdictPolicy']);
      const lossy = text(value['lossy']);
      return {
        kind: 'policy',
        subject,
        value: {
          ...(verdictPolicy === undefined ? {} : { verdictPolicy }),
          ...(lossy === undefined ? {} : { lossy }),
        },
      };
    }
    case 'MAX_ID': {
      const context = text(key['context']);
      const maxId = value?.['maxId'];
      if (context === undefined || (value !== null && !isCount(maxId, READ_ID_MAX))) return undefined;
      return { kind: 'maxId', context, value: value === null ? null : (maxId as number) };
    }
    case 'BURNED': {
      const subject = text(key['subject']);
      const seq = key['seq'];
      if (subject === undefined || !isCount(seq, VERSION_MAX)) return undefined;
      if (value === null) return { kind: 'burned', subject, seq, value };
      const { version, format, text: schema, last } = value;
      const references = referencesOf(value['references']);
      if (!isCount(version, VERSION_MAX) || typeof format !== 'string' || typeof schema !== 'string')
        return undefined;
      if (references === undefined) return undefined;
      return {
        kind: 'burned',
        subject,
        seq,
        value: { version, format, text: schema, references, last: last === true },
      };
    }
    case 'ORIGIN': {
      const policy = value?.['verdictPolicy'] ?? null;
      return policy === null || isVerdictPolicy(policy) ? { kind: 'origin', value: policy } : undefined;
    }
    default:
      return undefined;
  }
}

/** True when another registry wrote this record: ours leave no such marks. False proves nothing. */
export function isForeign(decoded: Decoded): boolean {
  if ('unread' in decoded || !decoded.keyIsExact) return true;
  const { record } = decoded;
  return record.kind === 'noop' || (record.kind === 'schema' && record.value?.extra !== undefined);
}

/** Empty values that Karapace has written, or restored, instead of null. */
const isNothing = (value: Uint8Array): boolean =>
  value.length <= 4 && ['', 'null', '""'].includes(Buffer.from(value).toString('latin1'));

/** Decodes a record. Total: for any bytes it returns a record or the reason why there is none. */
export function decodeRecord({ key, value }: LogRecord): Decoded {
  const fields = objectOf(key);
  if (fields === undefined) return { unread: 'its key is not a JSON object' };
  const content = value === null || isNothing(value) ? null : objectOf(value);
  // The value of a NOOP is ignored; some registries write an empty one.
  if (content === undefined && fields['keytype'] !== 'NOOP')
    return { unread: `the value of its ${JSON.stringify(fields['keytype'])} is not a JSON object` };
  const record = read(fields, content ?? null);
  if (record === undefined)
    return { unread: `its key or value is not one of kind ${JSON.stringify(fields['keytype'])}` };
  return { record, keyIsExact: encodeKey(record).equals(key) };
}
