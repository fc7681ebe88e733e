/** Named changes of Avro schemas. Each finds or creates its place in a random schema and changes
 *  that place in the copy. */
import {
  type ArrayType,
  branchName,
  type Copy,
  type EnumType,
  type Field,
  type FixedType,
  fullName,
  LOGICAL,
  type MapType,
  type NamedType,
  PRIMITIVES,
  type Primitive,
  primitive,
  type RecordType,
  type Type,
  type UnionType,
  type World,
} from './avro-model.ts';
import { fieldWorld, scalarWorld, typeWorld } from './avro-worlds.ts';

/** Changes the copy. */
type Apply = (copy: Copy) => void;

export interface Planted {
  readonly apply: Apply;
  /** Number of records around the change. */
  readonly depth: number;
}
export type Change = (world: World) => Planted;

interface Site {
  readonly record: RecordType;
  readonly depth: number;
}

/** A record of the schema: of two random records, the deeper one. */
function anyRecord(world: World): Site {
  const one = world.chance.pick(world.records);
  const other = world.chance.pick(world.records);
  return other.depth > one.depth ? other : one;
}

interface Spot<T extends Type> {
  readonly site: Site;
  readonly field: Field;
  readonly type: T;
}

/** Adds a field whose type is `make()`, directly or inside an array, a map or a union. */
function plant<T extends Type>(world: World, make: () => T, bare = false): Spot<T> {
  const site = anyRecord(world);
  const type = make();
  const dice = bare || type.kind === 'union' ? 0 : world.chance.next();
  let holder: Type = type;
  if (dice > 0.9) holder = { kind: 'map', values: type };
  else if (dice > 0.78) holder = { kind: 'array', items: type };
  else if (dice > 0.68)
    holder = branchName(type) === 'null' ? type : { kind: 'union', branches: [primitive('null'), type] };
  const field = world.field(holder, 0.3);
  site.record.fields.splice(world.chance.below(site.record.fields.length + 1), 0, field);
  return { site, field, type };
}

const changed =
  <T extends Type>(make: (world: World) => T, change: (copied: T, world: World) => void): Change =>
  (world) => {
    const { site, type } = plant(world, () => make(world));
    return { depth: site.depth, apply: (copy) => change(copy.of(type), world) };
  };

/** Change that replaces a type with another type. */
const replaced =
  (from: (world: World) => Type, to: (copied: Type, world: World) => Type): Change =>
  (world) => {
    const { site, field, type } = plant(world, () => from(world));
    return {
      depth: site.depth,
      apply: (copy) => {
        const copied = copy.of(type);
        const held = copy.of(field);
        const next = to(copied, world);
        if (held.type === copied) held.type = next;
        else if (held.type.kind === 'array') held.type.items = next;
        else if (held.type.kind === 'map') held.type.values = next;
        else if (held.type.kind === 'union')
          held.type.branches = held.type.branches.map((one) => (one === copied ? next : one));
        if (held.value !== undefined) held.value = world.valueOf(held.type);
        if (held.type.kind === 'union') unionsOnly(held.type);
      },
    };
  };

/** Flattens nested unions and removes duplicate branches. */
function unionsOnly(union: UnionType): void {
  const flat = union.branches.flatMap((one) => (one.kind === 'union' ? one.branches : [one]));
  const seen = new Set<string>();
  union.branches = flat.filter((one) => !seen.has(branchName(one)) && seen.add(branchName(one)));
}

const inRecord =
  (change: (record: RecordType, world: World, spot: Spot<Type>, copy: Copy) => void): Change =>
  (world) => {
    const spot = plant(world, () => world.type(3));
    return {
      depth: spot.site.depth,
      apply: (copy) => change(copy.of(spot.site.record), world, spot, copy),
    };
  };

const insert = (world: World, record: RecordType, field: Field): void => {
  record.fields.splice(world.chance.below(record.fields.length + 1), 0, field);
};
const remove = (record: RecordType, field: Field): void => {
  record.fields = record.fields.filter((one) => one !== field);
};
function shuffle<T>(world: World, list: T[]): void {
  for (let i = list.length - 1; i > 0; i--) {
    const other = world.chance.below(i + 1);
    [list[i], list[other]] = [list[other] as T, list[i] as T];
  }
}
/** A field with a default, of a type that has one. */
function defaulted(world: World): Field {
  const field = world.field(world.type(4), 0);
  const value = world.valueOf(field.type);
  return value === undefined ? { ...field, type: primitive('int'), value: 7 } : { ...field, value };
}

const PROMOTIONS: Readonly<Record<string, readonly string[]>> = {
  int: ['long', 'float', 'double'],
  long: ['float', 'double'],
  float: ['double'],
};

function union(world: World, least: number): UnionType {
  const made = world.union(2);
  while (made.branches.length < least) world.widen(made.branches, 4, 1);
  return made;
}
const record = (world: World, depth = 2): RecordType => world.record(depth, 1);
function named(world: World): NamedType {
  return world.chance.pick([() => record(world), () => world.enumeration(), () => world.fixed()])();
}
const kinds = (world: World): ReadonlyArray<() => Type> => [
  () => ({ kind: 'array', items: world.scalar() }) satisfies ArrayType,
  () => ({ kind: 'map', values: world.scalar() }) satisfies MapType,
  () => world.enumeration(),
  () => world.fixed(),
  () => record(world, 4),
  () => world.scalar(),
];

/** Union of two types with the same short name and different namespaces. */
function namesakes(world: World): UnionType {
  const one = named(world);
  const other: NamedType = { ...(world.chance.maybe(0.7) ? one : named(world)), namespace: 'other' };
  other.name = one.name;
  if (other.kind === 'record' && one.kind === 'record') {
    other.fields = [...other.fields, world.field(world.scalar(), 0.5)];
  }
  return { kind: 'union', branches: [one, other] };
}

export const AVRO_CHANGES = {
  none: inRecord(() => {}),
  'field added with default': inRecord((into, world) => insert(world, into, defaulted(world))),
  'field added without default': inRecord((into, world) =>
    insert(world, into, world.field(world.type(4), 0)),
  ),
  'field removed': inRecord((from, _world, { field }, copy) => remove(from, copy.of(field))),
  'field with default removed': (world) => {
    const site = anyRecord(world);
    const field = defaulted(world);
    insert(world, site.record, field);
    return { depth: site.depth, apply: (copy) => remove(copy.of(site.record), copy.of(field)) };
  },
  'field renamed': inRecord((_record, world, { field }, copy) => {
    copy.of(field).name = world.word('g');
  }),
  'field renamed with alias': inRecord((_record, world, { field }, copy) => {
    const copied = copy.of(field);
    copied.aliases.push(copied.name);
    copied.name = world.word('g');
  }),
  'field with default renamed with alias': (world) => {
    const site = anyRecord(world);
    const field = defaulted(world);
    insert(world, site.record, field);
    return {
      depth: site.depth,
      apply: (copy) => {
        const copied = copy.of(field);
        copied.aliases.push(copied.name);
        copied.name = world.word('g');
        // Some readers have both names.
        if (world.chance.maybe(0.2))
          insert(world, copy.of(site.record), { ...defaulted(world), name: field.name });
      },
    };
  },
  'alias names two fields': inRecord((into, world, { field }, copy) => {
    const other = world.chance.pick(into.fields);
    copy.of(field).aliases.push(other.name, 'nowhere');
  }),
  'two fields read one': inRecord((into, world, { field }, copy) => {
    const copied = copy.of(field);
    insert(world, into, { ...copied, name: world.word('g'), aliases: [copied.name] });
  }),
  'fields reordered': inRecord((into, world) => shuffle(world, into.fields)),
  'default changed': inRecord((_record, world, { field }, copy) => {
    const copied = copy.of(field);
    copied.value = copied.value === undefined ? world.valueOf(copied.type) : undefined;
  }),
  'default does not fit': inRecord((into, world) =>
    insert(world, into, {
      ...world.field(world.type(4), 0),
      value: world.chance.pick([null, 'x', 1.5, {}, [1], 5_000_000_000, { x: null }]),
    }),
  ),
  'default leaves fields out': inRecord((into, world) => {
    const type: RecordType = { ...record(world, 4), fields: [defaulted(world), defaulted(world)] };
    const [one] = type.fields;
    if (one !== undefined && world.chance.maybe(0.4)) one.value = world.chance.pick([null, 'x', {}, 1.5]);
    insert(world, into, { ...world.field(type, 0), value: {} });
  }),
  'number widened': replaced(
    (world) => primitive(world.chance.pick(Object.keys(PROMOTIONS))),
    (type, world) => primitive(world.chance.pick(PROMOTIONS[branchName(type)] ?? ['double'])),
  ),
  'text and bytes': replaced(
    (world) => primitive(world.chance.pick(['string', 'bytes'])),
    (type) => primitive(branchName(type) === 'string' ? 'bytes' : 'string'),
  ),
  'primitive retyped': replaced(
    (world) => world.scalar(),
    (type, world) => primitive(world.chance.pick(PRIMITIVES.filter((one) => one !== branchName(type)))),
  ),
  'kind of type changed': replaced(
    (world) => world.chance.pick(kinds(world))(),
    (_type, world) => world.chance.pick(kinds(world))(),
  ),
  'items retyped': replaced(
    (world) => ({ kind: 'array', items: world.scalar() }),
    (_type, world) => ({ kind: 'array', items: world.scalar() }),
  ),
  'values retyped': replaced(
    (world) => ({ kind: 'map', values: world.scalar() }),
    (_type, world) => ({ kind: 'map', values: world.scalar() }),
  ),
  'type put into a union': replaced(
    (world) => world.type(4),
    (type, world) => {
      if (type.kind === 'union') return type;
      const branches = [type];
      world.widen(branches, 4, 2);
      return { kind: 'union', branches };
    },
  ),
  'union widened': changed(
    (world) => union(world, 1),
    ({ branches }, world) => world.widen(branches, 4, 2),
  ),
  'union narrowed': changed(
    (world) => union(world, 2),
    ({ branches }, world) => branches.splice(world.chance.below(branches.length), 1),
  ),
  'union reordered': changed(
    (world) => union(world, 3),
    ({ branches }, world) => shuffle(world, branches),
  ),
  'union branch retyped': changed(
    (world) => union(world, 2),
    (type, world) => {
      type.branches[world.chance.below(type.branches.length)] = world.scalar();
      unionsOnly(type);
    },
  ),
  'union of numbers changed': changed(
    (world): UnionType => {
      const branches: Type[] = ['int', 'long', 'float', 'double', 'null'].map((one) => primitive(one));
      shuffle(world, branches);
      return { kind: 'union', branches: branches.slice(0, 1 + world.chance.below(3)) };
    },
    (type, world) => {
      const more = ['int', 'long', 'float', 'double', 'string'].map((one) => primitive(one));
      shuffle(world, more);
      type.branches = [...more.slice(0, 1 + world.chance.below(3)), ...type.branches];
      unionsOnly(type);
      shuffle(world, type.branches);
      if (world.chance.maybe(0.5)) type.branches.splice(world.chance.below(type.branches.length), 1);
    },
  ),
  'union of namesakes changed': changed(namesakes, (type, world) => {
    const [first] = type.branches as [NamedType];
    const dice = world.chance.next();
    if (dice < 0.3) type.branches.reverse();
    else if (dice < 0.6) type.branches.splice(world.chance.below(2), 1);
    else if (dice < 0.8) first.namespace = 'third';
    else first.aliases.push(`other.${first.name}`);
  }),
  'enum symbol added': changed(
    (world) => world.enumeration(),
    (type: EnumType) => type.symbols.push('NEW'),
  ),
  'enum symbol removed': changed(
    (world) => world.enumeration(),
    (type: EnumType, world) => {
      const [gone] = type.symbols.splice(world.chance.below(type.symbols.length), 1);
      if (type.symbols.length === 0) type.symbols.push('OTHER');
      if (type.fallback === gone) type.fallback = type.symbols[0];
    },
  ),
  'enum symbol removed with default': changed(
    (world): EnumType => ({ ...world.enumeration(), symbols: ['A', 'B', 'C'], fallback: undefined }),
    (type: EnumType) => {
      type.symbols = ['A', 'C'];
      type.fallback = 'C';
    },
  ),
  'enum default dropped': changed(
    (world): EnumType => ({ ...world.enumeration(), symbols: ['A', 'B', 'C'], fallback: 'A' }),
    (type: EnumType, world) => {
      type.fallback = undefined;
      if (world.chance.maybe(0.7)) type.symbols = ['A', 'C'];
    },
  ),
  'enum symbols reordered': changed(
    (world) => world.enumeration(),
    (type: EnumType, world) => shuffle(world, type.symbols),
  ),
  'fixed resized': changed(
    (world) => world.fixed(),
    (type: FixedType) => {
      type.size += 1;
    },
  ),
  'type renamed': changed(named, (type, world) => {
    type.name = world.word('R');
  }),
  'type renamed with alias': changed(named, (type, world) => {
    type.aliases.push(fullName(type));
    type.name = world.word('R');
    if (world.chance.maybe(0.3)) type.namespace = 'moved';
  }),
  'namespace changed': changed(named, (type) => {
    type.namespace = 'moved';
  }),
  'alias of another namespace': changed(named, (type, world) => {
    type.aliases.push(`elsewhere.${type.name}`);
    type.name = world.word('R');
  }),
  'logical type added or removed': changed(
    (world) => primitive(...world.chance.pick(LOGICAL)),
    (type: Primitive) => {
      type.logical = undefined;
    },
  ),
  'logical type changed': changed(
    (world) => primitive(...world.chance.pick(LOGICAL)),
    (type: Primitive, world) => {
      const others = LOGICAL.filter(([base, logical]) => base === type.type && logical !== type.logical);
      type.logical = others.length === 0 ? 'ours' : world.chance.pick(others)[1];
    },
  ),
  'logical number widened': replaced(
    (world) => primitive('int', world.chance.pick(['date', 'time-millis'])),
    (_type, world) => primitive('long', world.chance.pick([undefined, 'timestamp-millis', 'time-micros'])),
  ),
  'decimal changed': changed(
    (world) => world.decimal(),
    (type: Primitive, world) => {
      if (world.chance.maybe(0.5)) type.scale = (type.scale ?? 0) + 1;
      else type.precision = 12;
    },
  ),
  'recursion changed': (world) => {
    const site = anyRecord(world);
    const tree = record(world, site.depth + 1);
    const inner = world.field(world.scalar(), 0.5);
    tree.fields.push(inner, {
      name: world.word('kids'),
      aliases: [],
      type: world.chance.pick<Type>([
        { kind: 'array', items: tree },
        { kind: 'map', values: tree },
        { kind: 'union', branches: [primitive('null'), tree] },
      ]),
      value: undefined,
    });
    insert(world, site.record, { name: world.word('tree'), aliases: [], type: tree, value: undefined });
    return {
      depth: site.depth + 1,
      apply: (copy) => {
        const held = copy.of(inner);
        if (world.chance.maybe(0.5)) held.type = world.scalar();
        else held.name = world.word('g');
        if (held.value !== undefined) held.value = world.valueOf(held.type);
      },
    };
  },
  'never written': (world) => {
    const site = anyRecord(world);
    const never = world.chance.pick<() => Type>([
      () => ({ ...world.enumeration(), symbols: [], fallback: undefined }),
      () => ({ kind: 'union', branches: [] }),
      () => {
        const loop = record(world, 3);
        loop.fields.push({ name: 'loop', aliases: [], type: loop, value: undefined });
        return loop;
      },
    ])();
    const inner: Field = { name: world.word('n'), aliases: [], type: primitive('int'), value: undefined };
    const holder: RecordType = {
      kind: 'record',
      name: world.word('N'),
      namespace: '',
      aliases: [],
      fields: [{ name: 'never', aliases: [], type: never, value: undefined }, inner],
    };
    const type: Type = world.chance.pick<Type>([
      { kind: 'array', items: holder },
      { kind: 'map', values: holder },
      { kind: 'union', branches: [primitive('null'), holder] },
    ]);
    insert(world, site.record, { name: world.word('h'), aliases: [], type, value: undefined });
    return {
      depth: site.depth + 1,
      apply: (copy) => {
        copy.of(inner).type = world.scalar();
      },
    };
  },
  'names of two worlds': replaced(
    (world) => typeWorld(world),
    (type, world) => typeWorld(world, type),
  ),
  'fields of two worlds': replaced(
    (world) => fieldWorld(world, record(world, 4)),
    (type, world) => (type.kind === 'record' ? fieldWorld(world, type) : type),
  ),
  'scalars of two worlds': replaced(scalarWorld, (_type, world) => scalarWorld(world)),
} as const satisfies Readonly<Record<string, Change>>;

export type AvroChange = keyof typeof AVRO_CHANGES;
export const AVRO_CHANGE_NAMES = Object.keys(AVRO_CHANGES) as AvroChange[];
