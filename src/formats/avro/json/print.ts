/** Prints decoded Avro values as JSON in Avro's JSON encoding: longs keep all digits, bytes and
 *  fixed are texts of U+0000 to U+00FF, an enum's symbol is a string. A union's value is plain
 *  where its JSON type identifies the branch, and names its branch elsewhere. Source: Apache Avro
 *  1.12 specification, "JSON Encoding". */
import { doubleText, floatText } from '../../json/number.ts';
import { branchKey, isWrapped } from '../codec/branch.ts';
import { type AvroNode, type AvroPrimitive, type AvroUnionNode, avroTypeName } from '../syntax/tree.ts';
import { BranchNames, lookOf } from './union.ts';

export interface AvroJsonOptions {
  /** True: every union names its branch, as Avro's JSON encoding requires. */
  readonly namedUnions?: boolean;
}

type Print = (value: never) => string;
type Values = Readonly<Record<string, never>>;

const bytesText = (value: Uint8Array): string =>
  JSON.stringify(Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('latin1'));

const PRIMITIVES: Readonly<Record<AvroPrimitive, (value: never) => string>> = {
  null: () => 'null',
  boolean: String,
  int: String,
  long: String,
  float: floatText,
  double: doubleText,
  bytes: bytesText,
  string: (value) => JSON.stringify(value),
};

/** Makes the printer of a schema's decoded values (see codec/decoder.ts for their form). */
export function avroJsonPrinter(root: AvroNode, options: AvroJsonOptions = {}): (value: unknown) => string {
  return new Printers(options).of(root) as (value: unknown) => string;
}

class Printers {
  private readonly options: AvroJsonOptions;
  private readonly printers = new Map<AvroNode, Print>();

  constructor(options: AvroJsonOptions) {
    this.options = options;
  }

  of(node: AvroNode): Print {
    const known = this.printers.get(node);
    if (known !== undefined) return known;
    // A recursive type finds this function while its own printer is made.
    let made: Print | undefined;
    this.printers.set(node, (value) => (made as Print)(value));
    made = this.make(node);
    this.printers.set(node, made);
    return made;
  }

  private make(node: AvroNode): Print {
    switch (node.kind) {
      case 'primitive':
        return PRIMITIVES[node.type];
      case 'fixed':
        return bytesText;
      case 'enum':
        return (value) => JSON.stringify(value);
      case 'array': {
        const item = this.of(node.items);
        return (values: readonly never[]) => `[${values.map((value) => item(value)).join(',')}]`;
      }
      case 'map': {
        const print = this.of(node.values);
        return (values: Values) => {
          const entries = Object.keys(values).map(
            (key) => `${JSON.stringify(key)}:${print(values[key] as never)}`,
          );
          return `{${entries.join(',')}}`;
        };
      }
      case 'record': {
        const fields = node.fields.map(({ name, type }) => {
          return { name, key: `${JSON.stringify(name)}:`, print: this.of(type) };
        });
        return (values: Values) => {
          const members = fields.map(({ name, key, print }) => key + print(values[name] as never));
          return `{${members.join(',')}}`;
        };
      }
      case 'union':
        return this.union(node);
    }
  }

  private union(union: AvroUnionNode): Print {
    const names = new BranchNames(union);
    const isNamed = this.options.namedUnions === true || names.isAmbiguous;
    const hasText = union.branches.some((branch) => lookOf(branch) === 'string');
    const choose = chooser(union);
    const branches = union.branches.map((branch) => {
      return { key: JSON.stringify(avroTypeName(branch)), look: lookOf(branch), print: this.of(branch) };
    });
    return (value: unknown) => {
      if (value === null) return 'null';
      const chosen = choose(value);
      const { key, look, print } = branches[chosen.index] as (typeof branches)[number];
      const text = print(chosen.value as never);
      const isPlain =
        !isNamed &&
        // NaN is printed as a string.
        !(hasText && look === 'number' && text.startsWith('"')) &&
        !(look === 'object' && looksNamed(chosen.value, names));
      return isPlain ? text : `{${key}:${text}}`;
    };
  }
}

/** True for an object that a reader would take for a value with the name of its branch. */
function looksNamed(value: unknown, names: BranchNames): boolean {
  const [key, more] = Object.keys(value as object);
  return key !== undefined && more === undefined && names.indexOf(key) !== undefined;
}

interface ChosenBranch {
  readonly index: number;
  readonly value: unknown;
}

/** Returns a function that finds the branch of a decoded value. */
function chooser(union: AvroUnionNode): (value: unknown) => ChosenBranch {
  const { branches } = union;
  const indexOf = (isIt: (branch: AvroNode) => boolean): number => branches.findIndex(isIt);
  const primitive = (...types: readonly AvroPrimitive[]): number =>
    indexOf((branch) => branch.kind === 'primitive' && types.includes(branch.type));
  const byKey = new Map(branches.map((branch, index) => [branchKey(branch), index]));
  const byType: Readonly<Record<string, number>> = {
    boolean: primitive('boolean'),
    bigint: primitive('long'),
    string: indexOf((branch) => lookOf(branch) === 'string' && branch.kind !== 'fixed' && !isBytes(branch)),
  };
  const int = primitive('int');
  const float = primitive('float');
  const double = primitive('double');
  const bytes = indexOf((branch) => branch.kind === 'fixed' || isBytes(branch));
  const array = indexOf((branch) => branch.kind === 'array');
  const object = indexOf((branch) => branch.kind === 'record' || branch.kind === 'map');
  const numberAt = (value: number): number => {
    const isInt = value === (value | 0) && !Object.is(value, -0);
    if (int >= 0 && isInt) return int;
    if (float >= 0 && (double < 0 || Object.is(Math.fround(value), value))) return float;
    return double >= 0 ? double : int;
  };
  const wrapped = isWrapped(union);
  return (value) => {
    if (wrapped) {
      const [key] = Object.keys(value as object);
      return { index: byKey.get(key as string) ?? 0, value: (value as Values)[key as string] };
    }
    if (typeof value === 'number') return { index: numberAt(value), value };
    if (typeof value === 'object') {
      const index = value instanceof Uint8Array ? bytes : Array.isArray(value) ? array : object;
      return { index, value };
    }
    return { index: byType[typeof value] ?? 0, value };
  };
}

const isBytes = (branch: AvroNode): boolean => branch.kind === 'primitive' && branch.type === 'bytes';
