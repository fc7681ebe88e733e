/** Avro's long as bigint, for avsc. Variable-length zigzag; what fits 49 bits goes through a double, exactly. */
import avsc from 'avsc';

const LONG_BYTES_MAX = 10;
const LEAST = -(2n ** 63n);
const MOST = 2n ** 63n - 1n;
/** Bytes whose 7-bit groups a double adds up exactly. */
const EXACT_BYTES = 7;

/** @param bytes a whole variable-length integer */
export function decodeLong(bytes: Uint8Array): bigint {
  if (bytes.length <= EXACT_BYTES) {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < bytes.length; i++) {
      value += ((bytes[i] as number) & 0x7f) * scale;
      scale *= 128;
    }
    return BigInt(value % 2 === 0 ? value / 2 : -(value + 1) / 2);
  }
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) value = (value << 7n) | BigInt((bytes[i] as number) & 0x7f);
  return (value >> 1n) ^ -(value & 1n);
}

const scratch = Buffer.alloc(LONG_BYTES_MAX);
/** One view a length, over the same bytes: avsc copies at once. */
const views = Array.from({ length: LONG_BYTES_MAX + 1 }, (_, length) => scratch.subarray(0, length));

function encodeLong(value: bigint): Buffer {
  let length = 0;
  if (value >= -0x1_0000_0000_0000n && value <= 0x1_0000_0000_0000n) {
    const number = Number(value);
    let rest = number >= 0 ? number * 2 : -number * 2 - 1;
    while (rest >= 128) {
      scratch[length++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    scratch[length++] = rest;
  } else {
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    while (rest >= 128n) {
      scratch[length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    scratch[length++] = Number(rest);
  }
  return views[length] as Buffer;
}

export const AVRO_LONG = avsc.types.LongType.__with(
  {
    fromBuffer: decodeLong,
    toBuffer: encodeLong,
    fromJSON: (value: number | string) => BigInt(value),
    toJSON: (value: bigint) => Number(value),
    isValid: (value: unknown) => typeof value === 'bigint' && value >= LEAST && value <= MOST,
    compare: (a: bigint, b: bigint) => (a === b ? 0 : a < b ? -1 : 1),
  },
  true,
);
