/** Reader of a record with code of its own: the fields are read in a straight line and become one
 *  object literal.
 *
 *  A loop over the fields shares its call sites with every record of the process, so the engine can
 *  neither inline the readers nor predict the shape of the object; generated code is several times
 *  faster. Names enter the code as JSON strings only, so no schema can add code. */
import { type AvroCursor, Unreadable } from './cursor.ts';
import type { Slot } from './skip.ts';

/** Field in the order of the writer. */
export interface WrittenField {
  readonly name: string;
  /** Field of the value; undefined: the written value is dropped. */
  readonly into: string | undefined;
  readonly slot: Slot;
}

/** Parts of a record's reader, which both forms share. */
export interface RecordParts {
  readonly written: readonly WrittenField[];
  /** Names of the value's fields in the reader's order. */
  readonly names: readonly string[];
  /** Values of fields that the writer lacks, the same for every record. */
  readonly constants: ReadonlyMap<string, unknown>;
  /** Makers of values of such fields, where each record has its own. */
  readonly makers: ReadonlyMap<string, () => unknown>;
  /** Number of written fields that never have bytes. */
  readonly nulls: number;
}

type ReadRecord = (from: AvroCursor) => unknown;

/** Greatest number of fields, written and returned together, of a record with code of its own. */
const GENERATED_FIELDS_MAX = 200;
/** Number of records after which code is generated: making it takes about as long as so many reads,
 *  and most pairs of schemas that are compared read only a few records. */
const GENERATED_AFTER_READS = 200;

/** Compiles the reader of a record.
 *  @param replace called with a faster reader of the same values when enough records were read */
export function recordReader(parts: RecordParts, replace: (read: ReadRecord) => void): ReadRecord {
  const read = looping(parts);
  if (parts.written.length + parts.names.length > GENERATED_FIELDS_MAX) return read;
  let reads = 0;
  return (from) => {
    if (++reads === GENERATED_AFTER_READS) replace(generated(parts) ?? read);
    return read(from);
  };
}

function define(into: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(into, key, { value, writable: true, enumerable: true, configurable: true });
}

function looping({ written, names, constants, makers, nulls }: RecordParts): ReadRecord {
  // The blank record has every field from the start, in the reader's order, so that assignments by
  // name are safe.
  const blank: Record<string, unknown> = {};
  for (const name of names) define(blank, name, constants.get(name));
  return (from) => {
    const begun = from.at;
    from.enter();
    const value: Record<string, unknown> = { ...blank };
    let i = 0;
    try {
      for (; i < written.length; i++) {
        const { into, slot } = written[i] as WrittenField;
        if (into === undefined) slot.read(from);
        else value[into] = slot.read(from);
      }
    } catch (thrown) {
      throw Unreadable.inside(`.${written[i]?.name}`, thrown);
    }
    for (const [into, make] of makers) value[into] = make();
    from.leaveRecord(begun, nulls);
    return value;
  };
}

/** Undefined: the process was started without code generation from strings. */
function generated({ written, names, constants, makers, nulls }: RecordParts): ReadRecord | undefined {
  const inputs: Record<string, unknown> = {
    nulls,
    inside: (at: number, thrown: unknown) => Unreadable.inside(`.${written[at]?.name}`, thrown),
  };
  const sources = new Map<string, string>();
  const add = (name: string, prefix: string, values: ReadonlyMap<string, unknown>, call: string): void => {
    inputs[`${prefix}${sources.size}`] = values.get(name);
    sources.set(name, `${prefix}${sources.size}${call}`);
  };
  const reads = written.map(({ into, slot }, index) => {
    inputs[`slot${index}`] = slot;
    if (into === undefined) return `at = ${index}; slot${index}.read(from);`;
    sources.set(into, `value${index}`);
    return `at = ${index}; const value${index} = slot${index}.read(from);`;
  });
  for (const name of makers.keys()) add(name, 'make', makers, '()');
  for (const name of constants.keys()) add(name, 'constant', constants, '');
  const members = names.map((name) => {
    const key = JSON.stringify(name);
    // The literal key `__proto__` would set the prototype.
    return `${name === '__proto__' ? `[${key}]` : key}: ${sources.get(name)}`;
  });
  const body = `'use strict';
return (from) => {
  const begun = from.at;
  from.enter();
  let at = 0;
  let record;
  try {
    ${reads.join('\n    ')}
    record = { ${members.join(', ')} };
  } catch (thrown) {
    throw inside(at, thrown);
  }
  from.leaveRecord(begun, nulls);
  return record;
};`;
  try {
    const make = new Function(...Object.keys(inputs), body) as (...inputs: unknown[]) => ReadRecord;
    return make(...Object.values(inputs));
  } catch (thrown) {
    if (thrown instanceof EvalError) return undefined;
    throw thrown;
  }
}
