/** Skips written values that the reader does not use, and checks them as if they were read. */
import type { AvroNode } from '../syntax/tree.ts';
import { type AvroCursor, Unreadable } from './cursor.ts';

/** Function that reads, or skips, one value at the cursor. It is set after the slots that refer to
 *  it exist, because types are recursive. */
export interface Slot {
  read: (from: AvroCursor) => unknown;
}

/** True when values of the type have no bytes. Records are excluded: they count themselves. */
export const takesNoByte = (node: AvroNode): boolean =>
  (node.kind === 'primitive' && node.type === 'null') || (node.kind === 'fixed' && node.size === 0);

const PRIMITIVE = {
  null: { read: () => null },
  boolean: { read: (from: AvroCursor) => from.boolean() },
  int: { read: (from: AvroCursor) => from.int() },
  long: { read: (from: AvroCursor) => from.longAsDouble() },
  float: { read: (from: AvroCursor) => from.skip(4) },
  double: { read: (from: AvroCursor) => from.skip(8) },
  bytes: { read: (from: AvroCursor) => from.skipBlob() },
  string: { read: (from: AvroCursor) => from.skipText() },
} as const;

/** One slot for each type. Types are queued in a list, because a chain of types may be longer than
 *  the stack is deep. */
export class Skips {
  private readonly slots = new Map<AvroNode, Slot>();
  private readonly waiting: Array<() => void>;

  /** @param waiting tasks that the caller must run before it reads */
  constructor(waiting: Array<() => void>) {
    this.waiting = waiting;
  }

  slot(node: AvroNode): Slot {
    if (node.kind === 'primitive') return PRIMITIVE[node.type];
    const known = this.slots.get(node);
    if (known !== undefined) return known;
    const slot: Slot = { read: () => undefined };
    this.slots.set(node, slot);
    this.waiting.push(() => {
      slot.read = this.compile(node);
    });
    return slot;
  }

  private compile(node: Exclude<AvroNode, { kind: 'primitive' }>): Slot['read'] {
    switch (node.kind) {
      case 'fixed':
        return (from) => from.skip(node.size);
      case 'enum':
        return (from) => from.index(node.symbols.length, 'symbol');
      case 'union': {
        const branches = node.branches.map((branch) => this.slot(branch));
        return (from) => branches[from.index(branches.length, 'branch')]?.read(from);
      }
      case 'array': {
        const items = this.slot(node.items);
        const isEmpty = takesNoByte(node.items);
        const item = (from: AvroCursor): unknown => items.read(from);
        return (from) => from.blocks('[]', isEmpty, undefined, item);
      }
      case 'map': {
        const values = this.slot(node.values);
        const entry = (from: AvroCursor): void => {
          from.skipText();
          values.read(from);
        };
        return (from) => from.blocks('{}', false, undefined, entry);
      }
      case 'record': {
        const names = node.fields.map((field) => field.name);
        const fields = node.fields.map((field) => this.slot(field.type));
        const nulls = node.fields.filter((field) => takesNoByte(field.type)).length;
        return (from) => {
          const begun = from.at;
          from.enter();
          let i = 0;
          try {
            for (; i < fields.length; i++) fields[i]?.read(from);
          } catch (thrown) {
            throw Unreadable.inside(`.${names[i]}`, thrown);
          }
          from.leaveRecord(begun, nulls);
        };
      }
    }
  }
}
