/** Random Avro schemas as JSON: every type, names with and without namespaces, and all optional
 *  properties. */
import fc from 'fast-check';

export type Json = Readonly<Record<string, unknown>>;

const PRIMITIVES = ['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string'] as const;
const LOGICAL: ReadonlyArray<readonly [string, string]> = [
  ['int', 'date'],
  ['long', 'timestamp-millis'],
  ['string', 'uuid'],
  ['string', 'date'],
  ['bytes', 'mine'],
];

const text = fc.string({
  unit: fc.constantFrom('a', '"', '\\', '/', '\n', '\u0001', '\u007f', 'é', '\u2028', '😀', ' '),
});
/** A number that a double can represent, so that JavaScript can print it. */
const number = fc.oneof(
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e6, max: 1e6 }),
);
const jsonValue: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom(null, true, false),
    number,
    text,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b', '10', '9', 'type', 'name'), tie('value'), { maxKeys: 3 }),
  ),
}))['value'] as fc.Arbitrary<unknown>;

const props = fc.dictionary(
  fc.constantFrom('owner', 'x-y', '7', '10', 'é', 'precision', 'scale', 'java-class', 'sensitive'),
  jsonValue,
  { maxKeys: 3 },
);
const maybe = <T>(key: string, value: fc.Arbitrary<T>): fc.Arbitrary<Json> =>
  fc.option(value, { nil: undefined }).map((made) => (made === undefined ? {} : { [key]: made }));
const merged = (...parts: ReadonlyArray<fc.Arbitrary<Json>>): fc.Arbitrary<Json> =>
  fc
    .tuple(...parts)
    .chain((list) =>
      fc.shuffledSubarray(Object.entries(Object.assign({}, ...list)), {
        minLength: Object.keys(Object.assign({}, ...list)).length,
      }),
    )
    .map((entries) => Object.fromEntries(entries));

const NAMESPACES = ['', 'n', 'n.sub', 'm'];
const alias = fc.constantFrom('Old', 'n.Old', 'm.Older', 'map', 'n.map');

/** State of a schema under construction. A named type is used only after its definition. */
interface World {
  count: number;
  readonly names: string[];
}

/** Random choices are drawn first and consumed while the schema is built, so that names can depend
 *  on earlier ones. */
interface Choices {
  next(most: number): number;
}

function build(world: World, choices: Choices, parts: Parts, depth: number, namespace: string): unknown {
  const kind = choices.next(depth > 4 ? 3 : 10);
  switch (kind) {
    case 0:
      return PRIMITIVES[choices.next(PRIMITIVES.length)];
    case 1: {
      const [type, logicalType] = LOGICAL[choices.next(LOGICAL.length)] as readonly [string, string];
      return { type, logicalType, ...parts.props() };
    }
    case 2: {
      const name = world.names[choices.next(Math.max(1, world.names.length))];
      return name ?? 'string';
    }
    case 3:
      return { type: 'array', items: build(world, choices, parts, depth + 1, namespace), ...parts.props() };
    case 4:
      return { type: 'map', values: build(world, choices, parts, depth + 1, namespace), ...parts.props() };
    case 5: {
      const branches = ['null', 'int', 'string', { type: 'array', items: 'long' }].slice(
        0,
        1 + choices.next(4),
      );
      return choices.next(2) === 0 ? branches : [...branches].reverse();
    }
    default:
      return named(world, choices, parts, depth, namespace);
  }
}

function named(world: World, choices: Choices, parts: Parts, depth: number, enclosing: string): unknown {
  const own = NAMESPACES[choices.next(NAMESPACES.length)] as string;
  const style = choices.next(3);
  const short = ['T', 'map', 'U_'][choices.next(3)] + String(world.count++);
  // Full name, name with a separate namespace, or inherited namespace.
  const namespace = style === 2 || (style === 0 && own === '') ? enclosing : own;
  const full = namespace === '' ? short : `${namespace}.${short}`;
  const head =
    style === 0 && own !== ''
      ? { name: full }
      : style === 1
        ? { name: short, namespace: own }
        : { name: short };
  const beside = { ...head, ...parts.beside(), ...parts.props() };
  const use = namespace === '' ? undefined : full;
  const kind = choices.next(3);
  if (kind === 0) {
    if (use !== undefined) world.names.push(use);
    const symbols = ['A', 'B', 'C'].slice(0, 1 + choices.next(3));
    return { ...beside, type: 'enum', symbols, ...(choices.next(2) === 0 ? { default: 'A' } : {}) };
  }
  if (kind === 1) {
    if (use !== undefined) world.names.push(use);
    return { ...beside, type: 'fixed', size: 1 + choices.next(20) };
  }
  const fields: unknown[] = [];
  const count = choices.next(4);
  // A record can be used inside itself, behind a union.
  for (let i = 0; i < count; i++) {
    const type = build(world, choices, parts, depth + 1, namespace);
    fields.push({
      name: `f${i}`,
      type,
      ...parts.fieldBeside(),
      ...parts.fieldProps(),
      ...defaultOf(type, choices),
    });
  }
  if (use !== undefined) {
    if (choices.next(3) === 0) fields.push({ name: 'self', type: ['null', use], default: null });
    world.names.push(use);
  }
  return { ...beside, type: 'record', fields };
}

const DEFAULTS: Readonly<Record<string, readonly unknown[]>> = {
  null: [null],
  boolean: [true],
  int: [7, -1, 0],
  long: [8, 2 ** 40],
  float: [1, 0.1, 2.5e-7, 16_777_217, 'NaN'],
  double: [1, 0.1, 1e21, 1.5e-9, 'Infinity', 123_456.789],
  bytes: ['\u0001\u00ff'],
  string: ['x', 'ä"'],
};

function defaultOf(type: unknown, choices: Choices): Json {
  if (choices.next(2) === 0) return {};
  const word = typeof type === 'string' ? type : Array.isArray(type) ? type[0] : (type as Json)['type'];
  const values = typeof word === 'string' ? DEFAULTS[word] : undefined;
  if (values === undefined) return word === 'array' ? { default: [] } : word === 'map' ? { default: {} } : {};
  const value = values[choices.next(values.length)];
  // A string represents a number only if the field itself is a number.
  return typeof value === 'string' && Array.isArray(type) && word !== 'string' && word !== 'bytes'
    ? {}
    : { default: value };
}

interface Parts {
  beside(): Json;
  fieldBeside(): Json;
  props(): Json;
  fieldProps(): Json;
}

const aliases = maybe('aliases', fc.array(alias, { maxLength: 3 }));
const doc = maybe('doc', text);
const order = maybe('order', fc.constantFrom('ascending', 'descending', 'ignore', 'Ignore'));
const fieldAliases = maybe('aliases', fc.array(fc.constantFrom('b', 'c', 'a'), { maxLength: 3 }));

function pool<T>(items: readonly T[], choices: Choices): () => T {
  return () => items[choices.next(items.length)] as T;
}

/** A schema that every reader of the format accepts. */
export const avroSchema: fc.Arbitrary<unknown> = fc
  .record({
    numbers: fc.array(fc.nat(1_000_000), { minLength: 60, maxLength: 60 }),
    beside: fc.array(merged(aliases, doc), { minLength: 4, maxLength: 4 }),
    fieldBeside: fc.array(merged(fieldAliases, doc, order), { minLength: 4, maxLength: 4 }),
    props: fc.array(props, { minLength: 4, maxLength: 4 }),
  })
  .map(({ numbers, beside, fieldBeside, props: list }) => {
    let at = 0;
    const choices: Choices = {
      next: (most) => (numbers[at++ % numbers.length] as number) % Math.max(1, most),
    };
    const without: Json = {};
    const some = [without, without, ...list];
    const parts: Parts = {
      beside: pool(beside, choices),
      fieldBeside: pool(fieldBeside, choices),
      props: pool(some, choices),
      fieldProps: pool(some, choices),
    };
    const world: World = { count: 0, names: [] };
    // The drawn numbers repeat when they are used up, so the depth limits the recursion.
    return choices.next(4) === 0
      ? build(world, choices, parts, 0, '')
      : named(world, { next: choices.next }, parts, 0, '');
  });
