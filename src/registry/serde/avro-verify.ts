/** Walks an Avro payload by its writer's schema before anything is decoded from it.
 *
 *  The decoder behind it trusts counts and lengths, so hostile bytes are bounded here: every length inside the span,
 *  every index in range, every text UTF-8, nothing left over. Source: Apache Avro 1.11 specification, "Binary Encoding".
 */
import { isUtf8 } from 'node:buffer';
import type { AvroNode, AvroPrimitive } from '../schemas/avro-tree.ts';
import { malformed } from './decode.ts';

/** Values inside values. */
const PAYLOAD_DEPTH_MAX = 256;
/** Items that take no byte each (null, an empty record) a payload may hold. */
const EMPTY_ITEMS_MAX = 65_536;

interface Cursor {
  bytes: Buffer;
  at: number;
  end: number;
  depth: number;
  emptyItems: number;
}

type Step = (cursor: Cursor) => void;

/** Returns nothing when `bytes[start, end)` is one value of the type. @throws malformed_payload */
export type VerifyAvro = (bytes: Buffer, start: number, end: number) => void;

export function compileAvroVerify(tree: AvroNode): VerifyAvro {
  const step = new Compiler().compile(tree);
  const cursor: Cursor = { bytes: Buffer.alloc(0), at: 0, end: 0, depth: 0, emptyItems: 0 };
  return (bytes, start, end) => {
    cursor.bytes = bytes;
    cursor.at = start;
    cursor.end = end;
    cursor.depth = 0;
    cursor.emptyItems = 0;
    step(cursor);
    if (cursor.at !== end) throw malformed(`${end - cursor.at} bytes are left over behind the value`);
  };
}

function cut(): Error {
  return malformed('the payload ends inside a value');
}

/** A zigzag integer of at most `most` bytes; beyond 2^53 the result is rounded, which no bound here minds. */
function varint(cursor: Cursor, most: number): number {
  let value = 0;
  let scale = 1;
  for (let i = 0; i < most; i++) {
    if (cursor.at >= cursor.end) throw cut();
    const byte = cursor.bytes[cursor.at++] as number;
    // Bits beyond the 64th, or the 32nd, belong to no integer.
    if (i === most - 1 && byte > (most === 10 ? 1 : 15)) break;
    value += (byte & 0x7f) * scale;
    if (byte < 128) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    scale *= 128;
  }
  throw malformed('an integer is too long');
}

function skip(cursor: Cursor, count: number): void {
  if (count < 0 || count > cursor.end - cursor.at) throw cut();
  cursor.at += count;
}

function text(cursor: Cursor): void {
  const length = varint(cursor, 10);
  const from = cursor.at;
  skip(cursor, length);
  const { bytes, at } = cursor;
  for (let i = from; i < at; i++) {
    if ((bytes[i] as number) < 128) continue;
    if (!isUtf8(bytes.subarray(i, at))) throw malformed('a text is not UTF-8');
    return;
  }
}

const PRIMITIVE: Readonly<Record<AvroPrimitive, Step>> = {
  null: () => {},
  boolean: (cursor) => {
    if (cursor.at >= cursor.end) throw cut();
    if ((cursor.bytes[cursor.at++] as number) > 1) throw malformed('a boolean is neither 0 nor 1');
  },
  int: (cursor) => {
    varint(cursor, 5);
  },
  long: (cursor) => {
    varint(cursor, 10);
  },
  float: (cursor) => skip(cursor, 4),
  double: (cursor) => skip(cursor, 8),
  bytes: (cursor) => skip(cursor, varint(cursor, 10)),
  string: text,
};

/** Compiles each type once; a recursive one refers to itself. */
class Compiler {
  private readonly done = new Map<AvroNode, Step>();

  compile(node: AvroNode): Step {
    if (node.kind === 'primitive') return PRIMITIVE[node.type];
    const known = this.done.get(node);
    if (known !== undefined) return known;
    let made: Step | undefined;
    this.done.set(node, (cursor) => (made as Step)(cursor));
    made = this.make(node);
    this.done.set(node, made);
    return made;
  }

  private make(node: Exclude<AvroNode, { kind: 'primitive' }>): Step {
    switch (node.kind) {
      case 'record': {
        const fields = node.fields.map((field) => this.compile(field.type));
        const { name } = node;
        return (cursor) => {
          if (++cursor.depth > PAYLOAD_DEPTH_MAX)
            throw malformed(`${name} is nested deeper than ${PAYLOAD_DEPTH_MAX} values`);
          for (let i = 0; i < fields.length; i++) (fields[i] as Step)(cursor);
          cursor.depth--;
        };
      }
      case 'enum': {
        const count = node.symbols.length;
        return (cursor) => {
          const index = varint(cursor, 5);
          if (index < 0 || index >= count) throw malformed(`${node.name} has no symbol ${index}`);
        };
      }
      case 'fixed':
        return (cursor) => skip(cursor, node.size);
      case 'union': {
        const branches = node.branches.map((branch) => this.compile(branch));
        return (cursor) => {
          const index = varint(cursor, 10);
          const branch = branches[index];
          if (branch === undefined) throw malformed(`a union has no branch ${index}`);
          branch(cursor);
        };
      }
      case 'array':
        return blocks(this.compile(node.items));
      case 'map': {
        const value = this.compile(node.values);
        return blocks((cursor) => {
          text(cursor);
          value(cursor);
        });
      }
    }
  }
}

/** Blocks of items: a count, or a negative count and the bytes of the block; a count of 0 ends them. */
function blocks(item: Step): Step {
  return (cursor) => {
    if (++cursor.depth > PAYLOAD_DEPTH_MAX)
      throw malformed(`arrays and maps are nested deeper than ${PAYLOAD_DEPTH_MAX} values`);
    for (let count = varint(cursor, 10); count !== 0; count = varint(cursor, 10)) {
      const bytes = count < 0 ? varint(cursor, 10) : undefined;
      const from = cursor.at;
      for (let left = Math.abs(count); left > 0; left--) {
        const before = cursor.at;
        item(cursor);
        if (cursor.at === before && ++cursor.emptyItems > EMPTY_ITEMS_MAX)
          throw malformed(`more than ${EMPTY_ITEMS_MAX} items take no byte`);
      }
      if (bytes !== undefined && cursor.at - from !== bytes)
        throw malformed('a block says another length than it has');
    }
    cursor.depth--;
  };
}
