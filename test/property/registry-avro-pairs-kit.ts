/** Random pairs of Avro schemas: a writer with every kind of type, and a reader derived from the
 *  writer by some changes. Some changes are readable, some break certain events, and some break
 *  all. */
import type { Next } from './registry-avro-decoder-kit.ts';

type Json = Readonly<Record<string, unknown>>;

const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'] as const;
const WIDER: Readonly<Record<string, readonly string[]>> = {
  int: ['long', 'float', 'double'],
  long: ['float', 'double'],
  float: ['double'],
  string: ['bytes'],
  bytes: ['string'],
};
const DEFAULTS: Readonly<Record<string, unknown>> = {
  null: null,
  boolean: true,
  int: -7,
  long: 2 ** 40,
  float: 0.1,
  double: 1e300,
  bytes: '\u0001\u00ff',
  string: 'größe',
};

const pick = <T>(items: readonly T[], next: Next): T => items[next(items.length)] as T;

function shuffled<T>(items: readonly T[], next: Next): T[] {
  const rest = [...items];
  return items.map(() => rest.splice(next(rest.length), 1)[0] as T);
}

/** Returns the name that distinguishes the branches of a union. */
function branchName(type: unknown): string {
  if (typeof type === 'string') return type;
  const { type: kind, name } = type as Json;
  return String(name ?? kind);
}

/** Full names of the types defined so far, and of the enclosing records. */
interface World {
  readonly next: Next;
  count: number;
  readonly done: string[];
  readonly open: string[];
}

function type(world: World, depth: number): unknown {
  const { next } = world;
  switch (next(depth > 3 ? 4 : 14)) {
    case 0:
    case 1:
    case 2:
      return pick(PRIMITIVES, next);
    case 3:
      return world.done.length > 0 ? pick(world.done, next) : 'long';
    case 4:
      return { type: 'array', items: type(world, depth + 1) };
    case 5:
      return { type: 'map', values: type(world, depth + 1) };
    case 6:
    case 7:
    case 8:
      return union(world, depth);
    case 9:
      return world.open.length > 0 ? ['null', pick(world.open, next)] : 'string';
    default:
      return named(world, depth);
  }
}

function union(world: World, depth: number): unknown {
  const branches = new Map<string, unknown>();
  for (let left = 1 + world.next(5); left > 0; left--) {
    const branch = type(world, depth + 1);
    if (!Array.isArray(branch) && !branches.has(branchName(branch))) branches.set(branchName(branch), branch);
  }
  return branches.size === 0 ? ['null', 'int'] : shuffledIfPlain([...branches.values()], world.next);
}

/** A type is defined before it is used, so only branches without definitions are reordered. */
function shuffledIfPlain(branches: readonly unknown[], next: Next): unknown[] {
  return branches.every((branch) => typeof branch === 'string') ? shuffled(branches, next) : [...branches];
}

function named(world: World, depth: number): unknown {
  const { next } = world;
  const name = `n.T${world.count++}`;
  switch (next(4)) {
    case 0:
      world.done.push(name);
      return { type: 'enum', name, symbols: ['A', 'B', 'C', 'D'].slice(0, 1 + next(4)) };
    case 1:
      world.done.push(name);
      return { type: 'fixed', name, size: 1 + next(5) };
    default: {
      world.open.push(name);
      const fields = Array.from({ length: next(5) }, (_, i) => ({
        name: `f${i}`,
        type: type(world, depth + 1),
      }));
      world.open.pop();
      world.done.push(name);
      return { type: 'record', name, fields };
    }
  }
}

/** The result may be an invalid schema: a removed branch may have defined a type that another
 *  branch uses. */
export function writerSchema(next: Next): unknown {
  const world: World = { next, count: 0, done: [], open: [] };
  return next(4) === 0 ? type(world, 0) : named(world, 0);
}

/** True with a probability of `chance` percent. */
const happens = (next: Next, chance: number): boolean => next(100) < chance;

function changed(json: unknown, next: Next): unknown {
  if (typeof json === 'string') {
    if (happens(next, 10)) return optional(json, next);
    if (happens(next, 20) && WIDER[json] !== undefined) return pick(WIDER[json], next);
    return happens(next, 4) ? pick(PRIMITIVES, next) : json;
  }
  if (Array.isArray(json)) return changedUnion(json, next);
  const { type: kind } = json as Json;
  if (happens(next, 5)) return optional(changedInside(json as Json, next), next);
  if (kind === 'array' && happens(next, 3)) return { type: 'map', values: (json as Json)['items'] };
  if (kind === 'map' && happens(next, 3)) return { type: 'array', items: (json as Json)['values'] };
  return changedInside(json as Json, next);
}

function optional(type: unknown, next: Next): unknown {
  const others = ['null', 'boolean', 'double', 'bytes'].filter((one) => one !== branchName(type));
  return shuffled([type, pick(others, next)], next);
}

/** Java reads a record as any other record of the same form, so no record branch is removed while
 *  another record branch remains. */
const isRecord = (branch: unknown): boolean =>
  (branch as Json)['type'] === 'record' || /^n\./.test(String(branch));

function changedUnion(branches: readonly unknown[], next: Next): unknown {
  const records = branches.filter(isRecord).length;
  let list = branches.map((branch) => {
    const other = changed(branch, next);
    return Array.isArray(other) || (typeof branch === 'string' && typeof other !== 'string') ? branch : other;
  });
  if (list.length > 1 && happens(next, 15)) {
    const at = next(list.length);
    if (!isRecord(list[at]) || records === 1) list = list.filter((_, i) => i !== at);
  }
  if (happens(next, 15)) list.push(pick(PRIMITIVES, next));
  if (happens(next, 30)) list = shuffled(list, next);
  if (happens(next, 8) && records <= 1 && list.length > 0) return pick(list, next);
  const byName = new Map(list.map((branch) => [branchName(branch), branch]));
  return [...byName.values()];
}

function changedInside(json: Json, next: Next): Json {
  switch (json['type']) {
    case 'array':
      return { ...json, items: changed(json['items'], next) };
    case 'map':
      return { ...json, values: changed(json['values'], next) };
    case 'fixed':
      return happens(next, 5) ? { ...json, size: 9 } : json;
    case 'enum': {
      let symbols = json['symbols'] as readonly string[];
      if (happens(next, 30)) symbols = shuffled([...symbols, 'More'], next);
      if (happens(next, 25)) symbols = symbols.length > 1 ? symbols.slice(1) : ['Other'];
      return { ...json, symbols, ...(happens(next, 40) ? { default: symbols[0] } : {}) };
    }
    default:
      return { ...json, fields: changedFields(json['fields'] as readonly Json[], next) };
  }
}

function changedFields(fields: readonly Json[], next: Next): unknown[] {
  let list = fields.flatMap((field): Json[] => {
    if (happens(next, 12)) return [];
    const inside = { ...field, type: changed(field['type'], next) };
    return happens(next, 12)
      ? [{ ...inside, name: `${String(field['name'])}_later`, aliases: [field['name'], 'never'] }]
      : [inside];
  });
  if (happens(next, 25)) {
    const type = pick(PRIMITIVES, next);
    const added = pick<Json>(
      [
        { name: 'added', type, default: DEFAULTS[type] },
        { name: 'added', type: [type, type === 'null' ? 'int' : 'null'], default: DEFAULTS[type] },
        {
          name: 'added',
          type: { type: 'map', values: { type: 'array', items: type } },
          default: { k: [DEFAULTS[type]] },
        },
        {
          name: 'added',
          type: {
            type: 'record',
            name: `n.Added${next(1_000_000)}`,
            fields: [
              { name: 'a', type },
              { name: 'b', type: ['int', 'string'], default: 4 },
            ],
          },
          default: { a: DEFAULTS[type] },
        },
      ],
      next,
    );
    list.push(added);
  }
  if (happens(next, 3)) list.push({ name: 'wanted', type: pick(PRIMITIVES, next) });
  if (happens(next, 30)) list = shuffled(list, next);
  return list;
}

/** Gives some types of a schema another name, with an alias for the old name. */
function renamed(json: unknown, next: Next): unknown {
  const names = new Map<string, string>();
  const nameOf = (name: string): string => {
    const known =
      names.get(name) ?? (/^n\.T/.test(name) && happens(next, 10) ? name.replace('T', 'Later') : name);
    names.set(name, known);
    return known;
  };
  const walk = (part: unknown): unknown => {
    if (typeof part === 'string') return nameOf(part);
    if (Array.isArray(part)) return part.map(walk);
    const { type: kind, name, items, values, fields } = part as Json;
    if (kind === 'array') return { ...(part as Json), items: walk(items) };
    if (kind === 'map') return { ...(part as Json), values: walk(values) };
    const other = nameOf(String(name));
    return {
      ...(part as Json),
      name: other,
      ...(other === name ? {} : { aliases: [name] }),
      ...(fields === undefined
        ? {}
        : { fields: (fields as Json[]).map((field) => ({ ...field, type: walk(field['type']) })) }),
    };
  };
  return walk(json);
}

/** The result may be an invalid schema: a change can remove the definition of a type that is used
 *  later. */
export const readerSchema = (writer: unknown, next: Next): unknown => renamed(changed(writer, next), next);
