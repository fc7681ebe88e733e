/** Generated Protobuf schemas: their texts are fixed points, their descriptors convert back, and
 *  the independent parser of protobufjs reads the same messages from the stored text. */
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, it } from 'vitest';
import { SCALARS } from '../../src/formats/protobuf/syntax/ast.ts';
import { parseSchema, type Schema, schemaText } from '../../src/formats/schema.ts';
import { runs } from '../tier.ts';

interface Field {
  readonly kind: 'plain' | 'repeated' | 'optional' | 'map' | 'oneof';
  readonly type: string;
  readonly options: readonly string[];
}
interface Message {
  readonly fields: readonly Field[];
  readonly nested: readonly Message[];
  readonly enums: number;
  readonly reserved: boolean;
}
interface File {
  readonly syntax: 'proto2' | 'proto3';
  readonly scope: string;
  readonly messages: readonly Message[];
}

const field: fc.Arbitrary<Field> = fc.record({
  kind: fc.constantFrom('plain', 'repeated', 'optional', 'map', 'oneof'),
  type: fc.constantFrom(...SCALARS, 'Self', 'Local', 'First'),
  options: fc.subarray(['deprecated = true', 'json_name = "j#"', 'debug_redact = true']),
});
const holding = (nested: fc.Arbitrary<readonly Message[]>): fc.Arbitrary<Message> =>
  fc.record({
    fields: fc.array(field, { maxLength: 6 }),
    nested,
    enums: fc.nat({ max: 2 }),
    reserved: fc.boolean(),
  });
const leaf = holding(fc.constant([]));
const message = holding(fc.array(holding(fc.array(leaf, { maxLength: 1 })), { maxLength: 2 }));
const file: fc.Arbitrary<File> = fc.record({
  syntax: fc.constantFrom('proto2', 'proto3'),
  scope: fc.constantFrom('', 'p', 'a.b.c'),
  messages: fc.array(message, { minLength: 1, maxLength: 3 }),
});

/** Statements of a message, one per line, so that a test may shuffle statements without a
 *  significant order. */
function statements(
  one: Message,
  name: string,
  syntax: File['syntax'],
): { moving: string[]; fixed: string[] } {
  const moving: string[] = [];
  const inOneof: string[] = [];
  const local = one.enums > 0 ? `${name}E0` : 'int32';
  one.fields.forEach(({ kind, type, options }, index) => {
    const number = index * 7 + 1;
    const written = type === 'Self' ? name : type === 'Local' ? local : type === 'First' ? 'M0' : type;
    const list = options.length === 0 ? '' : ` [${options.join(', ').replaceAll('#', String(number))}]`;
    const rest = `f_${number} = ${number}${list};`;
    const label = kind === 'plain' ? (syntax === 'proto2' ? 'optional ' : '') : `${kind} `;
    if (kind === 'map') moving.push(`map<string, ${written}> ${rest}`);
    else if (kind === 'oneof') inOneof.push(`${written} ${rest}`);
    else moving.push(`${label}${written} ${rest}`);
  });
  if (inOneof.length > 0) moving.push(`oneof choice { ${inOneof.join(' ')} }`);
  if (one.reserved) moving.push('reserved 1000 to 1005, 999;', 'reserved "gone", "away";');
  for (let index = 0; index < one.enums; index++) {
    moving.push(
      `enum ${name}E${index} { ${name}Z${index} = 0; ${name}P${index} = 5; ${name}N${index} = 2 [deprecated = true]; }`,
    );
  }
  const fixed = one.nested.map((inner, index) => text(inner, `${name}x${index}`, syntax));
  return { moving, fixed };
}

function text(
  one: Message,
  name: string,
  syntax: File['syntax'],
  order: (list: string[]) => string[] = (list) => list,
): string {
  const { moving, fixed } = statements(one, name, syntax);
  return `message ${name} { ${[...order(moving), ...fixed].join(' ')} }`;
}

function source({ syntax, scope, messages }: File, order?: (list: string[]) => string[]): string {
  const head = `syntax = "${syntax}"; ${scope === '' ? '' : `package ${scope};`}`;
  return `${head} ${messages.map((one, index) => text(one, `M${index}`, syntax, order)).join(' ')}`;
}

const parse = (written: string, normalize = false): Schema & { readonly format: 'PROTOBUF' } => {
  const schema = parseSchema('PROTOBUF', written, { normalize });
  if (schema.format !== 'PROTOBUF') throw new Error(`unexpected format ${schema.format}`);
  return schema;
};
const names = (schema: {
  readonly tree: {
    readonly messages: readonly { readonly name: string; readonly path: readonly number[] }[];
  };
}): unknown => schema.tree.messages.map(({ name, path }) => [name, path.join()]);
const shape = (schema: Schema & { readonly format: 'PROTOBUF' }): unknown =>
  schema.tree.messages.map((one) => [
    one.name,
    one.fields.map((f) => [
      f.name,
      f.number,
      f.type,
      f.message?.name,
      f.enumeration?.name,
      f.mapKey,
      f.repeated,
      f.required,
      f.presence,
      f.oneof,
    ]),
  ]);

describe('generated Protobuf schemas', () => {
  it('a generated schema prints to a text that prints to itself, in both forms, with the same meaning', () => {
    fc.assert(
      fc.property(file, (one) => {
        const schema = parse(source(one));
        const normal = parse(source(one), true);
        expect(parse(schema.text).text).toBe(schema.text);
        expect(parse(normal.text, true).text).toBe(normal.text);
        expect(parse(schema.text, true).text).toBe(normal.text);
        expect(shape(parse(schema.text))).toEqual(shape(schema));
        expect(shape(parse(normal.text))).toEqual(shape(schema));
        expect(names(parse(normal.text))).toEqual(names(schema));
      }),
      { numRuns: runs(60) },
    );
  });

  it('a generated schema normalizes to one text whatever the order of statements inside its messages', () => {
    fc.assert(
      fc.property(file, fc.integer(), (one, seed) => {
        let state = seed >>> 0;
        const random = (): number => {
          state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
          return state / 2 ** 32;
        };
        const shuffled = (list: string[]): string[] =>
          list
            .map((item) => [random(), item] as const)
            .sort(([a], [b]) => a - b)
            .map(([, item]) => item);
        // The order of enums is kept, like the order of messages.
        const order = (list: string[]): string[] => [
          ...shuffled(list.filter((item) => !item.startsWith('enum '))),
          ...list.filter((item) => item.startsWith('enum ')),
        ];
        expect(parse(source(one, order), true).text).toBe(parse(source(one), true).text);
      }),
      { numRuns: runs(40) },
    );
  });

  it('a generated schema is stored as one text whatever its layout and comments', () => {
    const gap = fc.constantFrom(' ', '\n', '\t', ' // a { b\n', ' /* } */ ', '\r\n  ', '/**/');
    fc.assert(
      fc.property(file, fc.array(gap, { minLength: 1, maxLength: 20 }), (one, gaps) => {
        const tokens = source(one).match(/"[^"]*"|[\w.]+|[^\s\w]/g) ?? [];
        const spread = tokens.map((token, index) => token + gaps[index % gaps.length]).join('');
        expect(parse(spread).text).toBe(parse(source(one)).text);
      }),
      { numRuns: runs(40) },
    );
  });

  it('a generated schema is restored from its descriptor', () => {
    fc.assert(
      fc.property(file, (one) => {
        const schema = parse(source(one));
        const serialized = schemaText(schema, 'serialized');
        const back = parse(serialized);
        expect(shape(back)).toEqual(shape(schema));
        const again = parse(schemaText(back, 'serialized'));
        expect(again.text).toBe(back.text);
        expect(parse(back.text).text).toBe(back.text);
      }),
      { numRuns: runs(60) },
    );
  });

  it('another parser reads the same messages from the stored text of a generated schema', () => {
    fc.assert(
      fc.property(file, fc.boolean(), (one, normalize) => {
        const schema = parse(source(one), normalize);
        const root = protobuf.parse(schema.text, new protobuf.Root(), { keepCase: true }).root;
        root.resolveAll();
        for (const { name, fields } of parse(schema.text).tree.messages) {
          const type = root.lookupType(name);
          const theirs = type.fieldsArray.map((f) => {
            const isMap = f instanceof protobuf.MapField;
            return [
              f.name,
              f.id,
              f.resolvedType?.fullName.slice(1) ?? f.type,
              isMap ? f.keyType : undefined,
              f.repeated,
            ];
          });
          const ours = fields.map((f) => [
            f.name,
            f.number,
            f.message?.name ?? f.enumeration?.name ?? f.type,
            f.mapKey,
            f.repeated,
          ]);
          expect(ours).toEqual(theirs.sort((a, b) => (a[1] as number) - (b[1] as number)));
        }
      }),
      { numRuns: runs(60) },
    );
  });
});
