/** Two types that know nothing of each other but a few names: what two teams may have made of one word. Small worlds
 *  meet often, so rules of names, aliases and branches are met in all their combinations. */
import {
  branchName,
  type Field,
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

/** Fields of a few names with aliases among the same. */
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

function named(world: World, [namespace, name]: (typeof TYPE_NAMES)[number]): NamedType {
  const aliases = some(world, TYPE_NAMES, 0.2).map(([space, other]) =>
    space === '' ? other : `${space}.${other}`,
  );
  const head = { namespace, name, aliases };
  const dice = world.chance.next();
  if (dice < 0.3) return { kind: 'fixed', ...head, size: 1 + world.chance.below(2) };
  if (dice < 0.6) {
    const symbols = some(world, ['A', 'B', 'C'], 0.7);
    const fallback = symbols.length > 0 && world.chance.maybe(0.4) ? world.chance.pick(symbols) : undefined;
    return { kind: 'enum', ...head, symbols, fallback };
  }
  return { kind: 'record', ...head, fields: fields(world) };
}

/** One type, or a union of some, of the few names and of primitives. */
export function typeWorld(world: World): Type {
  const branches: Type[] = some(world, TYPE_NAMES, 0.45).map((name) => named(world, name));
  for (const type of some(world, SCALARS, 0.15)) branches.push(primitive(type));
  for (let i = branches.length - 1; i > 0; i--) {
    const other = world.chance.below(i + 1);
    [branches[i], branches[other]] = [branches[other] as Type, branches[i] as Type];
  }
  const [first] = branches;
  return first !== undefined && world.chance.maybe(0.25) ? first : { kind: 'union', branches };
}

/** Unions of primitives, some of them with a logical type. */
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
