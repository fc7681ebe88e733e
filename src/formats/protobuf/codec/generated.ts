/** Decoder with code of its own for a message type: one function for each type, in which the fields
 *  are variables, expected in the order of the schema, and the message is made by one constructor.
 *
 *  The readers of decoder.ts share their call sites with every message of the process, so the
 *  engine can neither inline them nor predict the shape of an object; generated code is several
 *  times faster. It reads with the same input, so it accepts the same bytes, but it keeps no path
 *  for an error, and it reads no groups and no message in parts: for those it throws UNUSUAL, and
 *  the caller reads the payload again. Names enter the code as JSON strings only, so no schema can
 *  add code. */
import { Constructors, NO_ITEMS } from '../../binary/constructors.ts';
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
  const source = new Source();
  const name = source.nameOf(message);
  const body = source.body();
  if (body === undefined) return undefined;
  try {
    const make = new Function('inputs', 'unusual', `${body}\nreturn ${name};`) as (
      inputs: readonly unknown[],
      unusual: symbol,
    ) => ReadMessage;
    return make(source.inputs, UNUSUAL);
  } catch (thrown) {
    if (thrown instanceof EvalError) return undefined;
    throw thrown;
  }
}

/** Source text under construction. Messages are queued in a list, because a chain of types may be
 *  longer than the stack is deep. */
class Source {
  /** Values that the code refers to by position. */
  readonly inputs: unknown[] = [];
  private readonly names = new Map<ProtoMessage, string>();
  private readonly waiting: Array<readonly [name: string, message: ProtoMessage]> = [];
  private readonly constructors = new Constructors();
  private readonly constants: string[] = [];
  private readonly functions: string[] = [];
  private emptyList: string | undefined;
  private parts = 0;

  /** Name of the function that reads a message up to the input's limit. */
  nameOf(message: ProtoMessage): string {
    const known = this.names.get(message);
    if (known !== undefined) return known;
    const name = `read${this.names.size}`;
    this.names.set(message, name);
    this.waiting.push([name, message]);
    return name;
  }

  /** Text of all functions; undefined where it is too long. */
  body(): string | undefined {
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop()) {
      const [name, message] = next;
      this.parts += 1 + message.fields.length;
      if (message.fields.length > MESSAGE_FIELDS_MAX || this.parts > PARTS_MAX) return undefined;
      // The other form sets the prototype for this name.
      if (message.fields.some((field) => field.name === '__proto__')) return undefined;
      this.functions.push(this.message(name, message));
    }
    return ["'use strict';", ...this.constants, this.constructors.text(), ...this.functions].join('\n');
  }

  private noItems(): string {
    this.emptyList ??= this.input(NO_ITEMS);
    return this.emptyList;
  }

  /** Name of a constant that holds `value`. */
  private input(value: unknown): string {
    const index = this.inputs.push(value) - 1;
    this.constants.push(`const input${index} = inputs[${index}];`);
    return `input${index}`;
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
