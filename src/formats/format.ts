/** The schema formats and the limits that hold for any text before it is parsed. */

export const SCHEMA_FORMATS = ['AVRO', 'PROTOBUF', 'JSON'] as const;
export type SchemaFormat = (typeof SCHEMA_FORMATS)[number];

/** Characters of a schema text; a larger one is refused before it is parsed. */
export const SCHEMA_TEXT_CHARS_MAX = 512 * 1024;
/** Types inside types; bounds the recursion of every walk over a tree. Its name in messages is `schema-depth`. */
export const SCHEMA_DEPTH_MAX = 64;
/** Nodes of one tree: types, fields, values, options. Its name in messages is `schema-nodes`. */
export const SCHEMA_NODES_MAX = 20_000;
/** What stands behind a count in a message; neither can be set. */
export const DEPTH_LIMIT = '(the limit schema-depth)';
export const NODES_LIMIT = '(the limit schema-nodes)';

export function isSchemaFormat(text: string): text is SchemaFormat {
  return (SCHEMA_FORMATS as readonly string[]).includes(text);
}
