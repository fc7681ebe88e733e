/** Random Avro schemas as objects that can be copied, changed and printed. All randomness comes
 *  from a seed. */

export interface Primitive {
  kind: 'primitive';
  type: string;
  logical: string | undefined;
  precision?: number;
  scale?: number;
}
export interface Field {
  name: string;
  aliases: string[];
  type: Type;
  /** Default; undefined if there is none. */
  value: Json | undefined;
}
interface Named {
  name: string;
  namespace: string;
  aliases: string[];
}
export interface RecordType extends Named {
  kind: 'record';
  fields: Field[];
}
export interface EnumType extends Named {
  kind: 'enum';
  symbols: string[];
  fallback: string | undefined;
}
export interface FixedType extends Named {
  kind: 'fixed';
  size: number;
}
export interface ArrayType {
  kind: 'array';
  items: Type;
}
export interface MapType {
  kind: 'map';
  values: Type;
}
export interface UnionType {
  kind: 'union';
  branches: Type[];
}
export type NamedType = RecordType | EnumType | FixedType;
export type Type = Primitive | NamedType | ArrayType | MapType | UnionType;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'] as const;
export const LOGICAL: ReadonlyArray<readonly [type: string, logical: string]> = [
  ['int', 'date'],
  ['int', 'time-millis'],
  ['long', 'timestamp-millis'],
  ['long', 'timestamp-micros'],
  ['string', 'uuid'],
];
const NAMESPACES = ['', 'a', 'b.c'] as const;
/** Maximum nesting of random types, and their maximum number. */
const DEPTH_MAX = 5;
const TYPES_MAX = 14;

/** Pseudo-random numbers from a seed (splitmix32). */
export class Chance {
  private state: number;

  constructor(seed: number) {
    this.state = seed | 0;
  }

  /** Next number in [0, 1). */
  readonly next = (): number => {
    this.state = (this.state + 0x9e3779b9) | 0;
    let mixed = this.state ^ (this.state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 4_294_967_296;
  };

  below(most: number): number {
    return Math.floor(this.next() * most);
  }

  maybe(share: number): boolean {
    return this.next() < share;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}

export const primitive = (type: string, logical?: string): Primitive => ({
  kind: 'primitive',
  type,
  logical,
});
export const fullName = ({ name, namespace }: Named): string =>
  namespace === '' ? name : `${namespace}.${name}`;
export const isNamed = (type: Type): type is NamedType => 'namespace' in type;

/** Name that identifies a branch of a union. */
export function branchName(type: Type): string {
  if (type.kind === 'primitive') return type.type;
  return isNamed(type) ? fullName(type) : type.kind;
}

/** A random schema under construction, and its records. */
export class SchemaGenerator {
  readonly chance: Chance;
  readonly records: Array<{ readonly record: RecordType; readonly depth: number }> = [];
  private names = 0;
  private types = 0;

  constructor(chance: Chance) {
    this.chance = chance;
  }

  word(prefix: string): string {
    return `${prefix}${this.names++}`;
  }

  private header(): Named {
    return { name: this.word('T'), namespace: this.chance.pick(NAMESPACES), aliases: [] };
  }

  enumeration(): EnumType {
    const symbols = ['A', 'B', 'C', 'D'].slice(0, 1 + this.chance.below(4));
    const fallback = this.chance.maybe(0.2) ? this.chance.pick(symbols) : undefined;
    return { kind: 'enum', ...this.header(), symbols, fallback };
  }

  fixed(): FixedType {
    return { kind: 'fixed', ...this.header(), size: this.chance.pick([1, 4, 16]) };
  }

  decimal(): Primitive {
    return {
      kind: 'primitive',
      type: 'bytes',
      logical: 'decimal',
      precision: 9,
      scale: this.chance.below(3),
    };
  }

  scalar(): Primitive {
    return primitive(this.chance.pick(PRIMITIVES));
  }

  field(type: Type, share = 0.35): Field {
    const value = this.chance.maybe(share) ? this.valueOf(type) : undefined;
    return { name: this.word('f'), aliases: [], type, value };
  }

  record(depth: number, least = 0): RecordType {
    const record: RecordType = { kind: 'record', ...this.header(), fields: [] };
    this.records.push({ record, depth });
    const count = Math.max(least, this.chance.below(4));
    for (let i = 0; i < count; i++) record.fields.push(this.field(this.type(depth + 1)));
    if (this.chance.maybe(0.08))
      record.fields.push({
        name: this.word('self'),
        aliases: [],
        type: this.chance.maybe(0.5)
          ? { kind: 'union', branches: [primitive('null'), record] }
          : { kind: 'array', items: record },
        value: undefined,
      });
    return record;
  }

  union(depth: number): UnionType {
    const branches: Type[] = [];
    this.widen(branches, depth, 1 + this.chance.below(3));
    return { kind: 'union', branches };
  }

  /** Adds branches that differ from the existing ones. */
  widen(branches: Type[], depth: number, count: number): void {
    for (let i = 0; i < count; i++) {
      const made = this.chance.maybe(0.7) ? this.scalar() : this.type(depth + 1);
      if (made.kind === 'union' || branches.some((one) => branchName(one) === branchName(made))) continue;
      branches.splice(this.chance.below(branches.length + 1), 0, made);
    }
    if (branches.length === 0) branches.push(this.scalar());
  }

  type(depth: number): Type {
    const { chance } = this;
    const dice = depth > DEPTH_MAX || ++this.types > TYPES_MAX ? 0 : chance.next();
    if (dice < 0.45) return this.scalar();
    if (dice < 0.53) return primitive(...chance.pick(LOGICAL));
    if (dice < 0.56) return this.decimal();
    if (dice < 0.64) return this.enumeration();
    if (dice < 0.68) return this.fixed();
    if (dice < 0.76) return { kind: 'array', items: this.type(depth + 1) };
    if (dice < 0.82) return { kind: 'map', values: this.type(depth + 1) };
    if (dice < 0.9) return this.union(depth);
    return this.record(depth);
  }

  /** A default that fits the type; undefined if there is none. */
  valueOf(type: Type, depth = 0): Json | undefined {
    const { chance } = this;
    if (depth > 4) return undefined;
    switch (type.kind) {
      case 'primitive':
        return this.scalarValue(type.type);
      case 'enum':
        return type.symbols.length === 0 ? undefined : chance.pick(type.symbols);
      case 'fixed':
        return '\u00ff'.repeat(type.size);
      case 'union':
        return type.branches[0] === undefined ? undefined : this.valueOf(type.branches[0], depth + 1);
      case 'array': {
        const item = chance.maybe(0.5) ? this.valueOf(type.items, depth + 1) : undefined;
        return item === undefined ? [] : [item, item];
      }
      case 'map': {
        const value = chance.maybe(0.5) ? this.valueOf(type.values, depth + 1) : undefined;
        return value === undefined ? {} : { k: value };
      }
      case 'record': {
        const members: { [key: string]: Json } = {};
        for (const field of type.fields) {
          if (field.value !== undefined && chance.maybe(0.5)) continue;
          const value = this.valueOf(field.type, depth + 1);
          if (value === undefined) return undefined;
          members[field.name] = value;
        }
        return members;
      }
    }
  }

  private scalarValue(type: string): Json {
    const { chance } = this;
    switch (type) {
      case 'null':
        return null;
      case 'boolean':
        return chance.maybe(0.5);
      case 'int':
        return chance.pick([0, -1, 2_147_483_647]);
      case 'long':
        return chance.pick([0, 9_007_199_254_740_991, -5]);
      case 'float':
      case 'double':
        return chance.pick([0, 0.1, 1e21, -16_777_217]);
      case 'bytes':
        return chance.pick(['', '\u0000\u00ff', 'a']);
      default:
        return chance.pick(['', 'größe 🚚', 'none']);
    }
  }
}

/** Deep copy that preserves identity: copying the same object again returns the same copy. */
export class Copy {
  private readonly made = new Map<object, unknown>();

  of<T>(value: T): T {
    if (typeof value !== 'object' || value === null) return value;
    const known = this.made.get(value);
    if (known !== undefined) return known as T;
    const copy = (Array.isArray(value) ? [] : {}) as Record<string, unknown>;
    this.made.set(value, copy);
    for (const [key, inner] of Object.entries(value)) copy[key] = this.of(inner);
    return copy as T;
  }
}

/** Text of the schema: a named type is defined at its first occurrence and referenced by name
 *  afterwards. */
export function printAvro(root: Type): string {
  const printed = new Set<Type>();
  const header = (type: NamedType) => ({
    name: type.name,
    namespace: type.namespace,
    ...(type.aliases.length === 0 ? {} : { aliases: type.aliases }),
  });
  const json = (type: Type): unknown => {
    if (isNamed(type)) {
      if (printed.has(type)) return type.namespace === '' ? `.${type.name}` : fullName(type);
      printed.add(type);
    }
    switch (type.kind) {
      case 'primitive':
        return type.logical === undefined
          ? type.type
          : { type: type.type, logicalType: type.logical, precision: type.precision, scale: type.scale };
      case 'array':
        return { type: 'array', items: json(type.items) };
      case 'map':
        return { type: 'map', values: json(type.values) };
      case 'union':
        return type.branches.map(json);
      case 'fixed':
        return { type: 'fixed', ...header(type), size: type.size };
      case 'enum':
        return { type: 'enum', ...header(type), symbols: type.symbols, default: type.fallback };
      case 'record':
        return {
          type: 'record',
          ...header(type),
          fields: type.fields.map(({ name, aliases, type: inner, value }) => ({
            name,
            ...(aliases.length === 0 ? {} : { aliases }),
            type: json(inner),
            default: value,
          })),
        };
    }
  };
  return JSON.stringify(json(root));
}
