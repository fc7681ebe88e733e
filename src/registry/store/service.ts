/** What the registry does, in one interface between its rules and its HTTP routes.
 *
 *  A subject is written with its context where that is not the default one: `:.staging:orders-value`. Reads are
 *  synchronous and answer from memory; `fresh` before a read makes it see every write acknowledged anywhere. A registry
 *  that has a thread for checks throws `Deferred` where that thread has work to do first: `step` begins what is run again.
 */

import type { Json, Reference, SchemaContent } from '../../formats/content.ts';
import type { Comparison, Verdict, VerdictPolicy } from '../compatibility/modes.ts';

/** What a client sends. */
export interface SchemaInput {
  /** As sent; absent is AVRO. Checked by the registry. */
  readonly format?: string;
  readonly text: string;
  readonly references?: readonly Reference[];
  readonly metadata?: Json;
  readonly ruleSet?: Json;
}

export interface RegisterInput extends SchemaInput {
  /** Only in mode IMPORT. */
  readonly id?: number;
  /** Absent or -1: the next one. */
  readonly version?: number;
}

export interface StoredSchema {
  readonly id: number;
  readonly context: string;
  readonly guid: string;
  readonly content: SchemaContent;
}

export interface StoredVersion extends StoredSchema {
  readonly subject: string;
  readonly version: number;
  /** Soft-deleted. */
  readonly deleted: boolean;
  /** When it was registered, ms since 1970; 0 where the log does not say. */
  readonly ts: number;
}

export interface Registered {
  readonly version: StoredVersion;
  /** False: the subject had this content already. */
  readonly created: boolean;
  readonly comparisons: readonly Comparison[];
}

/** A verdict, and what it was made of. */
export interface Judgement extends Verdict {
  readonly compared: readonly StoredVersion[];
  readonly level: string;
  readonly policy: VerdictPolicy;
  /** The findings in a form for programs, some with an event that shows them. @throws Deferred, check_too_long */
  readonly explained: () => readonly object[] | Promise<readonly object[]>;
}

/** Which of the soft-deleted ones are meant. */
export type Deleted = 'no' | 'also' | 'only';

export interface SubjectConfig {
  readonly compatibilityLevel?: string;
  readonly normalize?: boolean;
  readonly validateFields?: boolean;
  /** False: a new Avro text may have defaults that do not fit, and any namespace. */
  readonly validateNewSchemas?: boolean;
  /** Kept for registries that know it; rules are always checked here. */
  readonly validateRules?: boolean;
  readonly alias?: string;
  readonly compatibilityGroup?: string;
  readonly compatibilityPolicy?: string;
  readonly defaultMetadata?: Json;
  readonly overrideMetadata?: Json;
  readonly defaultRuleSet?: Json;
  readonly overrideRuleSet?: Json;
  /** Ours: PROVEN or STRICT, and what a lossy change does. */
  readonly verdictPolicy?: string;
  readonly lossy?: string;
}

export const REGISTRY_MODES = ['READWRITE', 'READONLY', 'READONLY_OVERRIDE', 'IMPORT', 'FORWARD'] as const;
export type RegistryMode = (typeof REGISTRY_MODES)[number];

export type SchemaTextFormat = '' | 'resolved' | 'serialized' | 'ignore_extensions';

export interface RegistryCounts {
  readonly contexts: number;
  readonly subjects: number;
  readonly versions: number;
  readonly schemas: number;
  readonly deletedVersions: number;
}

export interface RegistryService {
  /** Begins a synchronous step with inline limits of its own; see checks.ts. */
  step<T>(run: () => T): T;
  /** Settles when reads see every write that was acknowledged, by any instance, before this call. */
  fresh(): Promise<void>;
  counts(): RegistryCounts;

  contexts(): readonly string[];
  /** Qualified names, sorted. `prefix` as sent: a plain prefix, `:*:` for all contexts, `:.ctx:` for one. */
  subjects(options: { readonly prefix: string; readonly deleted: Deleted }): readonly string[];
  /** The one that what is asked of a subject is asked of: the one its alias names, else itself, qualified. Settings
   *  are asked of the name as it stands. */
  meant(subject: string): string;
  /** Ascending. @throws subject_not_found */
  versions(subject: string, deleted: Deleted): readonly StoredVersion[];
  /** `wanted`: a number, `latest` or `-1`. @throws subject_not_found, version_not_found, invalid_version */
  version(subject: string, wanted: string, options?: { readonly deleted?: boolean }): StoredVersion;
  /** @throws subject_not_found, metadata_not_found */
  latestWithMetadata(subject: string, wanted: ReadonlyMap<string, string>, deleted: boolean): StoredVersion;
  /** Ids of the schemas that refer to this version, ascending; `isSeen` says which subjects count.
   *  @throws subject_not_found, version_not_found */
  referencedBy(
    subject: string,
    wanted: string,
    deleted: boolean,
    isSeen?: (subject: string) => boolean,
  ): readonly number[];

  /** `subject`: from whose context the id is; an unqualified one is looked for in every context when the default one
   *  has it not. @throws schema_not_found */
  schema(id: number, subject?: string): StoredSchema;
  /** Versions that use the id, by subject and version. @throws schema_not_found */
  uses(
    id: number,
    options: { readonly subject?: string; readonly deleted: boolean },
  ): readonly StoredVersion[];
  maxId(context: string): number;
  /** @throws schema_not_found */
  schemaByGuid(guid: string): StoredSchema;
  idsOfGuid(guid: string): ReadonlyArray<{ readonly context: string; readonly id: number }>;
  /** `GET /schemas`: by subject and version. */
  browse(options: {
    readonly prefix: string;
    readonly deleted: boolean;
    readonly latestOnly: boolean;
  }): readonly StoredVersion[];
  /** The stored text in another form. @throws invalid_schema when a reference is gone, Deferred */
  textOf(schema: StoredSchema, format: SchemaTextFormat): string;

  /** The version of this subject with this content. @throws subject_not_found, schema_not_found, invalid_schema,
   *  Deferred */
  lookup(
    subject: string,
    input: SchemaInput,
    options: { readonly normalize?: boolean; readonly deleted?: boolean },
  ): StoredVersion;
  /** True where a version of the subject, soft-deleted or not, stores this very text; nothing is parsed. A text that is
   *  to be normalised first is never found. @throws invalid_schema */
  holds(subject: string, input: SchemaInput, options: { readonly normalize?: boolean }): boolean;
  /** @throws invalid_subject, invalid_schema, schema_too_large, incompatible, not_permitted, not_leader, store_failed,
   *  check_too_long, Deferred */
  register(
    subject: string,
    input: RegisterInput,
    options: { readonly normalize?: boolean },
  ): Promise<Registered>;
  /** `explain`: the explanation is asked for afterwards. Against one version, or (`wanted` undefined) against all that the subject's level names.
   *  @throws version_not_found, invalid_version, invalid_schema, check_too_long, Deferred */
  compatibility(
    subject: string,
    wanted: string | undefined,
    input: SchemaInput,
    options: { readonly normalize?: boolean; readonly explain?: boolean },
  ): Judgement;

  /** Returns the deleted version's number. @throws subject_not_found, version_not_found, reference_exists,
   *  version_soft_deleted, version_not_soft_deleted, not_permitted, not_leader, store_failed */
  deleteVersion(subject: string, wanted: string, permanent: boolean): Promise<number>;
  /** @throws subject_not_found, subject_soft_deleted, subject_not_soft_deleted, reference_exists, not_permitted */
  deleteSubject(subject: string, permanent: boolean): Promise<readonly number[]>;

  /** Undefined subject: global. `:.ctx:` alone: the context's. Own settings, or those in force when `inForce`.
   *  @throws subject_level_not_set */
  config(subject: string | undefined, inForce: boolean): SubjectConfig;
  /** The policy in force. Where no setting names one it follows from the log, and `config` does not show it. */
  verdictPolicy(subject: string | undefined): VerdictPolicy;
  /** Merges: what is absent stays, null removes. Returns what was set. @throws invalid_level, invalid_subject */
  setConfig(subject: string | undefined, update: Readonly<Record<string, unknown>>): Promise<SubjectConfig>;
  /** Returns the old one. @throws subject_level_not_set, subject_not_found */
  deleteConfig(subject: string | undefined): Promise<SubjectConfig>;
  /** @throws subject_mode_not_set */
  mode(subject: string | undefined, inForce: boolean): RegistryMode;
  /** IMPORT needs an empty subject, or `force`. @throws invalid_mode, not_permitted */
  setMode(subject: string | undefined, mode: unknown, force: boolean): Promise<RegistryMode>;
  /** @throws subject_mode_not_set */
  deleteMode(subject: string | undefined, recursive: boolean): Promise<RegistryMode>;
}
