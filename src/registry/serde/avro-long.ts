/** Avro's long as bigint, for avsc. Variable-length zigzag; what fits 49 bits goes through a double, exactly.
 *
 *  avsc reads a long as a float or double through its zigzag form, which loses the sign bit beyond 2^52; so these two
 *  types read it as a bigint first.
 */
import avsc from 'avsc';

const LONG_BYTES_MAX = 10;
const LEAST = -(2n ** 63n);
const MOST = 2n ** 63n - 1n;
/** Bytes whose 7-bit groups a double adds up exactly. */
const EXACT_BYTES = 7;

/** @param bytes a whole variable-length integer */
function decodeLong(bytes: Uint8Array): bigint {
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

const AVRO_LONG = avsc.types.LongType.__with(
  {
    fromBuffer: decodeLong,
    toBuffer: encodeLong,
    fromJSON: (value: number | string) => BigInt(value),
    // avsc keeps defaults as JSON; digits are what does not round.
    toJSON: (value: bigint) => (Number.isSafeInteger(Number(value)) ? Number(value) : String(value)),
    isValid: (value: unknown) => typeof value === 'bigint' && value >= LEAST && value <= MOST,
    compare: (a: bigint, b: bigint) => (a === b ? 0 : a < b ? -1 : 1),
  },
  true,
);

/** The parts of avsc's types that its declarations leave out. */
interface Readable {
  _read?: (tap: unknown) => unknown;
}
type Update = (this: unknown, resolver: Readable, writer: avsc.Type) => void;

function readsLongs<T extends avsc.Type>(type: T): T {
  const update = (type as unknown as { _update: Update })._update;
  const own: Update = (resolver, writer) => {
    if (writer !== (AVRO_LONG as avsc.Type)) update.call(type, resolver, writer);
    else resolver._read = (tap) => Number((AVRO_LONG as Readable)._read?.call(AVRO_LONG, tap));
  };
  // avsc freezes its types, so the change is made in one that inherits from it.
  return Object.freeze(Object.create(type, { _update: { value: own } })) as T;
}

const AVRO_FLOAT = readsLongs(avsc.Type.forSchema('float'));
const AVRO_DOUBLE = readsLongs(avsc.Type.forSchema('double'));

/** avsc's `typeHook`: our number types in place of its own. */
export function avroTypeHook(part: unknown): avsc.Type | undefined {
  const name = typeof part === 'string' ? part : (part as { type?: unknown } | null)?.type;
  if (name === 'long') return AVRO_LONG;
  if (name === 'float') return AVRO_FLOAT;
  return name === 'double' ? AVRO_DOUBLE : undefined;
}
