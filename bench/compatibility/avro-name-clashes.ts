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
  type SchemaGenerator,
  type Type,
} from './avro-model.ts';

const TYPE_NAMES: ReadonlyArray<readonly [namespace: string, name: string]> = [
  ['', 'X'],
  ['n', 'X'],
  ['m', 'X'],
  ['n', 'Y'],
];
const FIELD_NAMES = ['a', 'b', 'c'] as const;
const SCALARS = ['int', 'long', 'string', 'bytes', 'double'] as const;

function some<T>(generator: SchemaGenerator, list: readonly T[], share: number): T[] {
  return list.filter(() => generator.chance.maybe(share));
}

/** Fields with a few names, and aliases from the same names. */
function fields(generator: SchemaGenerator): Field[] {
  const made = some(generator, FIELD_NAMES, 0.6).map((name): Field => {
    const type = primitive(generator.chance.pick(SCALARS));
    const value = generator.chance.maybe(0.5) ? generator.valueOf(type) : undefined;
    return { name, aliases: some(generator, FIELD_NAMES, 0.25), type, value };
  });
  return generator.chance.maybe(0.5) ? made : made.reverse();
}

export const clashingFields = (generator: SchemaGenerator, record: RecordType): RecordType => ({
  ...record,
  fields: fields(generator),
});

type Kind = NamedType['kind'];

/** Types of one kind that differ enough to show in the decoded value which of them was chosen. */
function named(
  generator: SchemaGenerator,
  kind: Kind,
  [namespace, name]: (typeof TYPE_NAMES)[number],
): NamedType {
  const aliases = some(generator, TYPE_NAMES, 0.15).map(([space, other]) =>
    space === '' ? other : `${space}.${other}`,
  );
  const head = { namespace, name, aliases };
  if (kind === 'fixed') return { kind, ...head, size: generator.chance.maybe(0.7) ? 1 : 2 };
  if (kind === 'enum') {
    const symbols = generator.chance.maybe(0.7) ? ['A', 'B'] : some(generator, ['A', 'B'], 0.5);
    const fallback =
      symbols.length > 0 && generator.chance.maybe(0.2) ? generator.chance.pick(symbols) : undefined;
    return { kind, ...head, symbols, fallback };
  }
  if (generator.chance.maybe(0.2)) return { kind, ...head, fields: fields(generator) };
  const type = primitive(generator.chance.pick(['int', 'int', 'long', 'string']));
  return { kind, ...head, fields: [{ name: 'a', aliases: [], type, value: undefined }] };
}

/** A type, or a union of types, with the shared names, mostly of one kind.
 *  @param other type of the other schema, whose kind is used */
export function clashingType(generator: SchemaGenerator, other?: Type): Type {
  const others = other?.kind === 'union' ? other.branches : other === undefined ? [] : [other];
  const kind = others.find(isNamed)?.kind ?? generator.chance.pick<Kind>(['enum', 'fixed', 'record']);
  const branches: Type[] = some(generator, TYPE_NAMES, 0.55).map((name) =>
    named(
      generator,
      generator.chance.maybe(0.9) ? kind : generator.chance.pick<Kind>(['enum', 'fixed', 'record']),
      name,
    ),
  );
  for (const type of some(generator, SCALARS, 0.05)) branches.push(primitive(type));
  for (let i = branches.length - 1; i > 0; i--) {
    const at = generator.chance.below(i + 1);
    [branches[i], branches[at]] = [branches[at] as Type, branches[i] as Type];
  }
  const [first] = branches;
  return first !== undefined && generator.chance.maybe(other === undefined ? 0.6 : 0.2)
    ? first
    : { kind: 'union', branches };
}

/** Unions of primitives, some with a logical type. */
export function randomScalars(generator: SchemaGenerator): Type {
  const branches: Type[] = some(generator, PRIMITIVES, 0.4).map((type) => {
    const logical = LOGICAL.filter(([base]) => base === type);
    return logical.length > 0 && generator.chance.maybe(0.3)
      ? primitive(...generator.chance.pick(logical))
      : primitive(type);
  });
  if (generator.chance.maybe(0.3)) branches.reverse();
  const [first] = branches;
  return first !== undefined && branchName(first) !== 'null' && generator.chance.maybe(0.3)
    ? first
    : { kind: 'union', branches };
}
