/** An Avro schema as a tree of resolved types.
 *
 *  Invariant: a named type is one object, however often it is used, so recursion is a cycle of
 *  objects. Source: Apache Avro 1.12 specification, "Schema Declaration". */
import type { JsonNode } from '../../json/text.ts';

export const AVRO_PRIMITIVES = [
  'null',
  'boolean',
  'int',
  'long',
  'float',
  'double',
  'bytes',
  'string',
] as const;
export type AvroPrimitive = (typeof AVRO_PRIMITIVES)[number];

export interface AvroLogical {
  readonly logicalType: string;
  readonly precision?: number;
  readonly scale?: number;
}

interface Node {
  /** Absent where the specification requires that an invalid annotation is ignored. */
  readonly logical?: AvroLogical;
  /** Position in its text, in UTF-16 units. */
  readonly at: number;
  /** Name of the reference whose text contains the type; absent: the schema's own text. */
  readonly from?: string;
}
export interface AvroPrimitiveNode extends Node {
  readonly kind: 'primitive';
  readonly type: AvroPrimitive;
}
export interface AvroField {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly type: AvroNode;
  readonly doc?: string;
  readonly hasDefault: boolean;
  readonly defaultJson: JsonNode | undefined;
  readonly at: number;
}
export interface AvroRecordNode extends Node {
  readonly kind: 'record';
  /** Full name. */
  readonly name: string;
  /** Full names. */
  readonly aliases: readonly string[];
  readonly doc?: string;
  readonly fields: AvroField[];
}
export interface AvroEnumNode extends Node {
  readonly kind: 'enum';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly doc?: string;
  readonly symbols: readonly string[];
  readonly defaultSymbol: string | undefined;
}
export interface AvroFixedNode extends Node {
  readonly kind: 'fixed';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly doc?: string;
  readonly size: number;
}
export interface AvroArrayNode extends Node {
  readonly kind: 'array';
  readonly items: AvroNode;
}
export interface AvroMapNode extends Node {
  readonly kind: 'map';
  readonly values: AvroNode;
}
export interface AvroUnionNode extends Node {
  readonly kind: 'union';
  readonly branches: readonly AvroNode[];
}
export type AvroNamedNode = AvroRecordNode | AvroEnumNode | AvroFixedNode;
export type AvroNode = AvroPrimitiveNode | AvroNamedNode | AvroArrayNode | AvroMapNode | AvroUnionNode;

export const isAvroPrimitive = (name: string): name is AvroPrimitive =>
  (AVRO_PRIMITIVES as readonly string[]).includes(name);

/** Name that distinguishes the branches of a union, and names a type in messages. */
export function avroTypeName(node: AvroNode): string {
  if (node.kind === 'primitive') return node.type;
  if (node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed') return node.name;
  return node.kind;
}
