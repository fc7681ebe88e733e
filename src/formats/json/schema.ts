/** JSON Schema in the registry: any JSON document that can be a schema, stored without its white
 *  space.
 *
 *  A schema is an object or a boolean whose keywords have valid values (shape.ts). The normalized
 *  text has the keys of all its objects sorted. Numbers keep their digits, as the existing
 *  registries write them. Source: json-schema-provider/.../jackson/Jackson.java of
 *  confluentinc/schema-registry, for facts. */
import { formatError } from '../errors.ts';
import { SCHEMA_TEXT_CHARS_MAX } from '../format.ts';
import type { ParseOptions } from '../options.ts';
import { checkJsonSchemaShape } from './shape.ts';
import { type JsonNode, JsonTextError, positionOf, printDecimal, printJson, readJson } from './text.ts';

/** Parses a JSON Schema. @throws invalid_schema, schema_too_large */
export function parseJsonSchema(
  source: string,
  options: ParseOptions,
): { readonly text: string; readonly tree: JsonNode } {
  const lenient = options.lenient ?? false;
  if (!lenient && source.length > SCHEMA_TEXT_CHARS_MAX) {
    throw formatError(
      'schema_too_large',
      `the schema has ${source.length} characters; the most is ${SCHEMA_TEXT_CHARS_MAX}`,
    );
  }
  try {
    const json = readJson(source, { comments: false, repeatedKeys: lenient });
    if (json.kind !== 'object' && json.kind !== 'boolean')
      throw new JsonTextError('it is neither an object nor a boolean', json.at);
    if (!lenient) checkJsonSchemaShape(json);
    const text = printJson(json, options.normalize, printDecimal);
    return { text: text === source ? source : text, tree: json };
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    const { line, column } = positionOf(source, thrown.at);
    throw formatError(
      'invalid_schema',
      `invalid JSON schema: ${thrown.message}, at line ${line}, column ${column}`,
      { next: 'correct the schema', details: { line, column }, cause: thrown },
    );
  }
}
