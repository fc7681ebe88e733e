/** Reads a Protobuf payload field by field until it ends or cannot be read further. */

import { ProtoInput, WIRE, WireFault } from '../protobuf/codec/input.ts';
import { scalarOf } from '../protobuf/codec/scalar.ts';
import type { ProtoField, ProtoMessage } from '../protobuf/tree.ts';
import type { PrefixFields } from './fields.ts';

/** @param message type that the payload was written with
 *  @returns byte of the payload where reading failed; undefined where it did not */
export function protoPrefix(
  message: ProtoMessage,
  bytes: Buffer,
  start: number,
  end: number,
  fields: PrefixFields,
): number | undefined {
  const input = new ProtoInput();
  input.open(bytes, start, end);
  const walk = new Walk(input, fields);
  try {
    fields.collect(() => walk.message(message, ''));
    return undefined;
  } catch (thrown) {
    if (!(thrown instanceof WireFault)) throw thrown;
    return thrown.at;
  }
}

/** The input limits the nesting. */
class Walk {
  private readonly input: ProtoInput;
  private readonly fields: PrefixFields;
  private readonly numbers = new Map<ProtoMessage, ReadonlyMap<number, ProtoField>>();
  /** Occurrences of repeated fields, by path. */
  private readonly counts = new Map<string, number>();

  constructor(input: ProtoInput, fields: PrefixFields) {
    this.input = input;
    this.fields = fields;
  }

  /** Reads up to the input's limit, or up to the end of the group. */
  message(message: ProtoMessage, path: string, group?: number): void {
    const { input } = this;
    const fields = this.fieldsOf(message);
    while (group !== undefined || input.at < input.limit) {
      this.fields.visit();
      const from = input.at;
      const tag = input.tag();
      if (group !== undefined && tag === ((group << 3) | WIRE.END) >>> 0) return;
      const field = fields.get(tag >>> 3);
      if (field === undefined || !this.field(field, tag & 7, path)) input.skip(tag, from);
    }
  }

  private fieldsOf(message: ProtoMessage): ReadonlyMap<number, ProtoField> {
    const known = this.numbers.get(message);
    if (known !== undefined) return known;
    const made = new Map(message.fields.map((field) => [field.number, field]));
    this.numbers.set(message, made);
    return made;
  }

  /** False: a field of another wire type, which is an unknown field. */
  private field(field: ProtoField, wire: number, outer: string): boolean {
    const { input } = this;
    const path = outer === '' ? field.name : `${outer}.${field.name}`;
    if (field.mapKey !== undefined) {
      if (wire !== WIRE.LENGTH) return false;
      this.inside(() => this.entry(field, field.mapKey as string, path));
      return true;
    }
    if (field.message !== undefined) {
      if (field.message.unknown || wire !== (field.delimited ? WIRE.GROUP : WIRE.LENGTH)) return false;
      const { message } = field;
      const at = this.place(field, path);
      if (wire === WIRE.LENGTH) this.inside(() => this.message(message, at));
      else {
        input.descend();
        this.message(message, at, field.number);
        input.ascend();
      }
      return true;
    }
    const scalar = scalarOf(field.enumeration === undefined ? field.type : 'int32');
    if (wire === scalar.wire) this.add(field, this.place(field, path), scalar.read(input));
    else if (wire === WIRE.LENGTH && field.repeated) {
      const limit = input.enter();
      while (input.at < input.limit) this.add(field, this.place(field, path), scalar.read(input));
      input.leave(limit);
    } else return false;
    return true;
  }

  /** Reads a message behind its length. */
  private inside(read: () => void): void {
    const { input } = this;
    input.descend();
    const limit = input.enter();
    read();
    input.leave(limit);
    input.ascend();
  }

  private entry(field: ProtoField, mapKey: string, path: string): void {
    const { input } = this;
    const key = scalarOf(mapKey);
    let at = `${path}[${JSON.stringify(String(key.zero))}]`;
    while (input.at < input.limit) {
      const from = input.at;
      const tag = input.tag();
      const isKey = tag === ((1 << 3) | key.wire);
      if (isKey) at = `${path}[${JSON.stringify(String(key.read(input)))}]`;
      else if (tag >>> 3 !== 2 || !this.value(field, tag & 7, at)) input.skip(tag, from);
    }
  }

  /** Reads the value of a map entry. */
  private value(field: ProtoField, wire: number, at: string): boolean {
    const { message } = field;
    if (message !== undefined) {
      if (message.unknown || wire !== WIRE.LENGTH) return false;
      this.inside(() => this.message(message, at));
      return true;
    }
    const scalar = scalarOf(field.enumeration === undefined ? field.type : 'int32');
    if (wire !== scalar.wire) return false;
    this.add(field, at, scalar.read(this.input));
    return true;
  }

  private add({ enumeration }: ProtoField, at: string, value: unknown): void {
    this.fields.add(at, enumeration?.values.get(value as number) ?? value);
  }

  private place({ repeated }: ProtoField, path: string): string {
    if (!repeated) return path;
    const index = this.counts.get(path) ?? 0;
    this.counts.set(path, index + 1);
    return `${path}[${index}]`;
  }
}
