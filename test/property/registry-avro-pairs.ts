/** Random pairs of Avro schemas that differ by a few changes. A seed always gives the same pair. */
import {
  type Definition,
  type Draft,
  FIELDS,
  type Field,
  keyOf,
  LOGICALS,
  Maker,
  NAMES,
  randomOf,
  render,
  SPACES,
  SYMBOLS,
  type Type,
} from './registry-avro-draft.ts';

/** Position of a type in a draft, with its setter. */
interface Slot {
  readonly type: Type;
  set(type: Type): void;
  /** True for a branch of a union, which cannot itself be a union. */
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

/** Returns the pair of a seed.
 *  @param keep share of pairs with a single change */
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
