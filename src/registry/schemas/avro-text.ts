/** The stored text of an Avro schema: one line, keys in the order that the existing registries write.
 *
 *  Documentation, aliases and foreign properties are kept and count for identity; white space does not. A nested
 *  namespace that repeats the enclosing one is dropped, because it changes nothing.
 */

type Json = Record<string, unknown>;

const KNOWN = {
  record: ['type', 'name', 'namespace', 'doc', 'fields'],
  error: ['type', 'name', 'namespace', 'doc', 'fields'],
  enum: ['type', 'name', 'namespace', 'doc', 'symbols', 'default'],
  fixed: ['type', 'name', 'namespace', 'doc', 'size'],
  array: ['type', 'items'],
  map: ['type', 'values'],
} as const;
const FIELD = ['name', 'type', 'doc', 'default', 'order'] as const;

function ordered(
  source: Json,
  known: readonly string[],
  convert: (key: string, value: unknown) => unknown,
): Json {
  const out: Json = {};
  const put = (key: string): void => {
    const value = convert(key, source[key]);
    if (value !== undefined) out[key] = value;
  };
  for (const key of known) if (Object.hasOwn(source, key)) put(key);
  for (const key of Object.keys(source)) if (!known.includes(key) && key !== 'aliases') put(key);
  if (Object.hasOwn(source, 'aliases')) put('aliases');
  return out;
}

function canonical(schema: unknown, enclosing: string): unknown {
  if (Array.isArray(schema)) return schema.map((branch) => canonical(branch, enclosing));
  if (typeof schema !== 'object' || schema === null) return schema;
  const source = schema as Json;
  const type = source['type'];
  if (typeof type !== 'string') {
    return Object.keys(source).length === 1
      ? canonical(type, enclosing)
      : ordered(source, ['type'], (key, value) => (key === 'type' ? canonical(value, enclosing) : value));
  }
  // {"type":"string"} says no more than "string".
  if (Object.keys(source).length === 1) return type;
  const known = Object.hasOwn(KNOWN, type) ? KNOWN[type as keyof typeof KNOWN] : (['type'] as const);
  const name = typeof source['name'] === 'string' ? source['name'] : '';
  const dot = name.lastIndexOf('.');
  const own = source['namespace'];
  const namespace = dot >= 0 ? name.slice(0, dot) : typeof own === 'string' ? own : enclosing;
  const isNamed = 'name' in source && Object.hasOwn(KNOWN, type) && type !== 'array' && type !== 'map';
  const body = isNamed
    ? {
        type,
        name: dot >= 0 ? name.slice(dot + 1) : name,
        namespace,
        ...without(source, ['type', 'name', 'namespace']),
      }
    : source;
  return ordered(body, known, (key, value) => {
    if (key === 'namespace') return namespace === enclosing ? undefined : value;
    if (key === 'fields' && Array.isArray(value))
      return value.map((field) => canonicalField(field as Json, namespace));
    if (key === 'items' || key === 'values') return canonical(value, namespace);
    return value;
  });
}

function without(source: Json, keys: readonly string[]): Json {
  return Object.fromEntries(Object.entries(source).filter(([key]) => !keys.includes(key)));
}

function canonicalField(field: Json, namespace: string): Json {
  return ordered(field, FIELD, (key, value) => {
    if (key === 'type') return canonical(value, namespace);
    if (key === 'order' && value === 'ascending') return undefined;
    return value;
  });
}

/** @param json a schema that `parseAvro` accepted */
export function avroText(json: unknown): string {
  return JSON.stringify(canonical(json, ''));
}
