/** Writes the values of a program as Avro payloads, into the buffer of the payloads.
 *
 *  Each type is compiled once to a function. Values: int, float, double are a number, long a bigint
 *  or a safe integer, bytes and fixed a Uint8Array, an enum's symbol a string. Arrays are arrays,
 *  maps and records are objects; a union's value is plain or wrapped (branch.ts). A field with a
 *  default may be left out. Arrays and maps are one block. Source: Apache Avro 1.12 specification,
 *  "Binary Encoding".
 *
 *  A value that does not fit is refused: a number out of range or a fraction for an integer, a lone
 *  surrogate, a missing field, an object of another kind. A number for a float is rounded. */

import { type ObjectWriter, objectPut, type PropertyPut, type Put } from '../../binary/object-writer.ts';
import type { Encode } from '../../decode.ts';
import { isPlainObject } from '../../plain-object.ts';
import type { Sink } from '../../sink.ts';
import { ValueRefusal } from '../../value-refusal.ts';
import {
  type AvroField,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  avroTypeName,
} from '../syntax/tree.ts';
import { AVRO_PAYLOAD_DEPTH_MAX } from './cursor.ts';
import { unionPut, wordOf } from './union-encoder.ts';
import { writtenDefault } from './written-default.ts';

/** Writer of a type. It is set after the slots that refer to it exist, because types are recursive.
 */
export interface PutSlot {
  put: Put;
}

/** Makes the encoder of a schema. It throws value_refused with the detail `path`. */
export function avroEncoder(tree: AvroNode): Encode {
  const root = new Writers().compile(tree);
  const rootName = avroTypeName(tree);
  return (value, into) => {
    const { sink } = into;
    sink.open();
    try {
      root.put(sink, value);
    } catch (thrown) {
      sink.abandon();
      throw ValueRefusal.toError(rootName, thrown);
    }
    sink.close();
  };
}

/** One slot for each type. Types are queued in a list, because a chain of types may be longer than
 *  the stack is deep. */
class Writers {
  private readonly slots = new Map<AvroNode, PutSlot>();
  private readonly waiting: Array<() => void> = [];

  compile(tree: AvroNode): PutSlot {
    const root = this.slot(tree);
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop()) next();
    return root;
  }

  private slot(node: AvroNode): PutSlot {
    if (node.kind === 'primitive') return { put: PRIMITIVES[node.type] };
    const known = this.slots.get(node);
    if (known !== undefined) return known;
    const slot: PutSlot = { put: () => undefined };
    this.slots.set(node, slot);
    this.waiting.push(() => {
      slot.put = this.put(node, slot);
    });
    return slot;
  }

  private put(node: Exclude<AvroNode, { kind: 'primitive' }>, slot: PutSlot): Put {
    switch (node.kind) {
      case 'fixed':
        return (sink, value) => {
          if (!(value instanceof Uint8Array) || value.length !== node.size)
            throw ValueRefusal.of(value, `${wordOf(node)} of ${node.size} bytes`);
          sink.raw(value);
        };
      case 'enum': {
        const indexes = new Map(node.symbols.map((symbol, index) => [symbol as unknown, index]));
        return (sink, value) => {
          const index = indexes.get(value);
          if (index === undefined) throw ValueRefusal.of(value, wordOf(node));
          sink.zigzag(index);
        };
      }
      case 'union':
        return unionPut(
          node,
          node.branches.map((branch) => this.slot(branch)),
        );
      case 'array':
        return arrayPut(this.slot(node.items));
      case 'map':
        return mapPut(this.slot(node.values));
      case 'record':
        return this.record(node, slot);
    }
  }

  private record(node: AvroRecordNode, slot: PutSlot): Put {
    const writer: ObjectWriter = {
      names: node.fields.map(({ name }) => name),
      puts: node.fields.map((field) => fieldPut(field, this.slot(field.type))),
      type: wordOf(node),
      begin: enter,
      inside: ValueRefusal.inProperty,
    };
    return objectPut(writer, (put) => {
      slot.put = put;
    });
  }
}

function enter(sink: Sink): void {
  if (++sink.depth > AVRO_PAYLOAD_DEPTH_MAX)
    throw new ValueRefusal(`is nested deeper than ${AVRO_PAYLOAD_DEPTH_MAX} values`);
}

function arrayPut(items: PutSlot): Put {
  return (sink, value) => {
    if (!Array.isArray(value)) throw ValueRefusal.of(value, 'array');
    enter(sink);
    const { length } = value;
    if (length > 0) {
      sink.zigzagSafe(length);
      const { put } = items;
      let i = 0;
      try {
        for (; i < length; i++) put(sink, value[i]);
      } catch (thrown) {
        throw ValueRefusal.inItem(i, thrown);
      }
    }
    sink.byte(0);
    sink.depth--;
  };
}

function mapPut(values: PutSlot): Put {
  return (sink, value) => {
    if (!isPlainObject(value)) throw ValueRefusal.of(value, 'map');
    enter(sink);
    const keys = Object.keys(value);
    if (keys.length > 0) {
      sink.zigzagSafe(keys.length);
      let i = 0;
      try {
        for (; i < keys.length; i++) {
          const key = keys[i] as string;
          if (!sink.text(key, 1)) throw new ValueRefusal('has a key with a lone surrogate');
          values.put(sink, value[key]);
        }
      } catch (thrown) {
        throw ValueRefusal.inProperty(keys[i] as string, thrown);
      }
    }
    sink.byte(0);
    sink.depth--;
  };
}

function fieldPut(field: AvroField, slot: PutSlot): PropertyPut {
  const fill = writtenDefault(field);
  if (fill === null) return (sink, part) => slot.put(sink, part);
  return (sink, part) => {
    if (part === undefined) sink.raw(fill);
    else slot.put(sink, part);
  };
}

const PRIMITIVES: Readonly<Record<AvroPrimitive, Put>> = {
  null: (_sink, value) => {
    if (value !== null) throw ValueRefusal.of(value, 'null');
  },
  boolean: (sink, value) => {
    if (typeof value !== 'boolean') throw ValueRefusal.of(value, 'boolean');
    sink.byte(value ? 1 : 0);
  },
  int: (sink, value) => {
    if (typeof value !== 'number' || value !== (value | 0)) throw ValueRefusal.of(value, 'int');
    sink.zigzag(value);
  },
  long: (sink, value) => {
    if (typeof value === 'bigint' && BigInt.asIntN(64, value) === value) sink.zigzagWide(value);
    else if (Number.isSafeInteger(value)) sink.zigzagSafe(value as number);
    else throw ValueRefusal.ofWide(value, 'long');
  },
  float: (sink, value) => {
    if (typeof value !== 'number') throw ValueRefusal.of(value, 'float');
    sink.float(value);
  },
  double: (sink, value) => {
    if (typeof value !== 'number') throw ValueRefusal.of(value, 'double');
    sink.double(value);
  },
  bytes: (sink, value) => {
    if (!(value instanceof Uint8Array)) throw ValueRefusal.of(value, 'bytes');
    sink.zigzagSafe(value.length);
    sink.raw(value);
  },
  string: (sink, value) => {
    if (typeof value !== 'string') throw ValueRefusal.of(value, 'string');
    if (!sink.text(value, 1)) throw ValueRefusal.of(value, 'string, which cannot hold a lone surrogate');
  },
};
