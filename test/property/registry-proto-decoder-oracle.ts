/** protobufjs as an oracle: decodes bytes by a schema's text into the form of our decoder. */
import protobuf from 'protobufjs';
import type { ProtoField, ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import { zeroOf } from './registry-proto-decoder-kit.ts';

export type Plain = Record<string, unknown>;

export const typeOf = (text: string, name = 'p.M0'): protobuf.Type => {
  const { root } = protobuf.parse(text, { keepCase: true });
  root.resolveAll();
  return root.lookupType(name);
};

const wide = (type: string, value: unknown): bigint => {
  const { low, high } = value as { low: number; high: number };
  const words = (BigInt(high) << 32n) | BigInt(low >>> 0);
  return type === 'uint64' || type === 'fixed64' ? BigInt.asUintN(64, words) : BigInt.asIntN(64, words);
};

/** Converts a value of protobufjs to the form of our decoder. */
export function plainFrom(message: ProtoMessage, read: Plain): Plain {
  const value = (field: ProtoField, one: unknown): unknown => {
    if (field.message !== undefined) return plainFrom(field.message, one as Plain);
    if (field.enumeration !== undefined) return field.enumeration.values.get(one as number) ?? one;
    return field.type.endsWith('64') ? wide(field.type, one) : one;
  };
  const key = (type: string, hash: string): string =>
    type.endsWith('64')
      ? String(wide(type, protobuf.util.longFromHash(hash, type === 'uint64' || type === 'fixed64')))
      : hash;
  const out: Plain = {};
  for (const field of message.fields) {
    const name = field.name.replace(/^\[(.*)\]$/, '.$1');
    const given = Object.hasOwn(read, name) ? read[name] : undefined;
    if (field.mapKey !== undefined) {
      const map = Object.create(null) as Plain;
      for (const [hash, one] of Object.entries((given ?? {}) as Plain))
        map[key(field.mapKey, hash)] = value(field, one);
      out[field.name] = map;
    } else if (field.repeated) out[field.name] = ((given ?? []) as unknown[]).map((one) => value(field, one));
    else if (given !== undefined) out[field.name] = value(field, given);
    else out[field.name] = field.presence || field.required ? null : zeroOf(field);
  }
  return out;
}
