/** Random types that share only a few names, as if two teams had used the same names. Small name
 *  sets collide often, so that rules for names, aliases and branches are exercised in many
 *  combinations. */
import {
  branchName,
  type Field,
  isNamed,
  LOGICAL,
  type NamedType,
  PRIMITIVES,
  primitive,
  type RecordType,
  type Type,
  type World,
} from './avro-model.ts';

const TYPE_NAMES: ReadonlyArray<readonly [namespace: string, name: string]> = [
  ['', 'X'],
  ['n', 'X'],
  ['m', 'X'],
  ['n', 'Y'],
];
const FIELD_NAMES = ['a', 'b', 'c'] as const;
const SCALARS = ['int', 'long', 'string', 'bytes', 'double'] as const;

function some<T>(world: World, list: readonly T[], share: number): T[] {
  return list.filter(() => world.chance.maybe(share));
}

/** Fields with a few names, and aliases from the same names. */
function fields(world: World): Field[] {
  const made = some(world, FIELD_NAMES, 0.6).map((name): Field => {
    const type = primitive(world.chance.pick(SCALARS));
    const value = world.chance.maybe(0.5) ? world.valueOf(type) : undefined;
    return { name, aliases: some(world, FIELD_NAMES, 0.25), type, value };
  });
  return world.chance.maybe(0.5) ? made : made.reverse();
}

export const fieldWorld = (world: World, record: RecordType): RecordType => ({
  ...record,
  fields: fields(world),
});

type Kind = NamedType['kind'];

/** Types of one kind that differ enough to show in the decoded value which of them was chosen. */
function named(world: World, kind: Kind, [namespace, name]: (typeof TYPE_NAMES)[number]): NamedType {
  const aliases = some(world, TYPE_NAMES, 0.15).map(([space, other]) =>
    space === '' ? other : `${space}.${other}`,
  );
  const head = { namespace, name, aliases };
  if (kind === 'fixed') return { kind, ...head, size: world.chance.maybe(0.7) ? 1 : 2 };
  if (kind === 'enum') {
    const symbols = world.chance.maybe(0.7) ? ['A', 'B'] : some(world, ['A', 'B'], 0.5);
    const fallback = symbols.length > 0 && world.chance.maybe(0.2) ? world.chance.pick(symbols) : undefined;
    return { kind, ...head, symbols, fallback };
  }
  if (world.chance.maybe(0.2)) return { kind, ...head, fields: fields(world) };
  const type = primitive(world.chance.pick(['int', 'int', 'long', 'string']));
  return { kind, ...head, fields: [{ name: 'a', aliases: [], type, value: undefined }] };
}

/** A type, or a union of types, with the shared names, mostly of one kind.
 *  @param other type of the other schema, whose kind is used */
export function typeWorld(world: World, other?: Type): Type {
  const others = other?.kind === 'union' ? other.branches : other === undefined ? [] : [other];
  const kind = others.find(isNamed)?.kind ?? world.chance.pick<Kind>(['enum', 'fixed', 'record']);
  const branches: Type[] = some(world, TYPE_NAMES, 0.55).map((name) =>
    named(world, world.chance.maybe(0.9) ? kind : world.chance.pick<Kind>(['enum', 'fixed', 'record']), name),
  );
  for (const type of some(world, SCALARS, 0.05)) branches.push(primitive(type));
  for (let i = branches.length - 1; i > 0; i--) {
    const at = world.chance.below(i + 1);
    [branches[i], branches[at]] = [branches[at] as Type, branches[i] as Type];
  }
  const [first] = branches;
  return first !== undefined && world.chance.maybe(other === undefined ? 0.6 : 0.2)
    ? first
    : { kind: 'union', branches };
}

/** Unions of primitives, some with a logical type. */
export function scalarWorld(world: World): Type {
  const branches: Type[] = some(world, PRIMITIVES, 0.4).map((type) => {
    const logical = LOGICAL.filter(([base]) => base === type);
    return logical.length > 0 && world.chance.maybe(0.3)
      ? primitive(...world.chance.pick(logical))
      : primitive(type);
  });
  if (world.chance.maybe(0.3)) branches.reverse();
  const [first] = branches;
  return first !== undefined && branchName(first) !== 'null' && world.chance.maybe(0.3)
    ? first
    : { kind: 'union', branches };
}
