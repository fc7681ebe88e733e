/** Random Protobuf schemas in the three syntaxes, values of their messages, and the expected result
 *  of a reader of the same schema, computed from the value and never from bytes. */

import type { ProtoDatum, ProtoFieldDatum, ProtoValueDatum } from '../../src/formats/datum.ts';
import type { ProtoField, ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import { parseSchema } from '../../src/formats/schema.ts';

/** Draws a number from 0 up to, but excluding, `below`. */
export type Random = (below: number) => number;

/** Linear congruential generator of Numerical Recipes; its high bits are random enough here. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const chance = (random: Random, percent: number): boolean => random(100) < percent;
const pick = <T>(random: Random, list: readonly T[]): T => list[random(list.length)] as T;

export const SYNTAXES = ['proto2', 'proto3', 'editions'] as const;
export type Syntax = (typeof SYNTAXES)[number];

const SCALARS =
  'int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool float double string bytes'.split(
    ' ',
  );
const KEYS = 'int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string'.split(
  ' ',
);
const MESSAGES = ['M0', 'M1', 'M2'];
const ENUMS = ['E0', 'E1'];
const HEAD: Readonly<Record<Syntax, string>> = {
  proto2: 'syntax = "proto2";',
  proto3: 'syntax = "proto3";',
  editions: 'edition = "2023";',
};

export interface SchemaOptions {
  /** True: packed encoding exactly where the same schema without this option has none. */
  readonly turnPacking?: boolean;
  readonly required?: boolean;
}

/** Writes the message types one after the other; each refers to all of them. */
class Writer {
  private readonly random: Random;
  private readonly syntax: Syntax;
  private readonly options: SchemaOptions;

  constructor(random: Random, syntax: Syntax, options: SchemaOptions) {
    this.random = random;
    this.syntax = syntax;
    this.options = options;
  }

  text(): string {
    const { syntax } = this;
    const closed = syntax === 'editions' ? 'option features.enum_type = CLOSED; ' : '';
    const parts = [
      HEAD[syntax],
      'package p;',
      'enum E0 { Z0 = 0; A0 = 1; B0 = 2; N0 = -7; }',
      `enum E1 { ${closed}option allow_alias = true; Z1 = 0; BIG = 2147483647; ALSO = 2147483647; LEAST = -2147483648; }`,
      ...MESSAGES.map((name) => this.message(name)),
    ];
    if (syntax !== 'proto3') parts.push(`extend M0 { ${this.member('x0', 500)} ${this.member('x1', 501)} }`);
    return parts.join('\n');
  }

  private message(name: string): string {
    const { random, syntax } = this;
    const used = new Set<number>();
    const number = (): number => {
      for (;;) {
        const one = pick(random, [
          1 + random(15),
          1 + random(15),
          16 + random(400),
          2000 + random(9000),
          536_870_911,
        ]);
        if (used.has(one)) continue;
        used.add(one);
        return one;
      }
    };
    const parts: string[] = [];
    const count = 1 + random(7);
    for (let i = 0; i < count; i++) {
      const field = `f${i}`;
      const kind = random(10);
      if (kind === 0) parts.push(`map<${pick(random, KEYS)}, ${this.mapValue()}> ${field} = ${number()};`);
      else if (kind === 1) {
        const members = ['a', 'b', 'c'].map((one) => `${this.type()} ${field}${one} = ${number()};`);
        parts.push(`oneof o${i} { ${members.join(' ')} }`);
      } else if (kind === 2 && syntax === 'proto2') {
        const label = pick(random, ['optional', 'repeated']);
        parts.push(`${label} group G${i} = ${number()} { ${this.member('a', 1)} ${this.member('b', 2)} }`);
      } else parts.push(this.member(field, number(), true));
    }
    if (name === 'M0' && syntax !== 'proto3') parts.push('extensions 500 to 600;');
    return `message ${name} { ${parts.join(' ')} }`;
  }

  private type(): string {
    return pick(this.random, [...SCALARS, ...SCALARS, ...ENUMS, ...ENUMS, ...MESSAGES, ...MESSAGES]);
  }

  private mapValue(): string {
    return pick(this.random, [...SCALARS, ...ENUMS, ...MESSAGES]);
  }

  /** A field that is not a map, not a group and not in a oneof. */
  private member(name: string, number: number, mayBeRequired = false): string {
    const { random, syntax, options } = this;
    const type = this.type();
    const isMessage = MESSAGES.includes(type);
    const repeated = chance(random, 35);
    const packs = repeated && !isMessage && type !== 'string' && type !== 'bytes';
    const turned = chance(random, 50) !== (options.turnPacking === true);
    const style = random(100);
    const required = mayBeRequired && options.required === true && !isMessage && style < 15;
    const stated: string[] = [];
    let label = '';
    if (syntax === 'editions') {
      if (repeated) label = 'repeated ';
      if (packs && turned) stated.push('features.repeated_field_encoding = EXPANDED');
      if (isMessage && style < 40) stated.push('features.message_encoding = DELIMITED');
      if (!repeated && !isMessage && mayBeRequired) {
        if (required) stated.push('features.field_presence = LEGACY_REQUIRED');
        else if (style > 60 && type !== 'E1') stated.push('features.field_presence = IMPLICIT');
      }
    } else {
      if (repeated) label = 'repeated ';
      else if (syntax === 'proto2') label = required ? 'required ' : 'optional ';
      else if (style < 40) label = 'optional ';
      if (packs && turned) stated.push(`packed = ${syntax === 'proto2'}`);
    }
    return `${label}${type} ${name} = ${number}${stated.length === 0 ? '' : ` [${stated.join(', ')}]`};`;
  }
}

export function randomText(seed: number, syntax: Syntax, options: SchemaOptions = {}): string {
  return new Writer(randomOf(seed), syntax, options).text();
}

export function messageOf(text: string, name = 'p.M0'): ProtoMessage {
  const schema = parseSchema('PROTOBUF', text);
  const message = schema.format === 'PROTOBUF' ? schema.tree.byName.get(name) : undefined;
  if (message === undefined) throw new Error(`the schema has no message ${name}`);
  return message;
}

const EDGES: Readonly<Record<string, readonly ProtoValueDatum[]>> = {
  signed32: [0, 1, -1, 127, 128, 300, -300, 2 ** 31 - 1, -(2 ** 31)],
  unsigned32: [0, 1, 127, 128, 16_384, 2 ** 31, 2 ** 32 - 1],
  signed64: [0n, 1n, -1n, 300n, -300n, 2n ** 31n, 2n ** 32n + 5n, -(2n ** 53n), 2n ** 63n - 1n, -(2n ** 63n)],
  unsigned64: [0n, 1n, 300n, 2n ** 32n, 2n ** 53n + 1n, 2n ** 63n, 2n ** 64n - 1n],
  bool: [false, true],
  float: [0, -0, 1.5, -2.25, 2 ** 127, Number.NaN, Number.POSITIVE_INFINITY],
  double: [0, -0, 0.1, -1e300, 5e-324, Number.NaN, Number.NEGATIVE_INFINITY],
  string: ['', 'x', 'größe 本町 🚚', '\u0000', '\ufffd', 'x'.repeat(200)],
  bytes: [Buffer.alloc(0), Buffer.from([0xff, 0xfe, 0x80]), Buffer.alloc(300, 7)],
};

function edgesOf(type: string): readonly ProtoValueDatum[] {
  const sign = type.startsWith('u') || type.startsWith('f') ? 'unsigned' : 'signed';
  return (EDGES[type] ?? EDGES[`${sign}${type.endsWith('64') ? '64' : '32'}`]) as readonly ProtoValueDatum[];
}

const DEPTH = 3;

function randomValue(random: Random, field: ProtoField, depth: number): ProtoValueDatum {
  if (field.message !== undefined) return randomDatum(random, field.message, depth + 1);
  const { enumeration } = field;
  if (enumeration === undefined) return pick(random, edgesOf(field.type));
  const numbers = [...enumeration.values.keys()];
  return pick(random, enumeration.closed ? numbers : [...numbers, 99, -99]);
}

export function randomDatum(random: Random, message: ProtoMessage, depth = 0): ProtoDatum {
  const datum = new Map<number, ProtoFieldDatum>();
  const chosen = new Map<string, number>();
  for (const { oneof } of message.fields) if (oneof !== undefined) chosen.set(oneof, random(4));
  for (const field of message.fields) {
    if (field.oneof !== undefined) {
      const left = chosen.get(field.oneof) as number;
      chosen.set(field.oneof, left - 1);
      if (left !== 0) continue;
    }
    if (!field.required && (chance(random, 30) || (field.message !== undefined && depth >= DEPTH))) continue;
    const many = (): number[] => Array.from({ length: 1 + random(3) }, (_, i) => i);
    if (field.mapKey !== undefined) {
      const keys = [...new Set(many().map(() => pick(random, edgesOf(field.mapKey as string))))];
      datum.set(
        field.number,
        keys.map((key) => [key, randomValue(random, field, depth)] as const),
      );
    } else if (field.repeated)
      datum.set(
        field.number,
        many().map(() => randomValue(random, field, depth)),
      );
    else datum.set(field.number, randomValue(random, field, depth));
  }
  return datum;
}

type Plain = Record<string, unknown>;

/** Expected result of a reader of the same schema. */
export function plainOf(message: ProtoMessage, datum: ProtoDatum): Plain {
  const out: Plain = {};
  for (const field of message.fields) {
    const given = datum.get(field.number);
    if (field.mapKey !== undefined) {
      const map = Object.create(null) as Plain;
      for (const [key, value] of (given ?? []) as ReadonlyArray<readonly [ProtoValueDatum, ProtoValueDatum]>)
        map[String(key)] = plainValue(field, value);
      out[field.name] = map;
    } else if (field.repeated)
      out[field.name] = ((given ?? []) as readonly ProtoValueDatum[]).map((one) => plainValue(field, one));
    else if (given !== undefined) out[field.name] = plainValue(field, given as ProtoValueDatum);
    else out[field.name] = field.presence || field.required ? null : zeroOf(field);
  }
  return out;
}

function plainValue(field: ProtoField, value: ProtoValueDatum): unknown {
  if (field.message !== undefined) return plainOf(field.message, value as ProtoDatum);
  if (field.enumeration !== undefined) return field.enumeration.values.get(value as number) ?? value;
  return field.type === 'float' ? Math.fround(value as number) : value;
}

export function zeroOf({ type, enumeration }: ProtoField): unknown {
  if (enumeration !== undefined) return [...enumeration.values.values()][0];
  if (type === 'string') return '';
  if (type === 'bool') return false;
  if (type === 'bytes') return Buffer.alloc(0);
  return type.endsWith('64') ? 0n : 0;
}
