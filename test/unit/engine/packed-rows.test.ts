/** Rows of checkpoints without their zero lines. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  packedBytesMax,
  packRows,
  unpackRows,
} from '../../../src/engine/durability/checkpoint/packed-rows.ts';

const LINE = 64;

const tables = fc
  .record({
    lines: fc.integer({ min: 1, max: 70 }),
    rows: fc.array(fc.array(fc.nat(69), { maxLength: 6 }), { maxLength: 8 }),
  })
  .map(({ lines, rows }) => {
    const bytes = new Uint8Array(rows.length * lines * LINE);
    rows.forEach((filled, row) => {
      for (const line of filled)
        if (line < lines)
          bytes.fill(line + 1, (row * lines + line) * LINE + 63, (row * lines + line + 1) * LINE);
    });
    return { bytes, count: rows.length, rowBytes: lines * LINE };
  });

const packedOf = (bytes: Uint8Array, count: number, rowBytes: number): Uint8Array => {
  const into = new Uint8Array(3 + packedBytesMax(count, rowBytes)).fill(255);
  return into.subarray(3, packRows(bytes, count, rowBytes, into, 3));
};

describe('packed rows', () => {
  it('unpack to the same rows, and take no byte for a zero line', () => {
    fc.assert(
      fc.property(tables, ({ bytes, count, rowBytes }) => {
        const packed = packedOf(bytes, count, rowBytes);
        expect(unpackRows(packed, count, rowBytes)).toEqual(bytes);
        let filled = 0;
        for (let at = 0; at < bytes.length; at += LINE)
          if (bytes.subarray(at, at + LINE).some((byte) => byte !== 0)) filled++;
        expect(packed.length).toBe(count * Math.ceil(rowBytes / LINE / 8) + filled * LINE);
      }),
    );
  });

  it('bytes of another length, or with a line that no row has, are refused', () => {
    const bytes = new Uint8Array(9 * LINE).fill(1);
    const packed = packedOf(bytes, 3, 3 * LINE);
    expect(unpackRows(packed.subarray(0, -1), 3, 3 * LINE)).toBeUndefined();
    expect(unpackRows(Uint8Array.of(...packed, 0), 3, 3 * LINE)).toBeUndefined();
    expect(unpackRows(packed.subarray(0, 0), 1, 3 * LINE)).toBeUndefined();
    expect(unpackRows(packed, 2, 3 * LINE)).toBeUndefined();
    const changed = packed.slice();
    changed[0] = 0b1011;
    expect(unpackRows(changed, 3, 3 * LINE)).toBeUndefined();
  });
});
