/** Witness events have the promised coverage, are the same each time, and are finite in number. */
import { describe, expect, it } from 'vitest';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import { AVRO_PRIMITIVES, type AvroNode } from '../../../../src/formats/avro/syntax/tree.ts';
import type { AvroBranchDatum, AvroDatum, AvroRecordDatum } from '../../../../src/formats/datum.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import type { EventRoute, Step } from '../../../../src/registry/compatibility/finding.ts';
import { AVRO_EDGES, AVRO_KEYS, fixedEdges } from '../../../../src/registry/proof/avro/values.ts';
import { avroWitnesses } from '../../../../src/registry/proof/avro/witness.ts';
import { stepsOf } from '../../../steps.ts';

function tree(json: unknown): AvroNode {
  const schema = parseSchema('AVRO', JSON.stringify(json), { lenient: true });
  if (schema.format !== 'AVRO') throw new Error('not Avro');
  return schema.tree;
}
const record = (...fields: readonly unknown[]): unknown => ({ type: 'record', name: 'R', fields });
const field = (name: string, type: unknown): unknown => ({ name, type });
const all = (node: AvroNode, limit = 100_000): AvroDatum[] => [...avroWitnesses(node, { limit })];
const route = (...steps: readonly Step[]): EventRoute | undefined =>
  steps.reduce<EventRoute | undefined>((outer, step) => ({ outer, step }), undefined);

/** Returns every value at each position, over all events. The path identifies the position. */
function valuesAt(node: AvroNode, events: readonly AvroDatum[]): Map<string, AvroDatum[]> {
  const found = new Map<string, AvroDatum[]>();
  const visit = (type: AvroNode, datum: AvroDatum, place: string, depth: number): void => {
    const list = found.get(place) ?? [];
    found.set(place, list);
    list.push(datum);
    if (depth > 12) return;
    switch (type.kind) {
      case 'record':
        for (const [i, one] of type.fields.entries())
          visit(
            one.type,
            (datum as AvroRecordDatum).fields[i] as AvroDatum,
            `${place}.${one.name}`,
            depth + 1,
          );
        return;
      case 'array':
        for (const item of datum as readonly AvroDatum[]) visit(type.items, item, `${place}[]`, depth + 1);
        return;
      case 'map':
        for (const value of (datum as ReadonlyMap<string, AvroDatum>).values())
          visit(type.values, value, `${place}{}`, depth + 1);
        return;
      case 'union': {
        const { branch, value } = datum as AvroBranchDatum;
        visit(type.branches[branch] as AvroNode, value, `${place}|${branch}`, depth + 1);
        return;
      }
      default:
    }
  };
  for (const event of events) visit(node, event, '', 0);
  return found;
}
const key = (datum: AvroDatum): string =>
  typeof datum === 'number' && Object.is(datum, -0)
    ? '-0'
    : datum instanceof Uint8Array
      ? Buffer.from(datum).toString('hex')
      : String(datum);
function expectValues(got: readonly AvroDatum[] | undefined, wanted: readonly AvroDatum[]): void {
  const seen = new Set((got ?? []).map(key));
  expect(wanted.map(key).filter((one) => !seen.has(one))).toEqual([]);
}

const NESTED = tree(
  record(
    field('id', 'string'),
    field('e', { type: 'enum', name: 'E', symbols: ['A', 'B', 'C'] }),
    field('x', { type: 'fixed', name: 'F', size: 3 }),
    field('u', ['null', 'int', { type: 'array', items: 'double' }]),
    field('items', {
      type: 'array',
      items: {
        type: 'record',
        name: 'I',
        fields: [field('q', 'int'), field('t', { type: 'map', values: 'bytes' })],
      },
    }),
  ),
);

describe('coverage', () => {
  it.each(AVRO_PRIMITIVES)('each class of values of %s occurs in some event', (type) => {
    const node = tree(record(field('a', type), field('b', { type: 'array', items: type })));
    const values = valuesAt(node, all(node));
    expectValues(values.get('.a'), AVRO_EDGES[type]);
    expectValues(values.get('.b[]'), AVRO_EDGES[type]);
  });

  it('the value classes are those that break decoders', () => {
    expect(AVRO_EDGES.int).toEqual(expect.arrayContaining([0, 1, -1, 2 ** 24 + 1, 2 ** 31 - 1, -(2 ** 31)]));
    expect(AVRO_EDGES.long).toEqual(
      expect.arrayContaining([0n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]),
    );
    for (const type of ['float', 'double'] as const)
      expect(AVRO_EDGES[type]).toEqual(
        expect.arrayContaining([0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]),
      );
    expect(AVRO_EDGES.float.every((value) => Object.is(Math.fround(value as number), value))).toBe(true);
    const text = (bytes: AvroDatum): boolean => {
      const buffer = Buffer.from(bytes as Uint8Array);
      return Buffer.from(buffer.toString('utf8'), 'utf8').equals(buffer);
    };
    expect(AVRO_EDGES.bytes.filter(text).length).toBeGreaterThanOrEqual(3);
    expect(AVRO_EDGES.bytes.filter((bytes) => !text(bytes)).length).toBeGreaterThanOrEqual(3);
    expect(AVRO_EDGES.string).toEqual(expect.arrayContaining(['', 'a']));
    expect(AVRO_EDGES.string.some((one) => /[\u{10000}-\u{10ffff}]/u.test(one as string))).toBe(true);
  });

  it('symbols, branches, and empty and full collections occur at every place', () => {
    const events = all(NESTED);
    const values = valuesAt(NESTED, events);
    expectValues(values.get('.e'), ['A', 'B', 'C']);
    expectValues(values.get('.x'), fixedEdges(3));
    expect(new Set(values.get('.u')?.map((one) => (one as AvroBranchDatum).branch))).toEqual(
      new Set([0, 1, 2]),
    );
    expectValues(values.get('.u|1'), AVRO_EDGES.int);
    expectValues(values.get('.u|2[]'), AVRO_EDGES.double);
    expectValues(values.get('.items[].q'), AVRO_EDGES.int);
    expectValues(values.get('.items[].t{}'), AVRO_EDGES.bytes);
    const lists = (values.get('.items') ?? []) as ReadonlyArray<readonly AvroDatum[]>;
    expect(lists.some((list) => list.length === 0)).toBe(true);
    expect(lists.some((list) => list.length === 2 && list[0] !== list[1])).toBe(true);
    const maps = (values.get('.items[].t') ?? []) as ReadonlyArray<ReadonlyMap<string, AvroDatum>>;
    expect(maps.some((map) => map.size === 0)).toBe(true);
    expect(maps.some((map) => map.size === 2)).toBe(true);
    expectValues(
      maps.flatMap((map) => [...map.keys()]),
      AVRO_KEYS,
    );
  });

  it('each event except the smallest differs from it in one field', () => {
    const [least, ...rest] = all(NESTED) as readonly AvroRecordDatum[];
    for (const event of rest)
      expect(event.fields.filter((value, i) => value !== least?.fields[i]).length).toBe(1);
    const sizes = [least, ...rest].map((event) => encodeAvro(NESTED, event as AvroDatum).length);
    expect(Math.min(...sizes)).toBe(sizes[0]);
  });

  it('a bounded number of events covers each field', () => {
    const many = tree(record(...Array.from({ length: 50 }, (_, i) => field(`f${i}`, 'string'))));
    const values = valuesAt(many, all(many, 60));
    for (let i = 0; i < 50; i++) expect(new Set(values.get(`.f${i}`)).size).toBeGreaterThan(1);
  });

  it('the events are the same each time', () => {
    const hex = (): string[] => all(NESTED).map((event) => encodeAvro(NESTED, event).toString('hex'));
    expect(hex()).toEqual(hex());
  });
});

describe('types without an event', () => {
  it.each<[string, unknown]>([
    ['an enum without symbols', { type: 'enum', name: 'E', symbols: [] }],
    ['an empty union', []],
    ['a record that requires itself', record(field('r', 'R'))],
    ['two records that require each other', record(field('s', record0('S', field('r', 'R'))))],
    [
      'a record with such a field',
      record(field('a', 'int'), field('e', { type: 'enum', name: 'E', symbols: [] })),
    ],
    ['a union of such alone', [{ type: 'enum', name: 'E', symbols: [] }]],
    ['a fixed that is too large to try', { type: 'fixed', name: 'F', size: 2 ** 30 }],
  ])('a type without an event gives none: %s', (_what, json) => {
    expect(all(tree(json))).toEqual([]);
  });

  it('an array, a map or a branch of a type without events is left empty', () => {
    const never = { type: 'enum', name: 'E', symbols: [] };
    const node = tree(record(field('a', { type: 'array', items: never }), field('u', ['int', 'E'])));
    const values = valuesAt(node, all(node));
    expect(values.get('.a')?.every((list) => (list as readonly AvroDatum[]).length === 0)).toBe(true);
    expect(values.get('.u')?.every((one) => (one as AvroBranchDatum).branch === 0)).toBe(true);
    expectValues(values.get('.u|0'), AVRO_EDGES.int);
  });

  it('an event that would be too large is not built', () => {
    let json: unknown = { type: 'fixed', name: 'F', size: 1024 };
    for (let i = 0; i < 40; i++)
      json = record0(`R${i}`, field('a', json), field('b', i === 0 ? 'F' : `R${i - 1}`));
    expect(all(tree(json))).toEqual([]);
  });
});

function record0(name: string, ...fields: readonly unknown[]): unknown {
  return { type: 'record', name, fields };
}

describe('recursion', () => {
  const list = tree(record(field('n', 'int'), field('next', ['null', 'R'])));

  it('a recursive list has events of several lengths, and ends', () => {
    const values = valuesAt(list, all(list));
    expectValues(values.get('.n'), AVRO_EDGES.int);
    expectValues(values.get('.next|1.n'), AVRO_EDGES.int);
    expectValues(values.get('.next|1.next|1.n'), AVRO_EDGES.int);
    expect(all(list).length).toBeLessThan(100);
  });

  it('many records that contain each other give a bounded number of events', () => {
    const fields = Array.from({ length: 8 }, (_, i) => field(`f${i}`, ['null', 'R']));
    const schema = tree(record(...fields));
    const steps = stepsOf(() => expect(all(schema, 5_000).length).toBeLessThanOrEqual(5_000));
    expect(steps).toBeLessThan(500_000);
  });
});

describe('events along a route', () => {
  it('events along a route pass through it and vary only its end', () => {
    const steps: Step[] = [
      { kind: 'field', key: 'items' },
      { kind: 'item' },
      { kind: 'field', key: 't' },
      { kind: 'value' },
    ];
    const aimed = route(...steps);
    const events = [
      ...avroWitnesses(NESTED, { limit: 1_000, ...(aimed === undefined ? {} : { route: aimed }) }),
    ];
    const values = valuesAt(NESTED, events);
    expectValues(values.get('.items[].t{}'), AVRO_EDGES.bytes);
    expect(events.length).toBe(AVRO_EDGES.bytes.length);
    expect(values.get('.items[].t{}')?.length).toBe(events.length);
    expect(new Set(values.get('.id')).size).toBe(1);
  });

  it('events along a route use the branch of the route, through recursion', () => {
    const list = tree(record(field('n', 'int'), field('next', ['null', 'R'])));
    const next: Step[] = [
      { kind: 'field', key: 'next' },
      { kind: 'branch', index: 1 },
    ];
    const aimed = route(...next, ...next, ...next, { kind: 'field', key: 'n' }) as EventRoute;
    const values = valuesAt(list, [...avroWitnesses(list, { limit: 1_000, route: aimed })]);
    expectValues(values.get('.next|1.next|1.next|1.n'), AVRO_EDGES.int);
    expect(new Set(values.get('.n'))).toEqual(new Set([0]));
  });

  it('a route that the schema does not have gives no events', () => {
    const astray = route({ kind: 'field', key: 'nowhere' }) as EventRoute;
    expect([...avroWitnesses(NESTED, { limit: 10, route: astray })]).toEqual([]);
    const wrong = route({ kind: 'item' }) as EventRoute;
    expect([...avroWitnesses(NESTED, { limit: 10, route: wrong })]).toEqual([]);
  });
});

describe('random events', () => {
  it('random events follow the planned ones up to the limit and fit the schema', () => {
    let state = 1;
    const random = (): number => {
      state = (Math.imul(state, 48_271) % 2_147_483_647) >>> 0;
      return state / 4_294_967_296;
    };
    const planned = all(NESTED).length;
    const events = [...avroWitnesses(NESTED, { limit: planned + 50, random })];
    expect(events.length).toBe(planned + 50);
    for (const event of events) expect(encodeAvro(NESTED, event).length).toBeGreaterThan(0);
    const least = events[0] as AvroRecordDatum;
    const mixed = events
      .slice(planned)
      .filter(
        (one) => (one as AvroRecordDatum).fields.filter((value, i) => value !== least.fields[i]).length > 1,
      );
    expect(mixed.length).toBeGreaterThan(30);
  });
});
