/** Checks that the keywords of a JSON Schema have valid values: `"type": "nonsense"` is a mistake,
 *  not a schema.
 *
 *  Only rules that every dialect from draft-04 on shares are checked; an unknown keyword may have
 *  any value. Source: json-schema.org, "Core" and "Validation". */
import { type JsonNode, JsonTextError } from './text.ts';

export type JsonType = 'null' | 'boolean' | 'integer' | 'number' | 'string' | 'array' | 'object';
export const JSON_TYPES: readonly JsonType[] = [
  'null',
  'boolean',
  'integer',
  'number',
  'string',
  'array',
  'object',
];
const TYPES: ReadonlySet<string> = new Set(JSON_TYPES);

type Check = (value: JsonNode, open: JsonNode[]) => string | undefined;

const schema: Check = (value, open) => {
  if (value.kind !== 'object' && value.kind !== 'boolean') return 'a schema: an object or a boolean';
  open.push(value);
  return undefined;
};
const list: Check = (value, open) => {
  if (value.kind !== 'array' || value.items.length === 0) return 'a list of schemas';
  return value.items.some((item) => schema(item, open) !== undefined) ? 'a list of schemas' : undefined;
};
const byName: Check = (value, open) => {
  if (value.kind !== 'object') return 'an object of schemas';
  const isWrong = [...value.members.values()].some((member) => schema(member.value, open) !== undefined);
  return isWrong ? 'an object of schemas' : undefined;
};
const schemaOrList: Check = (value, open) => {
  if (value.kind !== 'array') return schema(value, open);
  return value.items.some((item) => schema(item, open) !== undefined) ? 'a list of schemas' : undefined;
};
const count: Check = (value) =>
  value.kind === 'number' && Number.isInteger(Number(value.digits)) && Number(value.digits) >= 0
    ? undefined
    : 'a whole number, not negative';
const text: Check = (value) => (value.kind === 'string' ? undefined : 'a text');
const number: Check = (value) => (value.kind === 'number' ? undefined : 'a number');
const texts: Check = (value) =>
  value.kind === 'array' && value.items.every((item) => item.kind === 'string')
    ? undefined
    : 'a list of texts';
const type: Check = (value) => {
  const names = value.kind === 'array' ? value.items : [value];
  const known = names.every((name) => name.kind === 'string' && TYPES.has(name.value));
  return known && names.length > 0 ? undefined : `one of ${JSON_TYPES.join(', ')}, or a list of these`;
};

const CHECKS: ReadonlyMap<string, Check> = new Map<string, Check>([
  ['type', type],
  ['enum', (value) => (value.kind === 'array' ? undefined : 'a list of values')],
  // Draft-03 allows a boolean here, for the property itself, and such schemas are still in use.
  ['required', (value, open) => (value.kind === 'boolean' ? undefined : texts(value, open))],
  ['pattern', text],
  ['$ref', text],
  ...['minimum', 'maximum', 'multipleOf'].map((name) => [name, number] as const),
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'].map(
    (name) => [name, count] as const,
  ),
  ...['properties', 'patternProperties', 'definitions', '$defs', 'dependentSchemas'].map(
    (name) => [name, byName] as const,
  ),
  ...['allOf', 'anyOf', 'oneOf', 'prefixItems'].map((name) => [name, list] as const),
  ['items', schemaOrList],
  ...[
    'additionalProperties',
    'additionalItems',
    'contains',
    'propertyNames',
    'not',
    'if',
    'then',
    'else',
  ].map((name) => [name, schema] as const),
]);

/** Checks all keywords of a document.
 *  @throws JsonTextError where a keyword has an invalid value */
export function checkJsonSchemaShape(root: JsonNode): void {
  const open: JsonNode[] = [root];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    if (node.kind !== 'object') continue;
    for (const [keyword, { value }] of node.members) {
      const wanted = CHECKS.get(keyword)?.(value, open);
      if (wanted !== undefined)
        throw new JsonTextError(`${JSON.stringify(keyword)} must be ${wanted}`, value.at);
    }
  }
}
