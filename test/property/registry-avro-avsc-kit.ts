/** avsc as an oracle for reading and writing, with longs as bigint. */
import avsc from 'avsc';

/** Converts longs from and to their zigzag bytes. */
const LONG = avsc.types.LongType.__with(
  {
    fromBuffer: (bytes: Uint8Array) => {
      let value = 0n;
      bytes.forEach((byte, i) => {
        value |= BigInt(byte & 0x7f) << BigInt(7 * i);
      });
      return (value >> 1n) ^ -(value & 1n);
    },
    toBuffer: (value: bigint) => {
      const bytes: number[] = [];
      let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
      for (; rest > 0x7fn; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
      return Buffer.from([...bytes, Number(rest)]);
    },
    fromJSON: BigInt,
    toJSON: String,
    isValid: (value: unknown) => typeof value === 'bigint',
    compare: () => 0,
  },
  true,
);
/** Type of avsc; undefined for a schema that avsc refuses although it is valid, such as a string as
 *  default of a float. */
export function avscOf(text: string): avsc.Type | undefined {
  try {
    return avsc.Type.forSchema(
      JSON.parse(text) as avsc.Schema,
      {
        omitRecordMethods: true,
        typeHook: (part: unknown) =>
          (typeof part === 'string' ? part : (part as { type?: unknown }).type) === 'long' ? LONG : undefined,
      } as Parameters<typeof avsc.Type.forSchema>[1],
    );
  } catch (thrown) {
    if (/field default/.test((thrown as Error).message)) return undefined;
    throw thrown;
  }
}
