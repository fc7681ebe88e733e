/** Random drafts of Avro schemas: unions, namespaces, logical types, enums with and without a
 *  default symbol, recursion, nesting. A named type occurs once, so that a draft is easy to change.
 */

export type Random = () => number;

/** Random numbers by Mulberry32. */
export function randomOf(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export type Type =
  | string
  | { kind: 'logical'; type: string; more: Record<string, unknown> }
  | { kind: 'ref'; name: string }
  | { kind: 'array'; items: Type }
  | { kind: 'map'; values: Type }
  | { kind: 'union'; branches: Type[] };

export interface Field {
  name: string;
  aliases: string[];
  type: Type;
  default?: unknown;
}
export interface Definition {
  kind: 'record' | 'enum' | 'fixed';
  name: string;
  aliases: string[];
  fields: Field[];
  symbols: string[];
  defaultSymbol?: string | undefined;
  size: number;
  more: Record<string, unknown>;
}
export interface Draft {
  root: Type;
  named: Map<string, Definition>;
}

const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'];
export const LOGICALS: ReadonlyArray<readonly [string, Record<string, unknown>]> = [
  ['int', { logicalType: 'date' }],
  ['int', { logicalType: 'time-millis' }],
  ['long', { logicalType: 'timestamp-millis' }],
  ['long', { logicalType: 'timestamp-micros' }],
  ['string', { logicalType: 'uuid' }],
  ['bytes', { logicalType: 'decimal', precision: 6, scale: 2 }],
  ['bytes', { logicalType: 'decimal', precision: 6, scale: 3 }],
  ['bytes', { logicalType: 'decimal', precision: 6 }],
  ['int', { logicalType: 'mine' }],
  ['long', { logicalType: 'mine' }],
];
export const NAMES = ['A', 'B', 'C', 'D'];
export const SPACES = ['x', 'y', 'x.z'];
export const FIELDS = ['a', 'b', 'c', 'd', 'e'];
export const SYMBOLS = ['P', 'Q', 'R', 'S'];

export class Maker {
  readonly random: Random;

  constructor(random: Random) {
    this.random = random;
  }

  chance(of: number): boolean {
    return this.random() < of;
  }

  below(count: number): number {
    return Math.floor(this.random() * count);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }

  some<T>(list: readonly T[], least: number, most: number): T[] {
    const count = least + this.below(most - least + 1);
    return [...list].sort(() => this.random() - 0.5).slice(0, count);
  }

  draft(): Draft {
    const draft: Draft = { root: 'null', named: new Map() };
    draft.root = this.chance(0.9) ? this.define(draft, 'record', 4) : this.type(draft, 4);
    return draft;
  }

  freeName(draft: Draft): string {
    for (;;) {
      const name = `${this.pick(SPACES)}.${this.pick(NAMES)}`;
      if (!draft.named.has(name)) return name;
      if (draft.named.size >= 8) return `${this.pick(SPACES)}.N${this.below(1000)}`;
    }
  }

  define(draft: Draft, kind: Definition['kind'], depth: number): Type {
    const name = this.freeName(draft);
    const made: Definition = {
      kind,
      name,
      aliases: [],
      fields: [],
      symbols: this.some(SYMBOLS, 1, 4),
      size: 1 + this.below(3),
      more: {},
    };
    if (kind === 'enum' && this.chance(0.3)) made.defaultSymbol = this.pick(made.symbols);
    if (kind === 'fixed' && this.chance(0.2))
      made.more = { logicalType: 'decimal', precision: 2, scale: this.below(2) };
    draft.named.set(name, made);
    if (kind === 'record') {
      for (const field of this.some(FIELDS, this.chance(0.05) ? 0 : 1, 4))
        made.fields.push(this.field(draft, field, depth - 1));
    }
    return { kind: 'ref', name };
  }

  field(draft: Draft, name: string, depth: number): Field {
    const field: Field = { name, aliases: [], type: this.type(draft, depth) };
    if (this.chance(0.5)) this.setDefault(draft, field);
    return field;
  }

  setDefault(draft: Draft, field: Field): void {
    const value = this.defaultOf(draft, field.type, 4);
    if (value === undefined) delete field.default;
    else field.default = value;
  }

  type(draft: Draft, depth: number): Type {
    const roll = this.random();
    if (depth <= 0 || roll < 0.35) return this.pick(PRIMITIVES);
    if (roll < 0.42) {
      const [type, more] = this.pick(LOGICALS);
      return { kind: 'logical', type, more };
    }
    if (roll < 0.52) return { kind: 'array', items: this.type(draft, depth - 1) };
    if (roll < 0.6) return { kind: 'map', values: this.type(draft, depth - 1) };
    if (roll < 0.78) return this.union(draft, depth - 1);
    if (roll < 0.84 && draft.named.size > 0) return { kind: 'ref', name: this.pick([...draft.named.keys()]) };
    if (roll < 0.9) return this.define(draft, 'enum', depth);
    if (roll < 0.92) return this.define(draft, 'fixed', depth);
    return this.define(draft, 'record', depth);
  }

  union(draft: Draft, depth: number): Type {
    const branches: Type[] = this.chance(0.5) ? ['null'] : [];
    const count = 1 + this.below(3);
    for (let i = 0; i < count; i++) {
      const type = this.type(draft, depth);
      if (typeof type === 'object' && type.kind === 'union') continue;
      if (!branches.some((one) => keyOf(one) === keyOf(type))) branches.push(type);
    }
    if (branches.length === 0) branches.push('int');
    if (this.chance(0.3)) branches.reverse();
    return { kind: 'union', branches };
  }

  /** Default of a type; undefined if the default needs more than `depth` levels. */
  defaultOf(draft: Draft, type: Type, depth: number): unknown {
    if (depth <= 0) return undefined;
    if (typeof type === 'string') return this.plainDefault(type);
    switch (type.kind) {
      case 'logical':
        return this.plainDefault(type.type);
      case 'array':
        return [];
      case 'map':
        return {};
      case 'union':
        return this.defaultOf(draft, type.branches[0] as Type, depth - 1);
      case 'ref': {
        const { kind, symbols, size, fields } = draft.named.get(type.name) as Definition;
        if (kind === 'enum') return this.pick(symbols);
        if (kind === 'fixed') return '\u0007'.repeat(size);
        const entries = fields.map(
          ({ name, type: inner }) => [name, this.defaultOf(draft, inner, depth - 1)] as const,
        );
        return entries.some(([, value]) => value === undefined) ? undefined : Object.fromEntries(entries);
      }
    }
  }

  plainDefault(type: string): unknown {
    const values: Readonly<Record<string, unknown>> = {
      null: null,
      boolean: true,
      int: 7,
      long: 8,
      float: 1.5,
      double: 2.5,
      bytes: '\u00ff',
      string: 'none',
    };
    return values[type];
  }
}

export const keyOf = (type: Type): string =>
  typeof type === 'string'
    ? type
    : type.kind === 'ref'
      ? type.name
      : type.kind === 'logical'
        ? type.type
        : type.kind;

/** JSON of a draft, with each named type at its first use. */
export function render({ root, named }: Draft): unknown {
  const done = new Set<string>();
  const type = (one: Type): unknown => {
    if (typeof one === 'string') return one;
    switch (one.kind) {
      case 'logical':
        return { type: one.type, ...one.more };
      case 'array':
        return { type: 'array', items: type(one.items) };
      case 'map':
        return { type: 'map', values: type(one.values) };
      case 'union':
        return one.branches.map(type);
      case 'ref': {
        if (done.has(one.name)) return one.name;
        done.add(one.name);
        const { kind, name, aliases, symbols, defaultSymbol, size, fields, more } = named.get(
          one.name,
        ) as Definition;
        const head = { type: kind, name, ...(aliases.length > 0 ? { aliases } : {}) };
        if (kind === 'enum')
          return { ...head, symbols, ...(defaultSymbol === undefined ? {} : { default: defaultSymbol }) };
        if (kind === 'fixed') return { ...head, size, ...more };
        return {
          ...head,
          fields: fields.map((field) => ({
            name: field.name,
            ...(field.aliases.length > 0 ? { aliases: field.aliases } : {}),
            type: type(field.type),
            ...('default' in field ? { default: field.default } : {}),
          })),
        };
      }
    }
  };
  return type(root);
}
