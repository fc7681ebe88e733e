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
  type SchemaGenerator,
  type Type,
  type UnionType,
} from './avro-model.ts';
import { clashingFields, clashingType, randomScalars } from './avro-name-clashes.ts';

/** Changes the copy. */
type Apply = (copy: Copy) => void;

export interface Planted {
  readonly apply: Apply;
  /** Number of records around the change. */
  readonly depth: number;
}
export type Change = (generator: SchemaGenerator) => Planted;

interface Site {
  readonly record: RecordType;
  readonly depth: number;
}

/** A record of the schema: of two random records, the deeper one. */
function anyRecord(generator: SchemaGenerator): Site {
  const one = generator.chance.pick(generator.records);
  const other = generator.chance.pick(generator.records);
  return other.depth > one.depth ? other : one;
}

interface Spot<T extends Type> {
  readonly site: Site;
  readonly field: Field;
  readonly type: T;
}

/** Adds a field whose type is `make()`, directly or inside an array, a map or a union. */
function plant<T extends Type>(generator: SchemaGenerator, make: () => T, bare = false): Spot<T> {
  const site = anyRecord(generator);
  const type = make();
  const dice = bare || type.kind === 'union' ? 0 : generator.chance.next();
  let holder: Type = type;
  if (dice > 0.9) holder = { kind: 'map', values: type };
  else if (dice > 0.78) holder = { kind: 'array', items: type };
  else if (dice > 0.68)
    holder = branchName(type) === 'null' ? type : { kind: 'union', branches: [primitive('null'), type] };
  const field = generator.field(holder, 0.3);
  site.record.fields.splice(generator.chance.below(site.record.fields.length + 1), 0, field);
  return { site, field, type };
}

const changed =
  <T extends Type>(
    make: (generator: SchemaGenerator) => T,
    change: (copied: T, generator: SchemaGenerator) => void,
  ): Change =>
  (generator) => {
    const { site, type } = plant(generator, () => make(generator));
    return { depth: site.depth, apply: (copy) => change(copy.of(type), generator) };
  };

/** Change that replaces a type with another type. */
const replaced =
  (
    from: (generator: SchemaGenerator) => Type,
    to: (copied: Type, generator: SchemaGenerator) => Type,
  ): Change =>
  (generator) => {
    const { site, field, type } = plant(generator, () => from(generator));
    return {
      depth: site.depth,
      apply: (copy) => {
        const copied = copy.of(type);
        const held = copy.of(field);
        const next = to(copied, generator);
        if (held.type === copied) held.type = next;
        else if (held.type.kind === 'array') held.type.items = next;
        else if (held.type.kind === 'map') held.type.values = next;
        else if (held.type.kind === 'union')
          held.type.branches = held.type.branches.map((one) => (one === copied ? next : one));
        if (held.value !== undefined) held.value = generator.valueOf(held.type);
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
  (change: (record: RecordType, generator: SchemaGenerator, spot: Spot<Type>, copy: Copy) => void): Change =>
  (generator) => {
    const spot = plant(generator, () => generator.type(3));
    return {
      depth: spot.site.depth,
      apply: (copy) => change(copy.of(spot.site.record), generator, spot, copy),
    };
  };

const insert = (generator: SchemaGenerator, record: RecordType, field: Field): void => {
  record.fields.splice(generator.chance.below(record.fields.length + 1), 0, field);
};
const remove = (record: RecordType, field: Field): void => {
  record.fields = record.fields.filter((one) => one !== field);
};
function shuffle<T>(generator: SchemaGenerator, list: T[]): void {
  for (let i = list.length - 1; i > 0; i--) {
    const other = generator.chance.below(i + 1);
    [list[i], list[other]] = [list[other] as T, list[i] as T];
  }
}
/** A field with a default, of a type that has one. */
function defaulted(generator: SchemaGenerator): Field {
  const field = generator.field(generator.type(4), 0);
  const value = generator.valueOf(field.type);
  return value === undefined ? { ...field, type: primitive('int'), value: 7 } : { ...field, value };
}

const PROMOTIONS: Readonly<Record<string, readonly string[]>> = {
  int: ['long', 'float', 'double'],
  long: ['float', 'double'],
  float: ['double'],
};

function union(generator: SchemaGenerator, least: number): UnionType {
  const made = generator.union(2);
  while (made.branches.length < least) generator.widen(made.branches, 4, 1);
  return made;
}
const record = (generator: SchemaGenerator, depth = 2): RecordType => generator.record(depth, 1);
function named(generator: SchemaGenerator): NamedType {
  return generator.chance.pick([
    () => record(generator),
    () => generator.enumeration(),
    () => generator.fixed(),
  ])();
}
const kinds = (generator: SchemaGenerator): ReadonlyArray<() => Type> => [
  () => ({ kind: 'array', items: generator.scalar() }) satisfies ArrayType,
  () => ({ kind: 'map', values: generator.scalar() }) satisfies MapType,
  () => generator.enumeration(),
  () => generator.fixed(),
  () => record(generator, 4),
  () => generator.scalar(),
];

/** Union of two types with the same short name and different namespaces. */
function namesakes(generator: SchemaGenerator): UnionType {
  const one = named(generator);
  const other: NamedType = { ...(generator.chance.maybe(0.7) ? one : named(generator)), namespace: 'other' };
  other.name = one.name;
  if (other.kind === 'record' && one.kind === 'record') {
    other.fields = [...other.fields, generator.field(generator.scalar(), 0.5)];
  }
  return { kind: 'union', branches: [one, other] };
}

export const AVRO_CHANGES = {
  none: inRecord(() => {}),
  'field added with default': inRecord((into, generator) => insert(generator, into, defaulted(generator))),
  'field added without default': inRecord((into, generator) =>
    insert(generator, into, generator.field(generator.type(4), 0)),
  ),
  'field removed': inRecord((from, _world, { field }, copy) => remove(from, copy.of(field))),
  'field with default removed': (generator) => {
    const site = anyRecord(generator);
    const field = defaulted(generator);
    insert(generator, site.record, field);
    return { depth: site.depth, apply: (copy) => remove(copy.of(site.record), copy.of(field)) };
  },
  'field renamed': inRecord((_record, generator, { field }, copy) => {
    copy.of(field).name = generator.word('g');
  }),
  'field renamed with alias': inRecord((_record, generator, { field }, copy) => {
    const copied = copy.of(field);
    copied.aliases.push(copied.name);
    copied.name = generator.word('g');
  }),
  'field with default renamed with alias': (generator) => {
    const site = anyRecord(generator);
    const field = defaulted(generator);
    insert(generator, site.record, field);
    return {
      depth: site.depth,
      apply: (copy) => {
        const copied = copy.of(field);
        copied.aliases.push(copied.name);
        copied.name = generator.word('g');
        // Some readers have both names.
        if (generator.chance.maybe(0.2))
          insert(generator, copy.of(site.record), { ...defaulted(generator), name: field.name });
      },
    };
  },
  'alias names two fields': inRecord((into, generator, { field }, copy) => {
    const other = generator.chance.pick(into.fields);
    copy.of(field).aliases.push(other.name, 'nowhere');
  }),
  'two fields read one': inRecord((into, generator, { field }, copy) => {
    const copied = copy.of(field);
    insert(generator, into, { ...copied, name: generator.word('g'), aliases: [copied.name] });
  }),
  'fields reordered': inRecord((into, generator) => shuffle(generator, into.fields)),
  'default changed': inRecord((_record, generator, { field }, copy) => {
    const copied = copy.of(field);
    copied.value = copied.value === undefined ? generator.valueOf(copied.type) : undefined;
  }),
  'default does not fit': inRecord((into, generator) =>
    insert(generator, into, {
      ...generator.field(generator.type(4), 0),
      value: generator.chance.pick([null, 'x', 1.5, {}, [1], 5_000_000_000, { x: null }]),
    }),
  ),
  'default leaves fields out': inRecord((into, generator) => {
    const type: RecordType = {
      ...record(generator, 4),
      fields: [defaulted(generator), defaulted(generator)],
    };
    const [one] = type.fields;
    if (one !== undefined && generator.chance.maybe(0.4))
      one.value = generator.chance.pick([null, 'x', {}, 1.5]);
    insert(generator, into, { ...generator.field(type, 0), value: {} });
  }),
  'number widened': replaced(
    (generator) => primitive(generator.chance.pick(Object.keys(PROMOTIONS))),
    (type, generator) => primitive(generator.chance.pick(PROMOTIONS[branchName(type)] ?? ['double'])),
  ),
  'text and bytes': replaced(
    (generator) => primitive(generator.chance.pick(['string', 'bytes'])),
    (type) => primitive(branchName(type) === 'string' ? 'bytes' : 'string'),
  ),
  'primitive retyped': replaced(
    (generator) => generator.scalar(),
    (type, generator) =>
      primitive(generator.chance.pick(PRIMITIVES.filter((one) => one !== branchName(type)))),
  ),
  'kind of type changed': replaced(
    (generator) => generator.chance.pick(kinds(generator))(),
    (_type, generator) => generator.chance.pick(kinds(generator))(),
  ),
  'items retyped': replaced(
    (generator) => ({ kind: 'array', items: generator.scalar() }),
    (_type, generator) => ({ kind: 'array', items: generator.scalar() }),
  ),
  'values retyped': replaced(
    (generator) => ({ kind: 'map', values: generator.scalar() }),
    (_type, generator) => ({ kind: 'map', values: generator.scalar() }),
  ),
  'type put into a union': replaced(
    (generator) => generator.type(4),
    (type, generator) => {
      if (type.kind === 'union') return type;
      const branches = [type];
      generator.widen(branches, 4, 2);
      return { kind: 'union', branches };
    },
  ),
  'union widened': changed(
    (generator) => union(generator, 1),
    ({ branches }, generator) => generator.widen(branches, 4, 2),
  ),
  'union narrowed': changed(
    (generator) => union(generator, 2),
    ({ branches }, generator) => branches.splice(generator.chance.below(branches.length), 1),
  ),
  'union reordered': changed(
    (generator) => union(generator, 3),
    ({ branches }, generator) => shuffle(generator, branches),
  ),
  'union branch retyped': changed(
    (generator) => union(generator, 2),
    (type, generator) => {
      type.branches[generator.chance.below(type.branches.length)] = generator.scalar();
      unionsOnly(type);
    },
  ),
  'union of numbers changed': changed(
    (generator): UnionType => {
      const branches: Type[] = ['int', 'long', 'float', 'double', 'null'].map((one) => primitive(one));
      shuffle(generator, branches);
      return { kind: 'union', branches: branches.slice(0, 1 + generator.chance.below(3)) };
    },
    (type, generator) => {
      const more = ['int', 'long', 'float', 'double', 'string'].map((one) => primitive(one));
      shuffle(generator, more);
      type.branches = [...more.slice(0, 1 + generator.chance.below(3)), ...type.branches];
      unionsOnly(type);
      shuffle(generator, type.branches);
      if (generator.chance.maybe(0.5)) type.branches.splice(generator.chance.below(type.branches.length), 1);
    },
  ),
  'union of namesakes changed': changed(namesakes, (type, generator) => {
    const [first] = type.branches as [NamedType];
    const dice = generator.chance.next();
    if (dice < 0.3) type.branches.reverse();
    else if (dice < 0.6) type.branches.splice(generator.chance.below(2), 1);
    else if (dice < 0.8) first.namespace = 'third';
    else first.aliases.push(`other.${first.name}`);
  }),
  'enum symbol added': changed(
    (generator) => generator.enumeration(),
    (type: EnumType) => type.symbols.push('NEW'),
  ),
  'enum symbol removed': changed(
    (generator) => generator.enumeration(),
    (type: EnumType, generator) => {
      const [gone] = type.symbols.splice(generator.chance.below(type.symbols.length), 1);
      if (type.symbols.length === 0) type.symbols.push('OTHER');
      if (type.fallback === gone) type.fallback = type.symbols[0];
    },
  ),
  'enum symbol removed with default': changed(
    (generator): EnumType => ({ ...generator.enumeration(), symbols: ['A', 'B', 'C'], fallback: undefined }),
    (type: EnumType) => {
      type.symbols = ['A', 'C'];
      type.fallback = 'C';
    },
  ),
  'enum default dropped': changed(
    (generator): EnumType => ({ ...generator.enumeration(), symbols: ['A', 'B', 'C'], fallback: 'A' }),
    (type: EnumType, generator) => {
      type.fallback = undefined;
      if (generator.chance.maybe(0.7)) type.symbols = ['A', 'C'];
    },
  ),
  'enum symbols reordered': changed(
    (generator) => generator.enumeration(),
    (type: EnumType, generator) => shuffle(generator, type.symbols),
  ),
  'fixed resized': changed(
    (generator) => generator.fixed(),
    (type: FixedType) => {
      type.size += 1;
    },
  ),
  'type renamed': changed(named, (type, generator) => {
    type.name = generator.word('R');
  }),
  'type renamed with alias': changed(named, (type, generator) => {
    type.aliases.push(fullName(type));
    type.name = generator.word('R');
    if (generator.chance.maybe(0.3)) type.namespace = 'moved';
  }),
  'namespace changed': changed(named, (type) => {
    type.namespace = 'moved';
  }),
  'alias of another namespace': changed(named, (type, generator) => {
    type.aliases.push(`elsewhere.${type.name}`);
    type.name = generator.word('R');
  }),
  'logical type added or removed': changed(
    (generator) => primitive(...generator.chance.pick(LOGICAL)),
    (type: Primitive) => {
      type.logical = undefined;
    },
  ),
  'logical type changed': changed(
    (generator) => primitive(...generator.chance.pick(LOGICAL)),
    (type: Primitive, generator) => {
      const others = LOGICAL.filter(([base, logical]) => base === type.type && logical !== type.logical);
      type.logical = others.length === 0 ? 'ours' : generator.chance.pick(others)[1];
    },
  ),
  'logical number widened': replaced(
    (generator) => primitive('int', generator.chance.pick(['date', 'time-millis'])),
    (_type, generator) =>
      primitive('long', generator.chance.pick([undefined, 'timestamp-millis', 'time-micros'])),
  ),
  'decimal changed': changed(
    (generator) => generator.decimal(),
    (type: Primitive, generator) => {
      if (generator.chance.maybe(0.5)) type.scale = (type.scale ?? 0) + 1;
      else type.precision = 12;
    },
  ),
  'recursion changed': (generator) => {
    const site = anyRecord(generator);
    const tree = record(generator, site.depth + 1);
    const inner = generator.field(generator.scalar(), 0.5);
    tree.fields.push(inner, {
      name: generator.word('kids'),
      aliases: [],
      type: generator.chance.pick<Type>([
        { kind: 'array', items: tree },
        { kind: 'map', values: tree },
        { kind: 'union', branches: [primitive('null'), tree] },
      ]),
      value: undefined,
    });
    insert(generator, site.record, {
      name: generator.word('tree'),
      aliases: [],
      type: tree,
      value: undefined,
    });
    return {
      depth: site.depth + 1,
      apply: (copy) => {
        const held = copy.of(inner);
        if (generator.chance.maybe(0.5)) held.type = generator.scalar();
        else held.name = generator.word('g');
        if (held.value !== undefined) held.value = generator.valueOf(held.type);
      },
    };
  },
  'never written': (generator) => {
    const site = anyRecord(generator);
    const never = generator.chance.pick<() => Type>([
      () => ({ ...generator.enumeration(), symbols: [], fallback: undefined }),
      () => ({ kind: 'union', branches: [] }),
      () => {
        const loop = record(generator, 3);
        loop.fields.push({ name: 'loop', aliases: [], type: loop, value: undefined });
        return loop;
      },
    ])();
    const inner: Field = { name: generator.word('n'), aliases: [], type: primitive('int'), value: undefined };
    const holder: RecordType = {
      kind: 'record',
      name: generator.word('N'),
      namespace: '',
      aliases: [],
      fields: [{ name: 'never', aliases: [], type: never, value: undefined }, inner],
    };
    const type: Type = generator.chance.pick<Type>([
      { kind: 'array', items: holder },
      { kind: 'map', values: holder },
      { kind: 'union', branches: [primitive('null'), holder] },
    ]);
    insert(generator, site.record, { name: generator.word('h'), aliases: [], type, value: undefined });
    return {
      depth: site.depth + 1,
      apply: (copy) => {
        copy.of(inner).type = generator.scalar();
      },
    };
  },
  'types with shared names': replaced(
    (generator) => clashingType(generator),
    (type, generator) => clashingType(generator, type),
  ),
  'fields with shared names': replaced(
    (generator) => clashingFields(generator, record(generator, 4)),
    (type, generator) => (type.kind === 'record' ? clashingFields(generator, type) : type),
  ),
  'unrelated scalars': replaced(randomScalars, (_type, generator) => randomScalars(generator)),
} as const satisfies Readonly<Record<string, Change>>;

export type AvroChange = keyof typeof AVRO_CHANGES;
export const AVRO_CHANGE_NAMES = Object.keys(AVRO_CHANGES) as AvroChange[];
