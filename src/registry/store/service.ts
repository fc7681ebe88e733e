/** Interface of the registry between its rules and its HTTP routes.
 *
 *  A subject outside the default context is written with its context: `:.staging:orders-value`.
 *  Reads are synchronous and answer from memory; after `fresh`, a read sees every write that any
 *  instance acknowledged before. A registry with a check thread throws `Deferred` where that thread
 *  has work to do first; the caller then runs the same `step` again.
 */

import type { Json, Reference, SchemaContent } from '../../formats/content.ts';
import type { Comparison, Verdict, VerdictPolicy } from '../compatibility/modes.ts';

/** Schema as a client sends it. */
export interface SchemaInput {
  /** Format as sent; absent: AVRO. Checked by the registry. */
  readonly format?: string;
  readonly text: string;
  readonly references?: readonly Reference[];
  readonly metadata?: Json;
  readonly ruleSet?: Json;
}

export interface RegisterInput extends SchemaInput {
  /** Id to store the schema under. Only in modes IMPORT and FORWARD. */
  readonly id?: number;
  /** Version to store. Absent, or not positive: the next one. */
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
  /** True: soft-deleted. */
  readonly deleted: boolean;
  /** Registration time, ms since 1970; 0 where the log does not record it. */
  readonly ts: number;
}

export interface Registered {
  readonly version: StoredVersion;
  /** False: the subject had this content already. */
  readonly created: boolean;
  readonly comparisons: readonly Comparison[];
}

/** Verdict, with the versions, level and policy that it rests on. */
export interface Judgement extends Verdict {
  readonly compared: readonly StoredVersion[];
  readonly level: string;
  readonly policy: VerdictPolicy;
  /** Returns the findings in a form for programs, some with a counterexample event. @throws
   *  Deferred, check_too_long
   */
  readonly explained: () => readonly object[] | Promise<readonly object[]>;
}

/** Selection of versions: without the soft-deleted ones, with them, or only them. */
export type Deleted = 'no' | 'also' | 'only';

export interface SubjectConfig {
  readonly compatibilityLevel?: string;
  readonly normalize?: boolean;
  readonly validateFields?: boolean;
  /** False: a new Avro text may have defaults that do not fit, and any namespace. */
  readonly validateNewSchemas?: boolean;
  /** Stored for registries that know this setting; rules are always checked here. */
  readonly validateRules?: boolean;
  readonly alias?: string;
  readonly compatibilityGroup?: string;
  readonly compatibilityPolicy?: string;
  readonly defaultMetadata?: Json;
  readonly overrideMetadata?: Json;
  readonly defaultRuleSet?: Json;
  readonly overrideRuleSet?: Json;
  /** Millrace's own settings: PROVEN or STRICT, and whether a lossy change is accepted or rejected.
   */
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
  /** Runs a synchronous step with inline limits of its own; see checks.ts. */
  step<T>(run: () => T): T;
  /** Settles when reads see every write that any instance acknowledged before this call. */
  fresh(): Promise<void>;
  counts(): RegistryCounts;

  contexts(): readonly string[];
  /** Qualified names, sorted. `prefix` as sent: a plain prefix, `:*:` for all contexts, `:.ctx:`
   *  for one context.
   */
  subjects(options: { readonly prefix: string; readonly deleted: Deleted }): readonly string[];
  /** Resolves `subject` through its alias; without an alias it qualifies the name. Settings are
   *  read and written under the name itself.
   */
  meant(subject: string): string;
  /** Versions of a subject, ascending. @throws subject_not_found */
  versions(subject: string, deleted: Deleted): readonly StoredVersion[];
  /** Version of a subject. `wanted`: a number, `latest` or `-1`. @throws subject_not_found,
   *  version_not_found, invalid_version
   */
  version(subject: string, wanted: string, options?: { readonly deleted?: boolean }): StoredVersion;
  /** Latest version that has these metadata properties. @throws subject_not_found,
   *  metadata_not_found
   */
  latestWithMetadata(subject: string, wanted: ReadonlyMap<string, string>, deleted: boolean): StoredVersion;
  /** Ids of the schemas that refer to this version, ascending; `isSeen` selects the subjects that
   *  count.
   *  @throws subject_not_found, version_not_found
   */
  referencedBy(
    subject: string,
    wanted: string,
    deleted: boolean,
    isSeen?: (subject: string) => boolean,
  ): readonly number[];

  /** Schema of an id, in the context of `subject`. When the default context of a given subject
   *  lacks the id, every context is searched. @throws schema_not_found
   */
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
  /** Versions for `GET /schemas`, sorted by subject and version. */
  browse(options: {
    readonly prefix: string;
    readonly deleted: boolean;
    readonly latestOnly: boolean;
  }): readonly StoredVersion[];
  /** Stored text in another form. @throws invalid_schema when a reference no longer exists,
   *  Deferred
   */
  textOf(schema: StoredSchema, format: SchemaTextFormat): string;

  /** Version of this subject that has this content.
   *  @throws subject_not_found, schema_not_found, invalid_schema, Deferred
   */
  lookup(
    subject: string,
    input: SchemaInput,
    options: { readonly normalize?: boolean; readonly deleted?: boolean },
  ): StoredVersion;
  /** True when a version of the subject, soft-deleted or not, stores this exact text; nothing is
   *  parsed. A text that must be normalized first is never found. @throws invalid_schema
   */
  holds(subject: string, input: SchemaInput, options: { readonly normalize?: boolean }): boolean;
  /** Registers a schema.
   *  @throws invalid_subject, invalid_schema, schema_too_large, incompatible, not_permitted,
   *    not_leader, store_failed, check_too_long, Deferred
   */
  register(
    subject: string,
    input: RegisterInput,
    options: { readonly normalize?: boolean },
  ): Promise<Registered>;
  /** Judges a schema against one version, or, with `wanted` undefined, against all versions that
   *  the subject's level names. `explain`: the caller will ask for the explanation afterwards.
   *  @throws version_not_found, invalid_version, invalid_schema, check_too_long, Deferred
   */
  compatibility(
    subject: string,
    wanted: string | undefined,
    input: SchemaInput,
    options: { readonly normalize?: boolean; readonly explain?: boolean },
  ): Judgement;

  /** Deletes a version and returns its number. @throws subject_not_found, version_not_found,
   *  reference_exists, version_soft_deleted, version_not_soft_deleted, not_permitted, not_leader,
   *  store_failed, Deferred
   */
  deleteVersion(subject: string, wanted: string, permanent: boolean): Promise<number>;
  /** Deletes a subject and returns the numbers of the deleted versions.
   *  @throws subject_not_found, subject_soft_deleted, subject_not_soft_deleted, reference_exists,
   *    not_permitted, not_leader, store_failed, Deferred
   */
  deleteSubject(subject: string, permanent: boolean): Promise<readonly number[]>;

  /** Settings of a scope: undefined is global, `:.ctx:` a context. Returns the scope's own
   *  settings, or with `inForce` also the inherited ones. @throws subject_level_not_set
   */
  config(subject: string | undefined, inForce: boolean): SubjectConfig;
  /** Verdict policy in force. Without a setting it follows from the log, and `config` does not show
   *  it.
   */
  verdictPolicy(subject: string | undefined): VerdictPolicy;
  /** Merges settings: an absent field stays, null removes it. Returns what was set. @throws
   *  invalid_level, invalid_subject
   */
  setConfig(subject: string | undefined, update: Readonly<Record<string, unknown>>): Promise<SubjectConfig>;
  /** Removes the settings of a scope and returns the old ones. @throws subject_level_not_set,
   *  subject_not_found
   */
  deleteConfig(subject: string | undefined): Promise<SubjectConfig>;
  /** Mode of a scope, its own or the one in force. @throws subject_mode_not_set */
  mode(subject: string | undefined, inForce: boolean): RegistryMode;
  /** Sets the mode. IMPORT needs a scope without live versions, or `force`. @throws invalid_mode,
   *  not_permitted
   */
  setMode(subject: string | undefined, mode: unknown, force: boolean): Promise<RegistryMode>;
  /** Removes the mode of a scope and returns the old one. @throws subject_mode_not_set */
  deleteMode(subject: string | undefined, recursive: boolean): Promise<RegistryMode>;
}
