/** Union with several number types whose values stay plain in avsc, which would
 *  require each in an object.
 *
 *  A bigint is a long. A number goes to the narrowest branch that holds it exactly, in the order
 *  int, float, double, so it is read back unchanged. Where none of these holds it, a long accepts a
 *  safe integer, and a float or double rounds. A wrapped value, `{"int":5}`, names its branch. */
import avsc from 'avsc';

const NUMBERS = new Set(['int', 'long', 'float', 'double']);

type Registry = Readonly<Record<string, avsc.Type>>;

/** True for a union that avsc would call ambiguous only because of its numbers. */
export function isNumberUnion(part: unknown, registry: Registry): part is readonly unknown[] {
  if (!Array.isArray(part)) return false;
  const types = part.map((branch) => typeOf(branch, registry));
  if (types.filter((type) => NUMBERS.has(type)).length < 2) return false;
  const others = types.filter((type) => !NUMBERS.has(type)).map((type) => BUCKETS[type] ?? type);
  return new Set(others).size === others.length;
}

function typeOf(branch: unknown, registry: Registry): string {
  if (typeof branch !== 'string') return String((branch as { readonly type?: unknown }).type);
  return Object.hasOwn(registry, branch) && !NUMBERS.has(branch)
    ? (registry[branch] as avsc.Type).typeName
    : branch;
}

/** avsc's buckets of types whose values it cannot distinguish. */
const BUCKETS: Readonly<Record<string, string>> = {
  bytes: 'buffer',
  fixed: 'buffer',
  enum: 'string',
  map: 'object',
  record: 'object',
};

/** Parts of avsc's types that its declarations omit. */
interface Tap {
  writeLong(value: number): void;
}
interface Branch extends avsc.Type {
  _check(value: unknown, flags?: unknown, hook?: unknown, path?: unknown): boolean;
  _write(tap: Tap, value: unknown): void;
  _copy(value: unknown, options?: { readonly wrap?: number }): unknown;
}

interface Chosen {
  readonly index: number;
  readonly value: unknown;
}

function choose(types: readonly Branch[], names: readonly string[], value: unknown): Chosen | undefined {
  const branch = (name: string): Chosen | undefined => {
    const index = names.indexOf(name);
    return index < 0 ? undefined : { index, value };
  };
  if (typeof value === 'bigint') return branch('long');
  if (typeof value === 'number') {
    const isInt = value === (value | 0) && !Object.is(value, -0);
    const isFloat = Object.is(Math.fround(value), value);
    return (
      (isInt ? branch('int') : undefined) ??
      (isFloat ? branch('float') : undefined) ??
      branch('double') ??
      (Number.isSafeInteger(value) ? branch('long') : undefined) ??
      branch('float')
    );
  }
  if (typeof value === 'object' && value !== null && !ArrayBuffer.isView(value) && !Array.isArray(value)) {
    const [key, more] = Object.keys(value);
    const index = key === undefined || more !== undefined ? -1 : names.indexOf(key);
    if (index >= 0 && NUMBERS.has(names[index] as string))
      return { index, value: (value as Record<string, unknown>)[key as string] };
  }
  const index = types.findIndex((type) => type._check(value));
  return index < 0 ? undefined : { index, value };
}

/** Makes the type of such a union. @param schema fulfills `isNumberUnion`; @param options avsc's
 *  own, with its registry */
export function numberUnion(schema: readonly unknown[], options: unknown): avsc.Type {
  const branches = schema.map((branch) =>
    avsc.Type.forSchema(branch as avsc.Schema, options as Parameters<typeof avsc.Type.forSchema>[1]),
  );
  const WrappedUnion = avsc.types.WrappedUnionType as unknown as new (
    types: readonly avsc.Type[],
    options: unknown,
  ) => avsc.Type;
  const wrapped = new WrappedUnion(branches, options);
  const types = branches as Branch[];
  const names = types.map((type) => (type as avsc.Type & { readonly branchName: string }).branchName);
  const refuse = (value: unknown): never => {
    throw new Error(`no branch of [${names.join(', ')}] takes ${typeof value} ${String(value)}`);
  };
  const own: Record<string, unknown> = {
    typeName: 'union:unwrapped',
    _check(value: unknown, flags: unknown, hook?: (value: unknown, type: unknown) => void, path?: unknown) {
      const chosen = choose(types, names, value);
      if (chosen !== undefined)
        return (types[chosen.index] as Branch)._check(chosen.value, flags, hook, path);
      hook?.(value, this);
      return false;
    },
    _write(tap: Tap, value: unknown) {
      const chosen = choose(types, names, value) ?? refuse(value);
      tap.writeLong(chosen.index);
      (types[chosen.index] as Branch)._write(tap, chosen.value);
    },
    /** `wrap` 2 marks a default, which belongs to the first branch. */
    _copy(value: unknown, copying?: { readonly wrap?: number }) {
      if (copying?.wrap === 2) return (types[0] as Branch)._copy(value, copying);
      const chosen = choose(types, names, value) ?? refuse(value);
      return (types[chosen.index] as Branch)._copy(chosen.value, copying);
    },
  };
  // avsc freezes its types, so an object that inherits from the type overrides the methods.
  const properties = Object.fromEntries(Object.entries(own).map(([key, value]) => [key, { value }]));
  return Object.freeze(Object.create(wrapped, properties)) as avsc.Type;
}
