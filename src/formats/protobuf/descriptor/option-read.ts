/** Converts the bytes of an options message to statements. Fields that no import defines are
 *  dropped. */

import { allExtensions, type LinkedField, type LinkedMessage } from '../link/model.ts';
import type { ProtoLink } from '../link/resolve.ts';
import type { OptionEntry, OptionNode, OptionValue } from '../syntax/ast.ts';
import { readFields, readVarints, type WireField } from './bytes.ts';
import { floatText } from './float.ts';

const AT = { line: 1, column: 1 };
const DEPTH_MAX = 64;

export class OptionDecoder {
  private readonly link: ProtoLink;
  /** Extensions by extended message and number. */
  private readonly extensions = new Map<string, LinkedField>();

  constructor(link: ProtoLink) {
    this.link = link;
    for (const file of [...link.files.values(), link.root]) {
      for (const extension of allExtensions(file)) {
        this.extensions.set(`${extension.extendee?.name} ${extension.number}`, extension);
      }
    }
  }

  /** Reads options. @param of name of the options message without `google.protobuf.` and `Options`
   */
  read(of: string, bytes: Buffer): OptionNode[] {
    const message = this.link.optionsMessage(`google.protobuf.${of}Options`);
    if (message === undefined) return [];
    return this.values(message, bytes, DEPTH_MAX).flatMap(([field, values]) =>
      values.map((value): OptionNode => {
        const extension = field.extendeeName !== undefined;
        const name = [{ name: extension ? field.fullName : field.name, extension }];
        return { kind: 'option', name, value, at: AT };
      }),
    );
  }

  /** Fields with their values, in the order of the bytes. A single field has its last value; its
   *  messages are merged. */
  private values(message: LinkedMessage, bytes: Buffer, depth: number): Array<[LinkedField, OptionValue[]]> {
    const byField = new Map<LinkedField, WireField[]>();
    for (const wire of (depth > 0 ? readFields(bytes) : undefined) ?? []) {
      const field =
        message.fields.find(({ number }) => number === wire.number) ??
        this.extensions.get(`${message.name} ${wire.number}`);
      if (field === undefined) continue;
      const held = byField.get(field);
      if (held === undefined) byField.set(field, [wire]);
      else held.push(wire);
    }
    return [...byField].map(([field, wires]) => {
      const { target } = field;
      if (target?.kind === 'message') {
        const contents = wires.flatMap(({ wire, bytes: content }) =>
          wire === 2 || wire === 3 ? [content] : [],
        );
        const whole = field.label === 'repeated' ? contents : [Buffer.concat(contents)];
        return [field, whole.map((content) => this.aggregate(target, content, depth - 1))];
      }
      const values = wires.flatMap((wire) => scalarValues(field, wire));
      return [field, field.label === 'repeated' ? values : values.slice(-1)];
    });
  }

  private aggregate(message: LinkedMessage, bytes: Buffer, depth: number): OptionValue {
    const entries = this.values(message, bytes, depth).flatMap(([field, values]): OptionEntry[] => {
      const key =
        field.extendeeName !== undefined
          ? `[${field.fullName}]`
          : field.type === 'group'
            ? field.node.type
            : field.name;
      return values.map((value) => ({ key, value, at: AT }));
    });
    return { kind: 'message', entries };
  }
}

/** One value, or several of a packed field; none for another wire type. */
function scalarValues(field: LinkedField, { wire, value, bytes }: WireField): OptionValue[] {
  const { type } = field;
  if (type === 'string' || type === 'bytes') return wire === 2 ? [{ kind: 'string', bytes }] : [];
  const fixed =
    type === 'double' || type.endsWith('fixed64') ? 8 : type === 'float' || type.endsWith('fixed32') ? 4 : 0;
  if (wire === 2) {
    const run: bigint[] = [];
    if (fixed === 0) run.push(...(readVarints(bytes) ?? []));
    else {
      for (let at = 0; at + fixed <= bytes.length; at += fixed) {
        run.push(fixed === 8 ? bytes.readBigUInt64LE(at) : BigInt(bytes.readUInt32LE(at)));
      }
    }
    return run.map((one) => scalarValue(field, one));
  }
  return wire === (fixed === 8 ? 1 : fixed === 4 ? 5 : 0) ? [scalarValue(field, value)] : [];
}

function scalarValue({ type, target }: LinkedField, value: bigint): OptionValue {
  if (target?.kind === 'enum') {
    const number = Number(BigInt.asIntN(32, value));
    const name = target.node.values.find((one) => one.number === number)?.name;
    return name === undefined ? { kind: 'number', text: String(number) } : { kind: 'word', text: name };
  }
  if (type === 'bool') return { kind: 'word', text: value === 0n ? 'false' : 'true' };
  if (type === 'float' || type === 'double') {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(value);
    const text = floatText(type === 'float' ? bytes.readFloatLE() : bytes.readDoubleLE(), type);
    return /inf|nan/.test(text) ? { kind: 'word', text } : { kind: 'number', text };
  }
  const bits = type.endsWith('32') ? 32 : 64;
  if (type.startsWith('sint')) {
    const word = BigInt.asUintN(bits, value);
    return { kind: 'number', text: String(word % 2n === 0n ? word / 2n : -(word + 1n) / 2n) };
  }
  const signed = type.startsWith('int') || type.startsWith('sfixed');
  return { kind: 'number', text: String(signed ? BigInt.asIntN(bits, value) : BigInt.asUintN(bits, value)) };
}
