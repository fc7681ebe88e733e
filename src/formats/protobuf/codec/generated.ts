/** Decoder with code of its own for a message type: one function for each type, in which the fields
 *  are variables, expected in the order of the schema, and the message is made by one constructor.
 *
 *  The readers of decoder.ts share their call sites with every message of the process, so the
 *  engine can neither inline them nor predict the shape of an object; generated code is several
 *  times faster. It reads with the same input, so it accepts the same bytes, but it keeps no path
 *  for an error, and it reads no groups and no message in parts: for those it throws UNUSUAL, and
 *  the caller reads the payload again. */
import { GeneratedSource } from '../../binary/generated-source.ts';
import { FIELD_NUMBER_MAX } from '../syntax/ast.ts';
import type { ProtoField, ProtoMessage } from '../tree.ts';
import { type ProtoInput, WIRE } from './input.ts';
import { enumNames, scalarOf, zeroName } from './scalar.ts';

/** Greatest number of fields of a message in generated code. */
const MESSAGE_FIELDS_MAX = 1000;
/** Greatest number of messages and fields in generated code, about 100 bytes of source each. */
const PARTS_MAX = 10_000;

/** Thrown for a payload that generated code does not read. */
export const UNUSUAL = Symbol('unusual');

type ReadMessage = (input: ProtoInput) => unknown;

/** Generates the reader of a message type. Undefined: the types are too large, or the process was
 *  started without code generation from strings. */
export function generatedReader(message: ProtoMessage): ReadMessage | undefined {
  const source = new Source(PARTS_MAX);
  return source.compile(source.nameOf(message), 'unusual', UNUSUAL);
}

/** Each function reads a message up to the input's limit. */
class Source extends GeneratedSource<ProtoMessage> {
  protected functionOf(name: string, message: ProtoMessage): string | undefined {
    const { fields } = message;
    this.parts += 1 + fields.length;
    if (fields.length > MESSAGE_FIELDS_MAX) return undefined;
    // The other form sets the prototype for this name.
    if (fields.some((field) => field.name === '__proto__')) return undefined;
    return this.message(name, message);
  }

  private message(name: string, { fields, messageSet }: ProtoMessage): string {
    if (messageSet === true) return `function ${name}(input) { throw unusual; }`;
    const oneofs = new Map<string, number[]>();
    fields.forEach(({ oneof }, at) => {
      if (oneof !== undefined) oneofs.set(oneof, [...(oneofs.get(oneof) ?? []), at]);
    });
    const variables = fields.map((field, at) => this.variable(field, at));
    const reads = fields.flatMap((field, at) =>
      this.field(field, at, field.oneof === undefined ? undefined : oneofs.get(field.oneof)),
    );
    const missing = fields.flatMap(({ required, message }, at) =>
      required && message?.unknown !== true ? [`value${at} === null`] : [],
    );
    const check = missing.length === 0 ? '' : `if (${missing.join(' || ')}) throw unusual;`;
    const value = this.constructors.object(
      fields.map((field) => field.name),
      fields.map((_, at) => `value${at}`),
    );
    return `function ${name}(input) {
input.spend(${fields.length});
${variables.join('\n')}
let tag = input.nextTag();
while (tag !== 0) {
const begun = input.at;
${reads.join('\n')}
if (input.at === begun) {
input.skip(tag, begun);
tag = input.nextTag();
}
}
${check}
return ${value};
}`;
  }

  /** Declares the variable of a field with its value when the field is absent. */
  private variable(field: ProtoField, at: number): string {
    if (field.mapKey !== undefined) return `const value${at} = Object.create(null);`;
    if (field.repeated) return `const value${at} = ${this.noItems()}.slice();`;
    if (field.presence || field.required) return `let value${at} = null;`;
    return `let value${at} = ${this.input(zeroOf(field))};`;
  }

  /** Statements that read the occurrences of a field where its tag is next. */
  private field(field: ProtoField, at: number, members: readonly number[] | undefined): string[] {
    const { number, message, mapKey, repeated } = field;
    // Nothing of an unknown type can be read.
    if (message?.unknown === true || number > FIELD_NUMBER_MAX) return [];
    const when = (wire: number, word: 'if' | 'while', statements: string): string =>
      `${word} (tag === ${((number << 3) | wire) >>> 0}) {\n${statements}\ntag = input.nextTag();\n}`;
    const into = `value${at}`;
    if (mapKey !== undefined) return [when(WIRE.LENGTH, 'while', this.entry(field, mapKey, into))];
    if (message !== undefined && field.delimited) return [when(WIRE.GROUP, 'if', 'throw unusual;')];
    if (message !== undefined && repeated)
      return [when(WIRE.LENGTH, 'while', `${into}.push(${this.nested(message)});`)];
    if (message !== undefined) {
      const clear = members === undefined ? '' : `${clearing(members, at)}\n`;
      const once = `if (${into} !== null) throw unusual;`;
      return [when(WIRE.LENGTH, 'if', `${once}\n${clear}${into} = ${this.nested(message)};`)];
    }
    const simple = this.simple(field);
    if (!repeated) {
      const clear = members === undefined ? '' : `if (${into} === null) { ${clearing(members, at)} }\n`;
      return [
        when(
          simple.wire,
          'if',
          simple.read((value) => `${clear}${into} = ${value};`),
        ),
      ];
    }
    const append = simple.read((value) => `${into}.push(${value});`);
    const own = when(simple.wire, 'while', append);
    if (simple.wire === WIRE.LENGTH) return [own];
    const run = `const outer = input.enter();\nwhile (input.at < input.limit) {\n${append}\n}\ninput.leave(outer);`;
    return [when(WIRE.LENGTH, 'while', run), own];
  }

  /** Expression that reads a message behind its length. */
  private nested(message: ProtoMessage): string {
    return `input.nested(${this.nameOf(message)})`;
  }

  /** Reads a map entry: a message of a key = 1 and a value = 2. */
  private entry(field: ProtoField, mapKey: string, into: string): string {
    const key = scalarOf(mapKey);
    const { message } = field;
    const simple = message === undefined ? this.simple(field) : undefined;
    const valueTag = (2 << 3) | (simple?.wire ?? WIRE.LENGTH);
    const readValue =
      message === undefined
        ? // A number that a closed enum lacks makes the entry unknown.
          `value = undefined;\n${simple?.read((value) => `value = ${value};`)}`
        : `if (value !== undefined) throw unusual;\nvalue = ${this.nested(message)};`;
    const absent =
      message === undefined ? '' : `if (value === undefined) value = ${this.nameOf(message)}(input);`;
    return `input.descend();
const outer = input.enter();
let key = ${this.input(key.zero)};
let value = ${message === undefined ? this.input(zeroOf(field)) : 'undefined'};
for (let part = input.nextTag(); part !== 0; part = input.nextTag()) {
if (part === ${(1 << 3) | key.wire}) key = input.${key.method}();
else if (part === ${valueTag}) {
${readValue}
}
else input.skip(part, input.at);
}
${absent}
input.leave(outer);
input.ascend();
if (value !== undefined) ${into}[String(key)] = value;`;
  }

  /** Reader of a value that is not a message: statements that do something with its expression. */
  private simple({ type, enumeration }: ProtoField): {
    readonly wire: number;
    readonly read: (use: (value: string) => string) => string;
  } {
    if (enumeration === undefined) {
      const { wire, method } = scalarOf(type);
      return { wire, read: (use) => use(`input.${method}()`) };
    }
    const nameOf = this.input(enumNames(enumeration));
    return {
      wire: WIRE.VARINT,
      read: (use) =>
        enumeration.closed
          ? `const name = ${nameOf}(input.int32());\nif (name !== undefined) {\n${use('name')}\n}`
          : use(`${nameOf}(input.int32())`),
    };
  }
}

/** Clears the other members of a oneof, before the member `at` is set. */
const clearing = (members: readonly number[], at: number): string =>
  [
    `input.spend(${members.length});`,
    ...members.filter((member) => member !== at).map((member) => `value${member} = null;`),
  ].join(' ');

function zeroOf({ type, enumeration }: ProtoField): unknown {
  return enumeration === undefined ? scalarOf(type).zero : zeroName(enumeration);
}
