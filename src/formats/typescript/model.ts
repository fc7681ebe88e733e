/** TypeScript types of a schema, before they have names.
 *
 *  Each type has two shapes: the output, which is the values that a decoder returns, and the input,
 *  which is the values that an encoder accepts. Every output is also an input. */

export type TsType =
  | { readonly kind: 'word'; readonly text: string }
  | { readonly kind: 'ref'; readonly to: Declaration }
  | { readonly kind: 'union'; readonly parts: readonly TsType[] }
  | { readonly kind: 'list'; readonly item: TsType; readonly readonly: boolean }
  /** Object with any keys. */
  | { readonly kind: 'map'; readonly value: TsType }
  /** Object with exactly one of the properties. */
  | { readonly kind: 'choice'; readonly members: readonly Property[] };

export interface Property {
  readonly name: string;
  readonly type: TsType;
  readonly doc?: string | undefined;
  readonly optional?: boolean;
}

export type Shape =
  | { readonly kind: 'alias'; readonly type: TsType }
  | {
      readonly kind: 'object';
      readonly properties: readonly Property[];
      /** Groups of properties of which at most one is set. */
      readonly oneofs: ReadonlyArray<readonly Property[]>;
    };

/** Exported type. Its shapes are set after it exists, because types refer to each other. */
export interface Declaration {
  /** Unique in the file. */
  readonly fullName: string;
  /** Preferred name. */
  readonly shortName: string;
  readonly doc: string | undefined;
  output: Shape;
  input: Shape;
}

/** Declarations, the roots first. */
export interface TypeModel {
  readonly declarations: readonly Declaration[];
}

export const word = (text: string): TsType => ({ kind: 'word', text });
export const NULL = word('null');
export const UNDEFINED = word('undefined');
export const NEVER = word('never');
export const NUMBER = word('number');
export const BIGINT = word('bigint');
export const STRING = word('string');
export const BOOLEAN = word('boolean');
export const BUFFER = word('Buffer');
/** Type of bytes as a serializer accepts them. */
export const BYTES_INPUT = word('Uint8Array');

/** String literal in the quotes that the generated files use. */
export function quoted(text: string): string {
  const inside = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'");
  return `'${inside}'`;
}

export const literal = (text: string): TsType => word(quoted(text));

/** Union without nested unions, repeated parts and `never`; null and undefined come last. */
export function union(...parts: readonly TsType[]): TsType {
  const all = parts.flatMap((one) => (one.kind === 'union' ? one.parts : [one]));
  const rankOf = (part: TsType): number => (part === NULL ? 1 : part === UNDEFINED ? 2 : 0);
  const flat: TsType[] = [];
  for (const part of [...all].sort((a, b) => rankOf(a) - rankOf(b)))
    if (part !== NEVER && !flat.some((one) => isSameType(one, part))) flat.push(part);
  const [first] = flat;
  if (first === undefined) return NEVER;
  return flat.length === 1 ? first : { kind: 'union', parts: flat };
}

function isSameType(one: TsType, other: TsType): boolean {
  if (one.kind === 'word') return other.kind === 'word' && one.text === other.text;
  if (one.kind === 'ref') return other.kind === 'ref' && one.to === other.to;
  if (one.kind === 'union') return other.kind === 'union' && areSame(one.parts, other.parts, isSameType);
  if (one.kind === 'list')
    return other.kind === 'list' && one.readonly === other.readonly && isSameType(one.item, other.item);
  if (one.kind === 'map') return other.kind === 'map' && isSameType(one.value, other.value);
  return other.kind === 'choice' && areSame(one.members, other.members, isSameProperty);
}

function areSame<T>(one: readonly T[], other: readonly T[], isSame: (a: T, b: T) => boolean): boolean {
  return one.length === other.length && one.every((part, i) => isSame(part, other[i] as T));
}

const isSameProperty = (one: Property, other: Property): boolean =>
  one.name === other.name &&
  (one.optional ?? false) === (other.optional ?? false) &&
  isSameType(one.type, other.type);

function isSameShape(one: Shape, other: Shape): boolean {
  if (one.kind === 'alias') return other.kind === 'alias' && isSameType(one.type, other.type);
  return (
    other.kind === 'object' &&
    areSame(one.properties, other.properties, isSameProperty) &&
    one.oneofs.length === 0 &&
    other.oneofs.length === 0
  );
}

function* refsOf(type: TsType): Generator<Declaration> {
  if (type.kind === 'ref') yield type.to;
  else if (type.kind === 'union') for (const part of type.parts) yield* refsOf(part);
  else if (type.kind === 'list') yield* refsOf(type.item);
  else if (type.kind === 'map') yield* refsOf(type.value);
  else if (type.kind === 'choice') for (const member of type.members) yield* refsOf(member.type);
}

function* refsOfShape(shape: Shape): Generator<Declaration> {
  if (shape.kind === 'alias') yield* refsOf(shape.type);
  else for (const property of [...shape.properties, ...shape.oneofs.flat()]) yield* refsOf(property.type);
}

/** Types whose input differs from their output, directly or through a type that they contain. */
export function differingInputs({ declarations }: TypeModel): ReadonlySet<Declaration> {
  const users = new Map<Declaration, Declaration[]>();
  for (const one of declarations)
    for (const used of refsOfShape(one.output)) users.set(used, [...(users.get(used) ?? []), one]);
  const differing = new Set(declarations.filter(({ output, input }) => !isSameShape(output, input)));
  for (const one of differing) for (const user of users.get(one) ?? []) differing.add(user);
  return differing;
}
