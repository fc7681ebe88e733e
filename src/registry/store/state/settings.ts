/** Levels, modes and other settings of a subject, a context or all subjects: which are in force,
 *  which values are allowed, and what they add to the metadata and rules of a schema.
 *
 *  Source: core/src/main/java/.../storage/AbstractSchemaRegistry.java (maybeSetMetadataRuleSet) and
 *  client/.../rest/entities/{Metadata,RuleSet}.java of confluentinc/schema-registry (facts only).
 */

import type { Json, SchemaContent } from '../../../formats/content.ts';
import { readMetadata, readRuleSet } from '../../../formats/contract.ts';
import {
  isLevel,
  isVerdictPolicy,
  type Level,
  VERDICT_POLICIES,
  type VerdictPolicy,
} from '../../compatibility/modes.ts';
import { registryError } from '../../errors.ts';
import { REGISTRY_MODES, type RegistryMode, type SubjectConfig } from '../service.ts';
import type { Draft } from '../writer.ts';
import type { State } from './model.ts';
import { contextOf, DEFAULT_CONTEXT, isWithin, scopesOf } from './names.ts';
import type { Policy } from './records.ts';

const DEFAULT_LEVEL: Level = 'BACKWARD';
const DEFAULT_MODE: RegistryMode = 'READWRITE';

function ownConfig(state: State, scope: string | null): SubjectConfig {
  return { ...state.config(scope), ...state.policy(scope) };
}

/** Own settings without an unknown compatibility level, which another registry may have written. */
function knownConfig(state: State, scope: string | null): SubjectConfig {
  const own = ownConfig(state, scope);
  if (own.compatibilityLevel === undefined || isLevel(own.compatibilityLevel)) return own;
  const { compatibilityLevel: _, ...others } = own;
  return others;
}

/** Verdict policy where nothing is set: that of the registry whose log this is. */
function originOf(state: State): VerdictPolicy {
  return state.origin() ?? (state.foreign ? 'STRICT' : 'PROVEN');
}

/** Settings in force: a field that a scope does not set comes from its context, then from the
 *  global settings, then from the log.
 */
export function configInForce(state: State, scope: string | null): SubjectConfig {
  return { verdictPolicy: originOf(state), ...configShown(state, scope) };
}

/** Settings in force, without the policy that follows from the log: clients of the registry that
 *  wrote the log do not know that property.
 */
function configShown(state: State, scope: string | null): SubjectConfig {
  const merged: SubjectConfig = { compatibilityLevel: DEFAULT_LEVEL };
  for (const one of [...scopesOf(scope)].reverse()) Object.assign(merged, knownConfig(state, one));
  // An alias belongs to one name and is not inherited.
  const { alias: _, ...others } = merged;
  const { alias } = ownConfig(state, scope);
  return alias === undefined ? others : { ...others, alias };
}

export function levelOf(config: SubjectConfig): Level {
  return isLevel(config.compatibilityLevel) ? config.compatibilityLevel : DEFAULT_LEVEL;
}

/** Verdict policy of a config in force. */
export function policyOf(config: SubjectConfig): VerdictPolicy {
  return isVerdictPolicy(config.verdictPolicy) ? config.verdictPolicy : 'PROVEN';
}

/** @throws subject_level_not_set */
export function configOf(state: State, scope: string | null, inForce: boolean): SubjectConfig {
  if (inForce) return configShown(state, scope);
  const own = knownConfig(state, scope);
  if (scope === null) return { compatibilityLevel: DEFAULT_LEVEL, ...own };
  if (Object.keys(own).length === 0) throw levelNotSet(scope);
  return own;
}

const levelNotSet = (scope: string): Error =>
  registryError(
    'subject_level_not_set',
    `Subject '${scope}' does not have subject-level compatibility configured`,
  );

export function modeInForce(state: State, scope: string | null): RegistryMode {
  const global = state.mode(null) ?? DEFAULT_MODE;
  if (global === 'READONLY_OVERRIDE') return global;
  for (const one of scopesOf(scope)) {
    const mode = state.mode(one);
    if (mode !== undefined) return mode;
  }
  return DEFAULT_MODE;
}

/** @throws subject_mode_not_set */
export function modeOf(state: State, scope: string | null, inForce: boolean): RegistryMode {
  if (inForce || scope === null) return modeInForce(state, scope);
  const own = state.mode(scope);
  if (own === undefined) throw modeNotSet(scope);
  return state.mode(null) === 'READONLY_OVERRIDE' ? 'READONLY_OVERRIDE' : own;
}

const modeNotSet = (scope: string): Error =>
  registryError('subject_mode_not_set', `Subject '${scope}' does not have subject-level mode configured`);

/** Part of a message that names the context; empty for the default context. */
const inContext = (subject: string): string => {
  const context = contextOf(subject);
  return context === DEFAULT_CONTEXT ? '' : ` in context :${context}:`;
};

export function notPermitted(subject: string | null, what: string): Error {
  const whose = subject === null ? 'The registry' : `Subject ${subject}${inContext(subject)}`;
  return registryError('not_permitted', `${whose} is ${what}`, { next: 'change the mode first' });
}

export const isReadOnly = (mode: RegistryMode): boolean =>
  mode === 'READONLY' || mode === 'READONLY_OVERRIDE';

/** @throws not_permitted */
export function checkWritable(state: State, scope: string | null): void {
  if (isReadOnly(modeInForce(state, scope))) throw notPermitted(scope, 'in read-only mode');
}

export const LOSSY_CHOICES = ['ACCEPT', 'REJECT'];
export const COMPATIBILITY_POLICIES = ['STRICT', 'LENIENT', 'LOGICAL'];
const LEVEL_MESSAGE =
  'Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive';

type Check = (value: unknown, name: string) => unknown;

function refuse(name: string, wanted: string): never {
  throw registryError('invalid_level', `Invalid ${name}. It must be ${wanted}`);
}

const word =
  (choices: readonly string[]): Check =>
  (value, name) => {
    const upper = typeof value === 'string' ? value.toUpperCase() : '';
    return choices.includes(upper) ? upper : refuse(name, `one of ${choices.join(', ')}`);
  };
const string: Check = (value, name) => (typeof value === 'string' ? value : refuse(name, 'a string'));
const boolean: Check = (value, name) => (typeof value === 'boolean' ? value : refuse(name, 'true or false'));
const metadata: Check = (value, name) => readMetadata(value, name);
const ruleSet: Check = (value, name) => readRuleSet(value, name);
const level: Check = (value) => {
  const upper = typeof value === 'string' ? value.toUpperCase() : value;
  if (!isLevel(upper)) throw registryError('invalid_level', LEVEL_MESSAGE);
  return upper;
};

const CHECKS: Readonly<Record<keyof SubjectConfig, Check>> = {
  compatibilityLevel: level,
  normalize: boolean,
  validateFields: boolean,
  validateNewSchemas: boolean,
  validateRules: boolean,
  alias: string,
  compatibilityGroup: string,
  compatibilityPolicy: word(COMPATIBILITY_POLICIES),
  defaultMetadata: metadata,
  overrideMetadata: metadata,
  defaultRuleSet: ruleSet,
  overrideRuleSet: ruleSet,
  verdictPolicy: word(VERDICT_POLICIES),
  lossy: word(LOSSY_CHOICES),
};

/** Reads the fields of an update by their own names; null removes a field. @throws invalid_level,
 *  malformed_request, invalid_rule_set
 */
function readUpdate(update: Readonly<Record<string, unknown>>): Map<keyof SubjectConfig, unknown> {
  const fields = new Map<keyof SubjectConfig, unknown>();
  for (const name of Object.keys(CHECKS) as Array<keyof SubjectConfig>) {
    // A request may name the property `compatibility`; an answer names it `compatibilityLevel`.
    const said = name === 'compatibilityLevel' && !(name in update) ? 'compatibility' : name;
    const value = update[said];
    if (value === undefined) continue;
    fields.set(name, value === null ? null : CHECKS[name](value, name));
  }
  return fields;
}

const OURS: readonly (keyof SubjectConfig)[] = ['verdictPolicy', 'lossy'];

const isEqual = (a: object, b: object): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Returns the decision on an update. Checks first, so that a bad update is refused before it
 *  queues.
 */
export function settingConfig(
  scope: string | null,
  update: Readonly<Record<string, unknown>>,
): (draft: Draft) => SubjectConfig {
  const fields = readUpdate(update);
  return (draft) => {
    const { state } = draft;
    checkWritable(state, scope);
    const config: Record<string, unknown> = { ...state.config(scope) };
    const policy: Record<string, unknown> = { ...state.policy(scope) };
    for (const [name, value] of fields) {
      const part = OURS.includes(name) ? policy : config;
      if (value === null) delete part[name];
      else part[name] = value;
    }
    if (!isEqual(config, state.config(scope) ?? {})) {
      const value = Object.keys(config).length === 0 ? null : (config as SubjectConfig);
      draft.put({ kind: 'config', subject: scope, value });
    }
    if (!isEqual(policy, state.policy(scope) ?? {})) {
      const value = Object.keys(policy).length === 0 ? null : (policy as Policy);
      draft.put({ kind: 'policy', subject: scope, value });
    }
    return Object.fromEntries([...fields].filter(([, value]) => value !== null)) as SubjectConfig;
  };
}

/** Removes the settings of a scope. @returns the previous settings */
export function removeConfig(draft: Draft, scope: string | null): SubjectConfig {
  const { state } = draft;
  checkWritable(state, scope);
  const old = ownConfig(state, scope);
  if (scope !== null && Object.keys(old).length === 0) {
    if (state.live(scope).length > 0) throw levelNotSet(scope);
    throw registryError('subject_not_found', `Subject '${scope}' not found.`);
  }
  removeSettings(draft, scope, { mode: false });
  return { compatibilityLevel: DEFAULT_LEVEL, ...old };
}

/** Removes the settings of a scope. A subject loses its own settings with its last version. */
export function removeSettings(draft: Draft, scope: string | null, also: { readonly mode: boolean }): void {
  const { state } = draft;
  if (state.config(scope) !== undefined) draft.put({ kind: 'config', subject: scope, value: null });
  if (state.policy(scope) !== undefined) draft.put({ kind: 'policy', subject: scope, value: null });
  if (also.mode && state.mode(scope) !== undefined) draft.put({ kind: 'mode', subject: scope, value: null });
}

/** @throws invalid_mode */
export function readMode(mode: unknown): RegistryMode {
  const upper = typeof mode === 'string' ? mode.toUpperCase() : '';
  const found = REGISTRY_MODES.find((one) => one === upper);
  if (found === undefined)
    throw registryError('invalid_mode', `Invalid mode. Valid values are ${REGISTRY_MODES.join(', ')}`);
  return found;
}

export function setMode(
  draft: Draft,
  scope: string | null,
  mode: RegistryMode,
  force: boolean,
): RegistryMode {
  const { state } = draft;
  if (mode === 'IMPORT' && modeInForce(state, scope) !== 'IMPORT' && !force) {
    const within = state.subjectNames().filter((subject) => isWithin(subject, scope));
    if (within.some((subject) => state.live(subject).length > 0)) {
      throw registryError('not_permitted', 'Cannot import since found existing subjects', {
        next: 'delete them, or give force=true',
      });
    }
    for (const subject of within) draft.putTombstones(subject, state.versions(subject));
    if (within.length > 0) draft.put({ kind: 'clearSubject', subject: scope, value: true });
  }
  if (state.mode(scope) !== mode) draft.put({ kind: 'mode', subject: scope, value: mode });
  return mode;
}

/** Removes the mode of a scope. @returns the previous mode */
export function removeMode(draft: Draft, scope: string | null, recursive: boolean): RegistryMode {
  const { state } = draft;
  const old = state.mode(scope);
  if (scope !== null && old === undefined && !recursive) throw modeNotSet(scope);
  if (recursive)
    for (const one of state.modeScopes())
      if (one !== null && one !== scope && isWithin(one, scope))
        draft.put({ kind: 'mode', subject: one, value: null });
  if (old !== undefined) draft.put({ kind: 'mode', subject: scope, value: null });
  return old ?? DEFAULT_MODE;
}

type JsonObject = { readonly [key: string]: Json };

const VERSION_PROPERTY = 'confluent:version';
const RULE_KINDS = ['migrationRules', 'domainRules', 'encodingRules'] as const;

const objectOf = (value: Json | undefined): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
const listOf = (value: Json | undefined): readonly Json[] =>
  Array.isArray(value) ? (value as readonly Json[]) : [];

/** Merges metadata key by key; `over` takes precedence. */
function mergeMetadata(under: Json | undefined, over: Json | undefined): Json | undefined {
  const a = objectOf(under);
  const b = objectOf(over);
  if (a === undefined || b === undefined) return b ?? a;
  const sensitive = [...new Set([...listOf(a['sensitive']), ...listOf(b['sensitive'])])].sort();
  return {
    ...a,
    ...b,
    ...merged('tags', a, b),
    ...merged('properties', a, b),
    ...(sensitive.length === 0 ? {} : { sensitive }),
  };
}

function merged(name: string, a: JsonObject, b: JsonObject): JsonObject {
  const all = { ...objectOf(a[name]), ...objectOf(b[name]) };
  return Object.keys(all).length === 0 ? {} : { [name]: all };
}

/** Merges rule sets; a rule of `over` replaces the rule of the same name. */
function mergeRuleSets(under: Json | undefined, over: Json | undefined): Json | undefined {
  const a = objectOf(under);
  const b = objectOf(over);
  if (a === undefined || b === undefined) return b ?? a;
  const rules: Record<string, Json> = {};
  for (const kind of RULE_KINDS) {
    const own = listOf(b[kind]);
    const names = new Set(own.map((rule) => objectOf(rule)?.['name']));
    const all = [...listOf(a[kind]).filter((rule) => !names.has(objectOf(rule)?.['name'])), ...own];
    if (all.length > 0) rules[kind] = all;
  }
  return { ...a, ...b, ...rules };
}

export function metadataProperty(content: SchemaContent, name: string): string | undefined {
  const value = objectOf(objectOf(content.metadata)?.['properties'])?.[name];
  return typeof value === 'string' ? value : undefined;
}

/** Content completed by the settings and the previous version.
 *  @param number version of the new content. It is written into the metadata where the request asks
 *    for that, or where the metadata has it already
 */
export function complete(
  content: SchemaContent,
  config: SubjectConfig,
  previous: SchemaContent | undefined,
  number: { readonly version: number; readonly asked: boolean } | undefined,
): SchemaContent {
  const { metadata: own, ruleSet: ownRules, ...rest } = content;
  let metadata = mergeMetadata(
    mergeMetadata(config.defaultMetadata, own ?? previous?.metadata),
    config.overrideMetadata,
  );
  const ruleSet = mergeRuleSets(
    mergeRuleSets(config.defaultRuleSet, ownRules ?? previous?.ruleSet),
    config.overrideRuleSet,
  );
  const properties = objectOf(objectOf(metadata)?.['properties']);
  if (number !== undefined && (number.asked || properties?.[VERSION_PROPERTY] !== undefined)) {
    metadata = {
      ...objectOf(metadata),
      properties: { ...properties, [VERSION_PROPERTY]: String(number.version) },
    };
  }
  return {
    ...rest,
    ...(metadata === undefined ? {} : { metadata }),
    ...(ruleSet === undefined ? {} : { ruleSet }),
  };
}
