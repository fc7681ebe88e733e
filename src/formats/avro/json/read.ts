/** Reads JSON as a value of an Avro schema, in Avro's JSON encoding and in the form that people
 *  write: a union's value may name its branch or be plain, and a field with a default may be
 *  absent.
 *
 *  Numbers are read from their digits, so longs are exact. A plain value of a union belongs to the
 *  first branch that it fits, an integer to the narrowest one; a number with a fraction or an
 *  exponent to float if the float is exact, else to double. Source: Apache Avro 1.12 specification,
 *  "JSON Encoding". */
import type { AvroDatum } from '../../datum.ts';
import { Misread, memberStep, misread } from '../../json/misread.ts';
import { exactInteger } from '../../json/number.ts';
import type { JsonNode, JsonNumber } from '../../json/text.ts';
import { defaultBranch, FILL_DEPTH_MAX, floatOfText, misfitOf } from '../syntax/default.ts';
import {
  type AvroField,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from '../syntax/tree.ts';
import { BranchNames, lookOf } from './union.ts';

/** Most values that are visited for one JSON document. A plain value of nested unions is tried with
 *  each branch, and the tries multiply. */
const VISITS_MAX = 1_000_000;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the range of a byte begins with them
const isLatin1 = (text: string): boolean => !/[^\u0000-\u00ff]/.test(text);
const LONE_SURROGATE = /\p{Surrogate}/u;
const INT_BITS = 32;
const LONG_BITS = 64;
const LONG_DIGITS = /^-?[0-9]{1,19}$/;
const FLOAT_WORDS = new Set(['NaN', 'Infinity', '-Infinity']);

/** Makes the reader of a schema. It throws value_refused with the detail `path`. */
export function avroJsonReader(root: AvroNode): (json: JsonNode) => AvroDatum {
  const reader = new Reader();
  const name = avroTypeName(root).replace(/^.*\./s, '');
  return (json) => {
    try {
      return reader.read(json, root);
    } catch (thrown) {
      throw thrown instanceof Misread ? thrown.toError(name) : thrown;
    }
  };
}

const NO_DEFAULT = Symbol('no default');

class Reader {
  private readonly names = new WeakMap<AvroUnionNode, BranchNames>();
  private readonly defaults = new WeakMap<AvroField, AvroDatum | typeof NO_DEFAULT>();
  private readonly fields = new WeakMap<AvroRecordNode, ReadonlySet<string>>();
  private visits = 0;

  read(json: JsonNode, root: AvroNode): AvroDatum {
    this.visits = 0;
    return this.value(json, root);
  }

  /** @param fill depth inside a default, whose unions follow another rule; absent elsewhere */
  private value(json: JsonNode, type: AvroNode, fill?: number): AvroDatum {
    if (++this.visits > VISITS_MAX)
      throw new Misread(`it has more than ${VISITS_MAX} ways to read it; name the branches of its unions`);
    if (fill !== undefined && fill > FILL_DEPTH_MAX) throw new Misread('the default has no end');
    switch (type.kind) {
      case 'primitive':
        return primitive(json, type.type);
      case 'fixed': {
        const isIt = json.kind === 'string' && json.value.length === type.size && isLatin1(json.value);
        if (!isIt) throw misread(json, `${type.size} bytes, as a text of U+0000 to U+00FF`);
        return Buffer.from(json.value, 'latin1');
      }
      case 'enum':
        if (json.kind !== 'string' || !type.symbols.includes(json.value))
          throw misread(json, `a symbol of ${type.name}`);
        return json.value;
      case 'array':
        if (json.kind !== 'array') throw misread(json, 'an array');
        return json.items.map((item, index) =>
          inside(`[${index}]`, () => this.value(item, type.items, deeper(fill))),
        );
      case 'map':
        return this.map(json, type.values, fill);
      case 'record':
        return this.record(json, type, fill);
      case 'union':
        return fill === undefined ? this.union(json, type) : this.defaultUnion(json, type, fill);
    }
  }

  private map(json: JsonNode, values: AvroNode, fill: number | undefined): AvroDatum {
    if (json.kind !== 'object') throw misread(json, 'a map');
    const entries = new Map<string, AvroDatum>();
    for (const [key, { value }] of json.members) {
      if (LONE_SURROGATE.test(key)) throw new Misread('a key holds half of a surrogate pair');
      entries.set(
        key,
        inside(memberStep(key), () => this.value(value, values, deeper(fill))),
      );
    }
    return entries;
  }

  private record(json: JsonNode, type: AvroRecordNode, fill: number | undefined): AvroDatum {
    if (json.kind !== 'object') throw misread(json, `a record ${type.name}`);
    const known = this.fields.get(type) ?? new Set(type.fields.map(({ name }) => name));
    this.fields.set(type, known);
    for (const name of json.members.keys())
      if (!known.has(name) && fill === undefined)
        throw Misread.inside(memberStep(name), new Misread(`${type.name} has no such field`));
    const fields = type.fields.map((field) => {
      const member = json.members.get(field.name);
      return inside(memberStep(field.name), () =>
        member === undefined
          ? this.defaultOf(field, type, fill ?? 0)
          : this.value(member.value, field.type, deeper(fill)),
      );
    });
    return { fields };
  }

  private defaultOf(field: AvroField, type: AvroRecordNode, fill: number): AvroDatum {
    const held = this.defaults.get(field) ?? this.makeDefault(field, fill);
    this.defaults.set(field, held);
    if (held === NO_DEFAULT) throw new Misread(`the field of ${type.name} is missing, and has no default`);
    return held;
  }

  private makeDefault({ type, defaultJson }: AvroField, fill: number): AvroDatum | typeof NO_DEFAULT {
    if (defaultJson === undefined || misfitOf(defaultJson, type) !== undefined) return NO_DEFAULT;
    if (defaultJson.kind === 'string' && type.kind === 'primitive') {
      const number = floatOfText(defaultJson.value);
      if (number !== undefined && type.type === 'float') return Math.fround(number);
      if (number !== undefined && type.type === 'double') return number;
    }
    return this.value(defaultJson, type, fill + 1);
  }

  private defaultUnion(json: JsonNode, type: AvroUnionNode, fill: number): AvroDatum {
    const branch = defaultBranch(json, type) ?? 0;
    return { branch, value: this.value(json, type.branches[branch] as AvroNode, fill + 1) };
  }

  private union(json: JsonNode, type: AvroUnionNode): AvroDatum {
    const names = this.names.get(type) ?? new BranchNames(type);
    this.names.set(type, names);
    let refused: unknown;
    if (json.kind === 'object' && json.members.size === 1) {
      const [[key, { value }]] = json.members as unknown as [[string, { readonly value: JsonNode }]];
      const branch = names.indexOf(key);
      if (branch !== undefined) {
        try {
          return { branch, value: this.value(value, type.branches[branch] as AvroNode) };
        } catch (thrown) {
          if (this.visits > VISITS_MAX) throw thrown;
          refused = Misread.inside(memberStep(key), thrown);
        }
      }
    }
    for (const branch of plainBranches(json, type)) {
      try {
        return { branch, value: this.value(json, type.branches[branch] as AvroNode) };
      } catch (thrown) {
        if (!(thrown instanceof Misread) || this.visits > VISITS_MAX) throw thrown;
        // The error of the branch that was read furthest is the most useful one.
        if (refused === undefined || thrown.depth > (refused as Misread).depth) refused = thrown;
      }
    }
    throw refused ?? misread(json, `one of ${type.branches.map(avroTypeName).join(', ')}`);
  }
}

/** Branches that a plain value may belong to, in the order in which they are tried. */
function plainBranches(json: JsonNode, { branches }: AvroUnionNode): readonly number[] {
  const all = branches.map((_branch, index) => index);
  const rankOf = (index: number): number => {
    const branch = branches[index] as AvroNode;
    const look = lookOf(branch);
    if (json.kind === 'number') return look === 'number' ? numberRank(json, branch) : -1;
    if (json.kind !== 'string') return look === json.kind ? 1 : -1;
    if (look === 'string') return branch.kind === 'primitive' && branch.type === 'string' ? 1 : 2;
    return look === 'number' ? 3 : -1;
  };
  const ranked = all.map((index) => [index, rankOf(index)] as const).filter(([, rank]) => rank >= 0);
  return ranked.sort(([, a], [, b]) => a - b).map(([index]) => index);
}

const INTEGER_ORDER: readonly string[] = ['int', 'long', 'float', 'double'];
const FRACTION_ORDER: readonly string[] = ['float', 'double', 'int', 'long'];

function numberRank({ digits }: JsonNumber, branch: AvroNode): number {
  const isFraction = /[.eE]/.test(digits);
  const type = avroTypeName(branch);
  const value = Number(digits);
  const isRounded = type === 'float' && !Object.is(Math.fround(value), value);
  const order = isFraction ? FRACTION_ORDER : INTEGER_ORDER;
  return order.indexOf(type) + (isRounded ? order.length : 0);
}

const deeper = (fill: number | undefined): number | undefined => (fill === undefined ? undefined : fill + 1);

function inside<T>(step: string, read: () => T): T {
  try {
    return read();
  } catch (thrown) {
    throw Misread.inside(step, thrown);
  }
}

function integer(json: JsonNode, bits: number, wanted: string): bigint {
  const isText = json.kind === 'string' && bits === LONG_BITS && LONG_DIGITS.test(json.value);
  const value = json.kind === 'number' ? exactInteger(json.digits) : isText ? BigInt(json.value) : undefined;
  if (value === undefined || BigInt.asIntN(bits, value) !== value) throw misread(json, wanted);
  return value;
}

function real(json: JsonNode, wanted: string): number {
  if (json.kind === 'string' && FLOAT_WORDS.has(json.value)) return Number(json.value);
  const value = json.kind === 'number' ? Number(json.digits) : Number.NaN;
  if (!Number.isFinite(value)) throw misread(json, wanted);
  return value;
}

function primitive(json: JsonNode, type: AvroPrimitive): AvroDatum {
  switch (type) {
    case 'null':
      if (json.kind !== 'null') throw misread(json, 'null');
      return null;
    case 'boolean':
      if (json.kind !== 'boolean') throw misread(json, 'a boolean');
      return json.value;
    case 'int':
      return Number(integer(json, INT_BITS, 'an int'));
    case 'long':
      return integer(json, LONG_BITS, 'a long');
    case 'double':
      return real(json, 'a double');
    case 'float': {
      const value = real(json, 'a float');
      const float = Math.fround(value);
      if (Number.isFinite(value) && !Number.isFinite(float)) throw misread(json, 'a float');
      return float;
    }
    case 'bytes':
      if (json.kind !== 'string' || !isLatin1(json.value))
        throw misread(json, 'bytes, as a text of U+0000 to U+00FF');
      return Buffer.from(json.value, 'latin1');
    case 'string':
      if (json.kind !== 'string') throw misread(json, 'a string');
      if (LONE_SURROGATE.test(json.value)) throw new Misread('a string holds half of a surrogate pair');
      return json.value;
  }
}
