/** Witness events of a Protobuf schema: the values that must occur in each kind of field, and the
 *  values that must not occur. */
import { describe, expect, it } from 'vitest';
import type { ProtoDatum } from '../../../../src/formats/datum.ts';
import { encodeProto } from '../../../../src/formats/protobuf/codec/encoder.ts';
import { parseProto } from '../../../../src/formats/protobuf/tree.ts';
import type { EventRoute, Step } from '../../../../src/registry/compatibility/finding.ts';
import { protoJson } from '../../../../src/registry/proof/protobuf/json.ts';
import { protoWitnesses } from '../../../../src/registry/proof/protobuf/witness.ts';
import type { WitnessOptions } from '../../../../src/registry/proof/witness.ts';
import { stepsOf } from '../../../steps.ts';

const routeOf = (...steps: readonly Step[]): EventRoute =>
  steps.reduce<EventRoute | undefined>((outer, step) => ({ outer, step }), undefined) as EventRoute;
const root = (message: string): Step => ({ kind: 'root', message });
const field = (key: number): Step => ({ kind: 'field', key });

/** Returns every event as JSON and as a datum, and checks that the writer can write it. */
function events(
  text: string,
  options: Partial<WitnessOptions> = {},
  name = 'M',
): { json: string[]; data: ProtoDatum[] } {
  const { tree } = parseProto(text);
  const json: string[] = [];
  const data: ProtoDatum[] = [];
  for (const { path, datum } of protoWitnesses(tree, { limit: 5_000, ...options })) {
    const message = tree.messages.find((one) => one.path.join() === path.join());
    if (message === undefined) expect.fail('an event of no message');
    expect(encodeProto(message, datum)).toBeInstanceOf(Buffer);
    if (message.name !== name) continue;
    json.push(protoJson(datum, message));
    data.push(datum);
  }
  return { json, data };
}

/** Returns the values of field 1 in the events that have no other field. */
const alone = (data: readonly ProtoDatum[]): unknown[] =>
  data.filter(({ size }) => size === 1).map((datum) => datum.get(1));

const PROTO3 = 'syntax = "proto3"; enum E { A = 0; B = 1; C = -3; }';
const PROTO2 = 'syntax = "proto2"; enum E { A = 4; B = 9; }';

describe('single field', () => {
  it.each([
    ['int32', [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)]],
    ['sint32', [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)]],
    ['sfixed32', [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)]],
    ['uint32', [0, 1, 2 ** 31, 2 ** 32 - 1]],
    ['fixed32', [0, 1, 2 ** 31, 2 ** 32 - 1]],
    ['int64', [0n, -1n, 2n ** 31n, 2n ** 32n + 5n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]],
    ['sint64', [0n, -1n, 2n ** 31n, 2n ** 32n + 5n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]],
    ['sfixed64', [0n, -1n, 2n ** 31n, 2n ** 32n + 5n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]],
    ['uint64', [0n, 2n ** 31n, 2n ** 32n + 5n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n]],
    ['fixed64', [0n, 2n ** 31n, 2n ** 32n + 5n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n]],
    ['bool', [false, true]],
    ['float', [0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]],
    ['double', [0, -0, Number.NaN, Number.POSITIVE_INFINITY, Number.MIN_VALUE, Number.MAX_VALUE]],
    ['string', ['', '\u0000', '\ufeffx']],
    ['E', [0, 1, -3]],
  ] as const)(
    'a field of type %s with presence is absent in some event, and has each edge value in another',
    (type, values) => {
      const { data } = events(`${PROTO3} message M { optional ${type} f = 1; }`);
      expect(data.some(({ size }) => size === 0)).toBe(true);
      const held = alone(data);
      for (const value of values)
        expect({ value, found: held.some((one) => Object.is(one, value)) }).toEqual({ value, found: true });
      // Each value occurs once.
      expect(new Set(held.map((one) => (Object.is(one, -0) ? '-0' : one))).size).toBe(held.length);
    },
  );

  it('the witness bytes are empty, valid text and invalid text', () => {
    const held = alone(events(`${PROTO3} message M { optional bytes f = 1; }`).data) as Uint8Array[];
    const isText = (one: Uint8Array): boolean => {
      try {
        return new TextDecoder('utf-8', { fatal: true }).decode(one) !== undefined;
      } catch {
        return false;
      }
    };
    expect(held.some(({ length }) => length === 0)).toBe(true);
    expect(held.filter(isText).length).toBeGreaterThan(2);
    expect(held.filter((one) => !isText(one)).length).toBeGreaterThan(2);
  });

  it('a field without presence is not written at its default, and minus zero is not the default', () => {
    for (const [type, zero] of [
      ['int64', 0n],
      ['bool', false],
      ['string', ''],
      ['E', 0],
      ['double', 0],
    ] as const) {
      const held = alone(events(`${PROTO3} message M { ${type} f = 1; }`).data);
      expect({ type, held: held.length > 0, zero: held.some((one) => Object.is(one, zero)) }).toEqual({
        type,
        held: true,
        zero: false,
      });
    }
    expect(
      alone(events(`${PROTO3} message M { double f = 1; }`).data).some((one) => Object.is(one, -0)),
    ).toBe(true);
    const bytes = alone(events(`${PROTO3} message M { bytes f = 1; }`).data) as Uint8Array[];
    expect(bytes.every(({ length }) => length > 0)).toBe(true);
  });

  it('an open enum has unnamed numbers, and a closed enum has none', () => {
    const open = alone(events(`${PROTO3} message M { optional E f = 1; }`).data) as number[];
    expect(open.filter((one) => ![0, 1, -3].includes(one)).length).toBeGreaterThan(1);
    expect(open.some((one) => one < 0 && one !== -3)).toBe(true);
    expect(alone(events(`${PROTO2} message M { optional E f = 1; }`).data).sort()).toEqual([4, 9]);
  });

  it('a required field is never absent', () => {
    const { data } = events(`${PROTO2} message M { required int32 f = 1; optional int32 g = 2; }`);
    expect(data.length).toBeGreaterThan(5);
    expect(data.every((datum) => datum.has(1))).toBe(true);
  });
});

describe('several values', () => {
  it('a list is empty, has one item of each edge value, and two different items', () => {
    const { json } = events(`${PROTO3} message M { repeated int32 f = 1; }`);
    for (const one of ['{}', '{"f":[0]}', '{"f":[-1]}', '{"f":[2147483647]}', '{"f":[0,1]}', '{"f":[1,0]}'])
      expect(json).toContain(one);
  });

  it('a map is empty, has one entry of each edge key and value, and two entries', () => {
    const { json } = events(`${PROTO3} message M { map<bool, int32> f = 1; }`);
    for (const one of [
      '{}',
      '{"f":{"true":1}}',
      '{"f":{"false":0}}',
      '{"f":{"true":-2147483648}}',
      '{"f":{"true":0,"false":1}}',
    ])
      expect(json).toContain(one);
    const text = events(`${PROTO3} message M { map<string, int32> f = 1; }`).json;
    for (const key of ['', '__proto__', 'größe🚚'])
      expect(text).toContain(`{"f":{${JSON.stringify(key)}:0}}`);
  });

  it('a list that could be a map has one key twice', () => {
    const { json } = events(
      `${PROTO3} message M { repeated N f = 1; } message N { string k = 1; int32 v = 2; }`,
    );
    expect(json).toContain('{"f":[{"k":"a","v":1},{"k":"a","v":-1}]}');
    expect(json).toContain('{"f":[{"k":"a"},{"k":"a"}]}');
  });

  it('a nested message is absent, empty and full, and has each edge of its own fields', () => {
    const { json } = events(
      `${PROTO3} message M { N n = 1; } message N { int32 a = 1; repeated bool b = 2; O o = 3; } message O { sint64 x = 1; }`,
    );
    for (const one of [
      '{}',
      '{"n":{}}',
      '{"n":{"a":1,"b":[true,true],"o":{"x":"1"}}}',
      '{"n":{"a":-1}}',
      '{"n":{"o":{"x":"-9223372036854775808"}}}',
    ])
      expect(json).toContain(one);
  });

  it('each member of a oneof is chosen alone, and other fields are set in pairs and all together', () => {
    const { data, json } = events(
      `${PROTO3} message M { oneof o { int32 a = 1; string b = 2; } int32 c = 3; repeated string d = 4; bool e = 5; }`,
    );
    expect(data.some((datum) => datum.has(1))).toBe(true);
    expect(data.some((datum) => datum.has(2))).toBe(true);
    expect(data.every((datum) => !(datum.has(1) && datum.has(2)))).toBe(true);
    const numbers = data.map((datum) => [...datum.keys()].sort().join());
    for (const pair of ['1,3', '1,4', '1,5', '2,3', '2,4', '2,5', '3,4', '3,5', '4,5', '1,3,4,5', '2,3,4,5'])
      expect(numbers).toContain(pair);
    expect(json).toContain('{"a":1,"c":1}');
  });

  it('groups and extensions occur like other fields', () => {
    const { json } = events(
      'syntax = "proto2"; package p; message M { optional group G = 1 { optional int32 a = 1; } extensions 100; } extend M { optional bool x = 100; }',
      {},
      'p.M',
    );
    for (const one of ['{"g":{}}', '{"g":{"a":-1}}', '{"[p.x]":true}', '{"[p.x]":false}'])
      expect(json).toContain(one);
  });
});

describe('endless schemas', () => {
  it('a message inside itself is entered a few times', () => {
    const { json } = events(`${PROTO3} message M { M m = 1; repeated M l = 2; int32 a = 3; }`);
    expect(json).toContain('{"m":{"m":{"a":1}}}');
    const depthOf = (one: string): number => {
      let [depth, most] = [0, 0];
      for (const char of one) {
        depth += char === '{' ? 1 : char === '}' ? -1 : 0;
        most = Math.max(most, depth);
      }
      return most;
    };
    expect(Math.max(...json.map(depthOf))).toBeLessThan(10);
    expect(json.length).toBeLessThan(5_000);
  });

  it('a message that requires itself has no event, and others omit it', () => {
    const text = `${PROTO2} message M { required N n = 1; } message N { required O o = 1; } message O { required N n = 1; }
      message P { optional M m = 1; repeated N n = 2; optional int32 a = 3; }`;
    expect(events(text).json).toEqual([]);
    expect(events(text, {}, 'N').json).toEqual([]);
    const { json } = events(text, {}, 'P');
    expect(json).toContain('{"a":1}');
    expect(json.some((one) => /"[mn]"/.test(one))).toBe(false);
    const aimed = events(text, { route: routeOf(root('P'), field(1)) }, 'P').json;
    expect(aimed.filter((one) => one.includes('"m"'))).toEqual([]);
  });

  it('required messages whose size doubles at every level are not built', () => {
    const levels = Array.from(
      { length: 40 },
      (_, i) => `message N${i} { required N${i + 1} a = 1; required N${i + 1} b = 2; }`,
    );
    const text = `syntax = "proto2"; ${levels.join(' ')} message N40 { optional int32 a = 1; }`;
    expect(events(text, { limit: 100 }, 'N0').json).toEqual([]);
    expect(events(text, { limit: 200 }, 'N38').json.length).toBeGreaterThan(3);
  });

  it('optional messages whose size doubles at every level end at the limit', () => {
    const levels = Array.from(
      { length: 60 },
      (_, i) => `message N${i} { N${i + 1} a = 1; N${i + 1} b = 2; }`,
    );
    const { tree } = parseProto(`syntax = "proto3"; ${levels.join(' ')} message N60 { int32 a = 1; }`);
    const steps = stepsOf(() => expect([...protoWitnesses(tree, { limit: 2_000 })]).toHaveLength(2_000));
    expect(steps).toBeLessThan(3_000_000);
  });
});

describe('limited number of events', () => {
  const text = `${PROTO3} message M { int32 a = 1; string b = 2; N n = 3; } message N { bytes c = 1; } message O { N n = 1; }`;

  it('a limited number of events covers every message and field', () => {
    const seen = new Set<string>();
    const { tree } = parseProto(text);
    for (const { path, datum } of protoWitnesses(tree, { limit: 16 }))
      for (const number of datum.keys()) seen.add(`${path}:${number}`);
    expect([...seen].sort()).toEqual(['0:1', '0:2', '0:3', '1:1', '2:1']);
  });

  it('the events are the same each time, including random ones', () => {
    const made = (): string[] => {
      let state = 1;
      const random = (): number => {
        state = (state * 48_271) % 2_147_483_647;
        return state / 2_147_483_647;
      };
      return events(text, { limit: 400, random }).json;
    };
    expect(made()).toEqual(made());
    expect(made().length).toBeGreaterThan(events(text, { limit: 400 }).json.length);
  });
});

describe('route to a finding', () => {
  const text = `${PROTO3} message M { repeated N n = 1; map<string, N> m = 2; int32 a = 3; }
    message N { O o = 1; bool b = 2; } message O { sint32 x = 1; repeated int32 y = 2; }`;

  it('a route leads through lists and maps, and only its end varies', () => {
    const along = routeOf(root('M'), field(1), { kind: 'item' }, field(1), field(1));
    const { json } = events(text, { route: along });
    for (const one of [
      '{"n":[{"o":{}}]}',
      '{"n":[{"o":{"x":-2147483648}}]}',
      '{"n":[{"o":{"x":1,"y":[1,-1]}}]}',
    ])
      expect(json).toContain(one);
    expect(json.every((one) => one.includes('"n":[') && one.includes('"o"'))).toBe(true);
    const through = events(text, { route: routeOf(root('M'), field(2), { kind: 'value' }, field(2)) }).json;
    expect(through).toContain('{"m":{"k":{"b":true}}}');
  });

  it('the end of a route is also absent in an event whose other fields are set', () => {
    const { json } = events(text, { route: routeOf(root('M'), field(1), { kind: 'item' }, field(2)) });
    expect(
      json.some((one) => one.includes('"b":true') && one.includes('"a":1') && one.includes('"o":')),
    ).toBe(true);
  });

  it('a route to a message varies all of it, and an unknown route gives no events', () => {
    expect(events(text, { route: routeOf(root('O')) }, 'O').json).toEqual(
      expect.arrayContaining(['{}', '{"x":-1}', '{"y":[0,1]}', '{"x":1,"y":[1,-1]}']),
    );
    expect(events(text, { route: routeOf(root('O')) }, 'M').json).toEqual([]);
    expect(events(text, { route: routeOf(root('M'), field(9)) }).json).toEqual([]);
    expect(events(text, { route: routeOf(root('X')) }).json).toEqual([]);
  });
});

describe('JSON form of a Protobuf event', () => {
  it('the JSON form keeps digits, bytes and special numbers', () => {
    const { tree } = parseProto(
      `${PROTO3} message M { int64 a = 1; bytes b = 2; float c = 3; repeated E d = 4; map<int64, double> e = 5; string f = 6; }`,
    );
    const message = tree.messages[0];
    if (message === undefined) expect.fail('no message');
    const json = protoJson(
      new Map<number, never>([
        [1, -(2n ** 63n)],
        [2, Uint8Array.of(255, 0)],
        [3, Number.NaN],
        [4, [1, 77]],
        [5, [[5n, -0]]],
        [6, '"\u0000'],
      ] as unknown as Array<[number, never]>),
      message,
    );
    expect(json).toBe(
      '{"a":"-9223372036854775808","b":"/wA=","c":"NaN","d":["B",77],"e":{"5":-0.0},"f":"\\"\\u0000"}',
    );
  });
});
