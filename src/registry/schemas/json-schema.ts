/** JSON Schema as the registry takes it: any JSON document that can be a schema, kept without its white space.
 *
 *  It is stored and served, never judged: a schema is an object or a boolean, and nothing more is asked of it.
 */
import { registryError } from '../errors.ts';
import { SCHEMA_TEXT_CHARS_MAX } from './format.ts';

/** @throws invalid_schema, schema_too_large */
export function parseJsonSchema(source: string): string {
  if (source.length > SCHEMA_TEXT_CHARS_MAX) {
    throw registryError(
      'schema_too_large',
      `the schema has ${source.length} characters; the most is ${SCHEMA_TEXT_CHARS_MAX}`,
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(source);
  } catch (cause) {
    throw registryError('invalid_schema', `invalid JSON schema: ${(cause as Error).message}`, { cause });
  }
  if (typeof value !== 'boolean' && (typeof value !== 'object' || value === null || Array.isArray(value)))
    throw registryError('invalid_schema', 'invalid JSON schema: it is neither an object nor a boolean');
  return JSON.stringify(value);
}
