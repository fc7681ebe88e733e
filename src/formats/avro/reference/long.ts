/** Avro's long for avsc: a bigint, or a number that is a safe integer. Variable-length
 *  zigzag; values of at most 49 bits are computed exactly in doubles. */
import avsc from 'avsc';

const LONG_BYTES_MAX = 10;
const LEAST = -(2n ** 63n);
const MOST = 2n ** 63n - 1n;

const scratch = Buffer.alloc(LONG_BYTES_MAX);
/** One view for each length, over the same bytes: avsc copies them immediately. */
const views = Array.from({ length: LONG_BYTES_MAX + 1 }, (_, length) => scratch.subarray(0, length));

function encodeLong(value: bigint | number): Buffer {
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
    const wide = BigInt(value);
    let rest = BigInt.asUintN(64, (wide << 1n) ^ (wide >> 63n));
    while (rest >= 128n) {
      scratch[length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    scratch[length++] = Number(rest);
  }
  return views[length] as Buffer;
}

function decodeLong(bytes: Buffer): bigint {
  let bits = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) bits = (bits << 7n) | BigInt((bytes[i] as number) & 0x7f);
  return BigInt.asIntN(64, (bits >> 1n) ^ -(bits & 1n));
}

/** True when a long holds this value exactly. */
function isLong(value: unknown): boolean {
  if (typeof value === 'bigint') return value >= LEAST && value <= MOST;
  return Number.isSafeInteger(value);
}

const AVRO_LONG = avsc.types.LongType.__with(
  {
    fromBuffer: decodeLong,
    toBuffer: encodeLong,
    fromJSON: (value: number | string) => BigInt(value),
    // avsc keeps defaults as JSON; digits are not rounded.
    toJSON: (value: bigint) => (Number.isSafeInteger(Number(value)) ? Number(value) : String(value)),
    isValid: isLong,
    compare: (a: bigint, b: bigint) => (a === b ? 0 : a < b ? -1 : 1),
  },
  true,
);

/** avsc's `typeHook`: replaces avsc's long by ours. */
export function avroTypeHook(part: unknown): avsc.Type | undefined {
  const name = typeof part === 'string' ? part : (part as { type?: unknown } | null)?.type;
  return name === 'long' ? AVRO_LONG : undefined;
}
