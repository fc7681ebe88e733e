/** Random pairs of Avro schemas, one a few changes away from the other: unions, aliases, namespaces, logical types, enums
 *  with and without a default symbol, recursion, nesting. A seed makes always the same pair. */

export type Random = () => number;

/** Mulberry32. */
export function randomOf(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Type =
  | string
  | { kind: 'logical'; type: string; more: Record<string, unknown> }
  | { kind: 'ref'; name: string }
  | { kind: 'array'; items: Type }
  | { kind: 'map'; values: Type }
  | { kind: 'union'; branches: Type[] };

interface Field {
  name: string;
  aliases: string[];
  type: Type;
  default?: unknown;
}
interface Definition {
  kind: 'record' | 'enum' | 'fixed';
  name: string;
  aliases: string[];
  fields: Field[];
  symbols: string[];
  defaultSymbol?: string | undefined;
  size: number;
  more: Record<string, unknown>;
}
/** Named types stand once, whatever names them. */
interface Draft {
  root: Type;
  named: Map<string, Definition>;
}

const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'];
const LOGICALS: ReadonlyArray<readonly [string, Record<string, unknown>]> = [
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
const NAMES = ['A', 'B', 'C', 'D'];
const SPACES = ['x', 'y', 'x.z'];
const FIELDS = ['a', 'b', 'c', 'd', 'e'];
const SYMBOLS = ['P', 'Q', 'R', 'S'];

class Maker {
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

  /** Undefined: none that ends soon. */
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

const keyOf = (type: Type): string =>
  typeof type === 'string'
    ? type
    : type.kind === 'ref'
      ? type.name
      : type.kind === 'logical'
        ? type.type
        : type.kind;

/** The JSON, each named type where it is first used. */
function render({ root, named }: Draft): unknown {
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

/** A place that holds a type, and how to put another there. */
interface Slot {
  readonly type: Type;
  set(type: Type): void;
  /** Of a union's branch: not another union. */
  readonly isBranch: boolean;
}

function slotsOf(draft: Draft): Slot[] {
  const slots: Slot[] = [];
  const visit = (type: Type, set: (type: Type) => void, isBranch: boolean): void => {
    slots.push({ type, set, isBranch });
    if (typeof type === 'string') return;
    if (type.kind === 'array')
      visit(
        type.items,
        (one) => {
          type.items = one;
        },
        false,
      );
    else if (type.kind === 'map')
      visit(
        type.values,
        (one) => {
          type.values = one;
        },
        false,
      );
    else if (type.kind === 'union')
      for (const [i, branch] of type.branches.entries())
        visit(
          branch,
          (one) => {
            type.branches[i] = one;
          },
          true,
        );
  };
  visit(
    draft.root,
    (one) => {
      draft.root = one;
    },
    false,
  );
  for (const { fields } of draft.named.values())
    for (const field of fields)
      visit(
        field.type,
        (one) => {
          field.type = one;
          delete field.default;
        },
        false,
      );
  return slots;
}

function renamed(draft: Draft, from: string, to: string): void {
  const made = draft.named.get(from) as Definition;
  draft.named = new Map(
    [...draft.named].map(([name, one]) => (name === from ? [to, { ...made, name: to }] : [name, one])),
  );
  for (const slot of slotsOf(draft))
    if (typeof slot.type === 'object' && slot.type.kind === 'ref' && slot.type.name === from)
      slot.type.name = to;
}

type Change = (draft: Draft, make: Maker) => boolean;

const ofKind =
  (kind: Definition['kind'], change: (one: Definition, draft: Draft, make: Maker) => boolean): Change =>
  (draft, make) => {
    const all = [...draft.named.values()].filter((one) => one.kind === kind);
    return all.length > 0 && change(make.pick(all), draft, make);
  };
const ofField = (change: (field: Field, record: Definition, draft: Draft, make: Maker) => boolean): Change =>
  ofKind('record', (record, draft, make) =>
    record.fields.length > 0 ? change(make.pick(record.fields), record, draft, make) : false,
  );
const ofSlot =
  (change: (slot: Slot, draft: Draft, make: Maker) => boolean): Change =>
  (draft, make) =>
    change(make.pick(slotsOf(draft)), draft, make);
const ofUnion =
  (change: (branches: Type[], draft: Draft, make: Maker) => boolean): Change =>
  (draft, make) => {
    const unions = slotsOf(draft).flatMap(({ type }) =>
      typeof type === 'object' && type.kind === 'union' ? [type] : [],
    );
    return unions.length > 0 && change(make.pick(unions).branches, draft, make);
  };

const freeField = (record: Definition, make: Maker): string | undefined => {
  const taken = new Set(record.fields.map(({ name }) => name));
  const free = FIELDS.filter((name) => !taken.has(name));
  return free.length === 0 ? undefined : make.pick(free);
};

const PROMOTED: Readonly<Record<string, readonly string[]>> = {
  int: ['long', 'float', 'double'],
  long: ['float', 'double', 'int'],
  float: ['double', 'int'],
  string: ['bytes'],
  bytes: ['string'],
};

export const CHANGES: Readonly<Record<string, Change>> = {
  'add a field': ofKind('record', (record, draft, make) => {
    const name = freeField(record, make);
    if (name === undefined) return false;
    record.fields.splice(make.below(record.fields.length + 1), 0, make.field(draft, name, 2));
    return true;
  }),
  'remove a field': ofField((field, record) => {
    record.fields = record.fields.filter((one) => one !== field);
    return true;
  }),
  'rename a field': ofField((field, record, _draft, make) => {
    const name = freeField(record, make);
    if (name === undefined) return false;
    field.name = name;
    return true;
  }),
  'rename a field with an alias': ofField((field, record, _draft, make) => {
    const name = freeField(record, make);
    if (name === undefined) return false;
    field.aliases = [field.name];
    field.name = name;
    return true;
  }),
  'alias a field to another': ofField((field, _record, _draft, make) => {
    field.aliases = make.some(FIELDS, 1, 2);
    return true;
  }),
  'reorder fields': ofKind('record', (record) => {
    record.fields.reverse();
    return true;
  }),
  'give or take a default': ofField((field, _record, draft, make) => {
    if ('default' in field) delete field.default;
    else make.setDefault(draft, field);
    return true;
  }),
  'promote or retype a primitive': ofSlot((slot, _draft, make) => {
    if (typeof slot.type !== 'string') return false;
    slot.set(make.pick(PROMOTED[slot.type] ?? ['string']));
    return true;
  }),
  retype: ofSlot((slot, draft, make) => {
    const type = make.type(draft, 2);
    if (slot.isBranch && typeof type === 'object' && type.kind === 'union') return false;
    slot.set(type);
    return true;
  }),
  'put into a union': ofSlot(({ type, set, isBranch }, draft, make) => {
    if (isBranch || (typeof type === 'object' && type.kind === 'union')) return false;
    const { branches } = make.union(draft, 1) as { branches: Type[] };
    set({ kind: 'union', branches: [type, ...branches.filter((one) => keyOf(one) !== keyOf(type))] });
    return true;
  }),
  'take out of a union': ofSlot((slot, _draft, make) => {
    if (typeof slot.type === 'string' || slot.type.kind !== 'union') return false;
    slot.set(make.pick(slot.type.branches));
    return true;
  }),
  'add a branch': ofUnion((branches, draft, make) => {
    const type = make.type(draft, 1);
    if (typeof type === 'object' && type.kind === 'union') return false;
    if (branches.some((one) => keyOf(one) === keyOf(type))) return false;
    branches.splice(make.below(branches.length + 1), 0, type);
    return true;
  }),
  'remove a branch': ofUnion((branches, _draft, make) => {
    if (branches.length < 2) return false;
    branches.splice(make.below(branches.length), 1);
    return true;
  }),
  'reorder branches': ofUnion((branches) => {
    branches.reverse();
    return branches.length > 1;
  }),
  'add a symbol': ofKind('enum', (one, _draft, make) => {
    const free = SYMBOLS.filter((symbol) => !one.symbols.includes(symbol));
    if (free.length === 0) return false;
    one.symbols.splice(make.below(one.symbols.length + 1), 0, make.pick(free));
    return true;
  }),
  'remove a symbol': ofKind('enum', (one, _draft, make) => {
    const symbol = make.pick(one.symbols);
    if (one.symbols.length < 2 || symbol === one.defaultSymbol) return false;
    one.symbols = one.symbols.filter((other) => other !== symbol);
    return true;
  }),
  'give or take a default symbol': ofKind('enum', (one, _draft, make) => {
    one.defaultSymbol = one.defaultSymbol === undefined ? make.pick(one.symbols) : undefined;
    return true;
  }),
  'resize a fixed': ofKind('fixed', (one) => {
    one.size += 1;
    return true;
  }),
  'rename a type': (draft, make) => {
    if (draft.named.size === 0) return false;
    renamed(draft, make.pick([...draft.named.keys()]), make.freeName(draft));
    return true;
  },
  'rename a type with an alias': (draft, make) => {
    if (draft.named.size === 0) return false;
    const from = make.pick([...draft.named.keys()]);
    const to = make.freeName(draft);
    renamed(draft, from, to);
    (draft.named.get(to) as Definition).aliases = [from];
    return true;
  },
  'move a type to another namespace': (draft, make) => {
    if (draft.named.size === 0) return false;
    const from = make.pick([...draft.named.keys()]);
    const to = `${make.pick(SPACES)}.${from.slice(from.lastIndexOf('.') + 1)}`;
    if (draft.named.has(to)) return false;
    renamed(draft, from, to);
    return true;
  },
  'alias a type to another': (draft, make) => {
    if (draft.named.size === 0) return false;
    const one = make.pick([...draft.named.values()]);
    one.aliases = [`${make.pick(SPACES)}.${make.pick(NAMES)}`];
    return true;
  },
  'give, take or change a logical type': ofSlot((slot, _draft, make) => {
    if (typeof slot.type === 'object' && slot.type.kind === 'logical') {
      const { type } = slot.type;
      const others = LOGICALS.filter(([one]) => one === type);
      if (make.chance(0.3)) slot.set(type);
      else slot.set({ kind: 'logical', type, more: make.pick(others)[1] });
      return true;
    }
    const fitting = LOGICALS.filter(([one]) => one === slot.type);
    if (fitting.length === 0) return false;
    const [type, more] = make.pick(fitting);
    slot.set({ kind: 'logical', type, more });
    return true;
  }),
  'put into a list or map': ofSlot((slot, _draft, make) => {
    if (slot.isBranch) return false;
    slot.set(make.chance(0.5) ? { kind: 'array', items: slot.type } : { kind: 'map', values: slot.type });
    return true;
  }),
};

export interface SchemaPair {
  readonly one: unknown;
  readonly other: unknown;
  readonly changes: readonly string[];
}

/** @param keep the share of pairs with a single change */
export function pairOf(seed: number, keep = 0.5): SchemaPair {
  const make = new Maker(randomOf(seed));
  const draft = make.draft();
  const one = render(draft);
  const copy = structuredClone(draft);
  const names = Object.keys(CHANGES);
  const changes: string[] = [];
  const count = make.chance(keep) ? 1 : 2 + make.below(3);
  for (let tries = 0; changes.length < count && tries < 50; tries++) {
    const name = make.pick(names);
    if ((CHANGES[name] as Change)(copy, make)) changes.push(name);
  }
  return { one, other: render(copy), changes };
}
