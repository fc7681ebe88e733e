/** Schema formats, and the limits that apply to any text before it is parsed. */

export const SCHEMA_FORMATS = ['AVRO', 'PROTOBUF', 'JSON'] as const;
export type SchemaFormat = (typeof SCHEMA_FORMATS)[number];

/** Greatest number of characters of a schema text; a larger text is refused before it is parsed. */
export const SCHEMA_TEXT_CHARS_MAX = 512 * 1024;
/** Greatest nesting of types; it bounds the recursion of every walk over a tree. Its name in
 *  messages is `schema-depth`. */
export const SCHEMA_DEPTH_MAX = 64;
/** Greatest number of nodes of one tree: types, fields, values, options. Its name in messages is
 *  `schema-nodes`. */
export const SCHEMA_NODES_MAX = 20_000;
/** Suffixes behind a count in a message; neither limit can be configured. */
export const DEPTH_LIMIT = '(the limit schema-depth)';
export const NODES_LIMIT = '(the limit schema-nodes)';

/** True for the name of a schema format: AVRO, PROTOBUF or JSON.
 *  @example
 *  if (!isSchemaFormat(type)) throw new Error(`${type} is not a schema type`);
 */
export function isSchemaFormat(text: string): text is SchemaFormat {
  return (SCHEMA_FORMATS as readonly string[]).includes(text);
}
