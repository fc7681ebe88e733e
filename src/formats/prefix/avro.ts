/** Reads an Avro payload field by field until it ends or cannot be read further. */

import { AvroCursor, Unreadable } from '../avro/codec/cursor.ts';
import { takesNoByte } from '../avro/codec/skip.ts';
import type { AvroNode, AvroPrimitive } from '../avro/syntax/tree.ts';
import type { PrefixFields } from './fields.ts';

const PRIMITIVES: Readonly<Record<AvroPrimitive, (from: AvroCursor) => unknown>> = {
  null: () => null,
  boolean: (from) => from.boolean(),
  int: (from) => from.int(),
  long: (from) => from.long(),
  float: (from) => from.float(),
  double: (from) => from.double(),
  bytes: (from) => from.blob(),
  string: (from) => from.text(),
};

/** @param writer schema that the payload was written with
 *  @returns byte of the payload where reading failed; undefined where it did not */
export function avroPrefix(
  writer: AvroNode,
  bytes: Buffer,
  start: number,
  end: number,
  fields: PrefixFields,
): number | undefined {
  const from = new AvroCursor();
  from.open(bytes, start, end);
  try {
    fields.collect(() => {
      read(writer, from, '', fields);
      from.close();
    });
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof Unreadable)) throw thrown;
    return thrown.at - start;
  }
}

/** The cursor limits the nesting. */
function read(node: AvroNode, from: AvroCursor, path: string, fields: PrefixFields): void {
  fields.visit();
  switch (node.kind) {
    case 'primitive':
      fields.add(path, PRIMITIVES[node.type](from));
      break;
    case 'fixed':
      fields.add(path, from.fixed(node.size));
      break;
    case 'enum':
      fields.add(path, node.symbols[from.index(node.symbols.length, 'symbol')]);
      break;
    case 'union': {
      const branch = node.branches[from.index(node.branches.length, 'branch')];
      read(branch as AvroNode, from, path, fields);
      break;
    }
    case 'array': {
      let index = 0;
      from.blocks('[]', takesNoByte(node.items), undefined, () => {
        read(node.items, from, `${path}[${index++}]`, fields);
      });
      break;
    }
    case 'map':
      from.blocks('{}', false, undefined, () => {
        read(node.values, from, `${path}[${JSON.stringify(from.text())}]`, fields);
      });
      break;
    case 'record': {
      const begun = from.at;
      from.enter();
      for (const { name, type } of node.fields)
        read(type, from, path === '' ? name : `${path}.${name}`, fields);
      from.leaveRecord(begun, node.fields.filter(({ type }) => takesNoByte(type)).length);
    }
  }
}
