/** Types of an Avro schema: the values that its decoder returns and its encoder accepts.
 *
 *  Logical types are those of the types that they annotate, because the codec does not convert
 *  them. Source of the forms: codec/decoder.ts, codec/branch.ts, codec/number-union.ts. */

import { branchKey, isWrapped } from '../avro/codec/branch.ts';
import { isOmittable } from '../avro/codec/written-default.ts';
import type {
  AvroField,
  AvroNamedNode,
  AvroNode,
  AvroPrimitive,
  AvroUnionNode,
} from '../avro/syntax/tree.ts';
import {
  BIGINT,
  BOOLEAN,
  BUFFER,
  BYTES_INPUT,
  type Declaration,
  literal,
  NULL,
  NUMBER,
  type Property,
  type Shape,
  STRING,
  type TsType,
  type TypeModel,
  UNDEFINED,
  union,
} from './model.ts';

type Side = 'output' | 'input';

/** Name of the type of a schema that has no name itself. */
const ROOT_NAME = 'Value';

const PRIMITIVES: Readonly<Record<AvroPrimitive, TsType>> = {
  null: NULL,
  boolean: BOOLEAN,
  int: NUMBER,
  long: BIGINT,
  float: NUMBER,
  double: NUMBER,
  bytes: BUFFER,
  string: STRING,
};
/** Types that a serializer accepts, where they are not those that a deserializer returns. */
const INPUTS: Partial<Record<AvroPrimitive, TsType>> = {
  long: union(BIGINT, NUMBER),
  bytes: BYTES_INPUT,
};
const NUMBERS = ['int', 'long', 'float', 'double'];

/** Types of a schema, that of the schema itself first. */
export function avroTypes(tree: AvroNode): TypeModel {
  return new Builder().model(tree);
}

class Builder {
  private readonly known = new Map<AvroNamedNode, Declaration>();
  /** Queue of types whose shapes are still to be made: a chain of types may be longer than the
   *  stack is deep. */
  private readonly open: AvroNamedNode[] = [];

  model(tree: AvroNode): TypeModel {
    const root = isNamed(tree) ? [] : [declarationOf(ROOT_NAME, undefined)];
    const outputs = this.type(tree, 'output');
    const inputs = this.type(tree, 'input');
    for (const one of root) {
      one.output = { kind: 'alias', type: outputs };
      one.input = { kind: 'alias', type: inputs };
    }
    for (const node of this.open) {
      const declaration = this.known.get(node) as Declaration;
      declaration.output = this.shape(node, 'output');
      declaration.input = this.shape(node, 'input');
    }
    return { declarations: [...root, ...this.known.values()] };
  }

  private declared(node: AvroNamedNode): Declaration {
    const held = this.known.get(node);
    if (held !== undefined) return held;
    const doc = node.kind === 'fixed' ? fixedDoc(node.doc, node.size) : node.doc;
    const made = declarationOf(node.name, doc);
    this.known.set(node, made);
    this.open.push(node);
    return made;
  }

  private shape(node: AvroNamedNode, side: Side): Shape {
    if (node.kind === 'fixed') return { kind: 'alias', type: side === 'input' ? BYTES_INPUT : BUFFER };
    if (node.kind === 'enum') return { kind: 'alias', type: union(...node.symbols.map(literal)) };
    return { kind: 'object', properties: node.fields.map((field) => this.property(field, side)), oneofs: [] };
  }

  private property(field: AvroField, side: Side): Property {
    const { name, doc } = field;
    const type = this.type(field.type, side);
    return side === 'input' && isOmittable(field)
      ? { name, doc, type: union(type, UNDEFINED), optional: true }
      : { name, doc, type };
  }

  private type(node: AvroNode, side: Side): TsType {
    switch (node.kind) {
      case 'primitive':
        return (side === 'input' ? INPUTS[node.type] : undefined) ?? PRIMITIVES[node.type];
      case 'array':
        return { kind: 'list', item: this.type(node.items, side), readonly: side === 'input' };
      case 'map':
        return { kind: 'map', value: this.type(node.values, side) };
      case 'union':
        return this.union(node, side);
      default:
        return { kind: 'ref', to: this.declared(node) };
    }
  }

  private union(node: AvroUnionNode, side: Side): TsType {
    const isNull = (branch: AvroNode): boolean => branch.kind === 'primitive' && branch.type === 'null';
    const choice = (branches: readonly AvroNode[]): TsType => {
      const members = new Map<string, TsType>();
      // Names of other registries may be equal once they are escaped.
      for (const branch of branches) {
        const key = branchKey(branch);
        const type = this.type(branch, side);
        members.set(key, union(...[members.get(key) ?? []].flat(), type));
      }
      return { kind: 'choice', members: [...members].map(([name, type]) => ({ name, type })) };
    };
    if (isWrapped(node)) {
      const wrapped = choice(node.branches.filter((branch) => !isNull(branch)));
      return union(wrapped, ...(node.branches.some(isNull) ? [NULL] : []));
    }
    const plain = node.branches.map((branch) => this.type(branch, side));
    const numbers = node.branches.filter((one) => one.kind === 'primitive' && NUMBERS.includes(one.type));
    // The encoder accepts a number with the name of its branch where there are several.
    return side === 'input' && numbers.length > 1 ? union(...plain, choice(numbers)) : union(...plain);
  }
}

const isNamed = (node: AvroNode): node is AvroNamedNode =>
  node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed';

const EMPTY: Shape = { kind: 'object', properties: [], oneofs: [] };

function declarationOf(fullName: string, doc: string | undefined): Declaration {
  const shortName = fullName.slice(fullName.lastIndexOf('.') + 1);
  return { fullName, shortName, doc, output: EMPTY, input: EMPTY };
}

const fixedDoc = (doc: string | undefined, size: number): string =>
  [...(doc === undefined ? [] : [doc]), `${size} ${size === 1 ? 'byte' : 'bytes'}.`].join('\n');
