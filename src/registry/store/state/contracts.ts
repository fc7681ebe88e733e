/** Metadata and rules of a schema, completed by the settings and the previous version.
 *
 *  Source: core/src/main/java/.../storage/AbstractSchemaRegistry.java (maybeSetMetadataRuleSet) and
 *  client/.../rest/entities/{Metadata,RuleSet}.java of confluentinc/schema-registry (facts only).
 */
import type { Json, SchemaContent } from '../../../formats/content.ts';
import type { SubjectConfig } from '../service.ts';

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
