/** Finder of JSON fields in TypeScript; the addon's implementation is
 *  native/kernel/json/fields.cc. */
import {
  type FoundFields,
  JSON_VALUE,
  type JsonFinder,
  type JsonKernels,
} from '../../../core/json/finder.ts';
import { demandInteger, demandRows } from '../check.ts';
import { JsonScanner } from './scan.ts';

const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
/** Digits of the greatest i64. */
const DIGITS_MAX = 19;

/** Value of a JSON number that is written as digits and is an i64 other than -0. */
function plainInteger(bytes: Uint8Array, start: number, end: number): bigint | undefined {
  const isNegative = bytes[start] === MINUS;
  const first = isNegative ? start + 1 : start;
  if (end - first > DIGITS_MAX) return undefined;
  for (let at = first; at < end; at++)
    if ((bytes[at] as number) < DIGIT_0 || (bytes[at] as number) > DIGIT_9) return undefined;
  const value = BigInt(Buffer.from(bytes.subarray(start, end)).toString('latin1'));
  return BigInt.asIntN(64, value) !== value || (isNegative && value === 0n) ? undefined : value;
}

function fillRow(scanner: JsonScanner, bytes: Uint8Array, row: number, into: FoundFields): void {
  for (let field = 0; field < into.fields; field++) {
    const cell = row * into.fields + field;
    const [start, end] = [scanner.start[field] as number, scanner.end[field] as number];
    const kind = scanner.kind[field] as number;
    into.kind[cell] = kind;
    if (kind === JSON_VALUE.MISSING) continue;
    into.start[cell] = start;
    into.end[cell] = end;
    const integer = kind === JSON_VALUE.NUMBER ? plainInteger(bytes, start, end) : undefined;
    if (integer === undefined) continue;
    into.kind[cell] = JSON_VALUE.INTEGER;
    into.integer[cell] = integer;
  }
}

function openFinder(paths: ReadonlyArray<readonly string[]>): JsonFinder {
  const scanner = new JsonScanner(paths);
  return {
    find({ bytes, start, length }, from, to, into) {
      demandInteger(to, from, Math.min(start.length, length.length), 'to');
      demandRows(into.rowCapacity, to - from, 'into');
      for (let at = from; at < to; at++)
        if ((length[at] as number) > 0)
          demandInteger((start[at] as number) + (length[at] as number), 0, bytes.length, 'payloads');
      for (let at = from; at < to; at++) {
        const first = start[at] as number;
        const size = length[at] as number;
        const isDocument = size > 0 && scanner.scan(bytes, first, first + size);
        into.isDocument[at - from] = isDocument ? 1 : 0;
        if (isDocument) fillRow(scanner, bytes, at - from, into);
      }
    },
    close() {},
  };
}

export const referenceJsonKernels: JsonKernels = { name: 'reference', openFinder };
