/** Skips written values that the reader does not use, and checks them as if they were read. */
import type { AvroNode, AvroPrimitive, AvroRecordNode } from '../syntax/tree.ts';
import type { AvroCursor } from './cursor.ts';
import { expression, FUNCTION, type Slot } from './form.ts';
import { recordReader } from './record-reader.ts';

/** True when values of the type have no bytes. Records are excluded: they count themselves. */
export const takesNoByte = (node: AvroNode): boolean =>
  (node.kind === 'primitive' && node.type === 'null') || (node.kind === 'fixed' && node.size === 0);

const PRIMITIVE: Readonly<Record<AvroPrimitive, Slot>> = {
  null: { read: () => null, form: expression('null') },
  boolean: { read: (from) => from.boolean(), form: expression('from.boolean()') },
  int: { read: (from) => from.int(), form: expression('from.int()') },
  long: { read: (from) => from.longAsDouble(), form: expression('from.longAsDouble()') },
  float: { read: (from) => from.skip(4), form: expression('from.skip(4)') },
  double: { read: (from) => from.skip(8), form: expression('from.skip(8)') },
  bytes: { read: (from) => from.skipBlob(), form: expression('from.skipBlob()') },
  string: { read: (from) => from.skipText(), form: expression('from.skipText()') },
};

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
    const slot: Slot = { read: () => undefined, form: FUNCTION };
    this.slots.set(node, slot);
    this.waiting.push(() => {
      Object.assign(slot, this.compile(node));
    });
    return slot;
  }

  private compile(node: Exclude<AvroNode, { kind: 'primitive' }>): Slot {
    switch (node.kind) {
      case 'fixed':
        return { read: (from) => from.skip(node.size), form: expression(`from.skip(${node.size})`) };
      case 'enum': {
        const { length } = node.symbols;
        return {
          read: (from) => from.index(length, 'symbol'),
          form: expression(`from.index(${length}, 'symbol')`),
        };
      }
      case 'union': {
        const branches = node.branches.map((branch) => this.slot(branch));
        return {
          read: (from) => branches[from.index(branches.length, 'branch')]?.read(from),
          form: { kind: 'union', branches },
        };
      }
      case 'array': {
        const items = this.slot(node.items);
        const isEmpty = takesNoByte(node.items);
        const item = (from: AvroCursor): unknown => items.read(from);
        return {
          read: (from) => from.blocks('[]', isEmpty, undefined, item),
          form: { kind: 'array', items, isEmpty, keeps: false },
        };
      }
      case 'map': {
        const values = this.slot(node.values);
        const entry = (from: AvroCursor): void => {
          from.skipText();
          values.read(from);
        };
        return {
          read: (from) => from.blocks('{}', false, undefined, entry),
          form: { kind: 'map', values, keeps: false },
        };
      }
      case 'record':
        return this.record(node);
    }
  }

  private record(node: AvroRecordNode): Slot {
    const written = node.fields.map(({ name, type }) => ({ name, into: undefined, slot: this.slot(type) }));
    const nulls = node.fields.filter((field) => takesNoByte(field.type)).length;
    const parts = { written, names: [], constants: new Map(), makers: new Map(), nulls };
    return { read: recordReader(parts), form: { kind: 'record', parts } };
  }
}
