/** Prints types as a TypeScript module: for each type its output under its name, and its input
 *  under its name with `Input` behind it. */
import {
  type Declaration,
  differingInputs,
  type Property,
  quoted,
  type Shape,
  type TsType,
  type TypeModel,
} from './model.ts';
import { isIdentifier, TypeNames } from './names.ts';

/** Columns of a line; a longer type is broken into lines. */
const WIDTH = 100;
const STEP = '  ';

type Side = 'output' | 'input';

/** Prints a module. @param header lines of the comment at its top */
export function printTypes(model: TypeModel, header: readonly string[]): string {
  return new Printer(model).module(header);
}

interface Helper {
  readonly wanted: string;
  readonly doc: string;
  readonly body: readonly string[];
}

const HELPERS = {
  choice: {
    wanted: 'ExactlyOne',
    doc: 'An object with exactly one of the properties of T.',
    body: [
      '{',
      '  [K in keyof T]: { [P in K]: T[P] } & { [P in Exclude<keyof T, K>]?: never };',
      '}[keyof T]',
    ],
  },
  output: {
    wanted: 'AtMostOne',
    doc: 'The properties of T, of which at most one is not null.',
    body: [
      '',
      '  | { [K in keyof T]: { [P in K]: T[P] } & { [P in Exclude<keyof T, K>]: null } }[keyof T]',
      '  | { [K in keyof T]: null }',
    ],
  },
  input: {
    wanted: 'AtMostOneInput',
    doc: 'An object with at most one of the properties of T; the others are absent or null.',
    body: [
      '',
      '  | {',
      '      [K in keyof T]: { [P in K]: T[P] } & { [P in Exclude<keyof T, K>]?: null | undefined };',
      '    }[keyof T]',
      '  | { [K in keyof T]?: null | undefined }',
    ],
  },
} as const satisfies Readonly<Record<string, Helper>>;

type HelperName = keyof typeof HELPERS;

class Printer {
  private readonly model: TypeModel;
  private readonly differing: ReadonlySet<Declaration>;
  private readonly outputNames: ReadonlyMap<Declaration, string>;
  private readonly inputNames = new Map<Declaration, string>();
  private readonly names = new TypeNames();
  private readonly helpers = new Map<HelperName, string>();

  constructor(model: TypeModel) {
    this.model = model;
    this.differing = differingInputs(model);
    const { declarations } = model;
    this.outputNames = this.names.nameAll(declarations);
    for (const one of declarations)
      if (this.hasInput(one))
        this.inputNames.set(one, this.names.reserve(`${this.outputNames.get(one)}Input`));
  }

  /** Objects always have an input, so that a name does not come and go with a field. */
  private hasInput(one: Declaration): boolean {
    return one.output.kind === 'object' || this.differing.has(one);
  }

  module(header: readonly string[]): string {
    const parts = this.model.declarations.flatMap((one) => this.declaration(one));
    for (const [helper, name] of this.helpers) {
      const { doc, body } = HELPERS[helper];
      parts.push(
        [`/** ${doc} */`, `type ${name}<T> = ${body.join('\n')};`.replace('= \n', '=\n')].join('\n'),
      );
    }
    const top = header
      .map((line) => `// ${line.replace(/\p{Cc}|\u2028|\u2029/gu, ' ')}`.trimEnd())
      .join('\n');
    // A file without an export is no module.
    return `${[top, ...parts, ...(parts.length === 0 ? ['export {};'] : [])].join('\n\n')}\n`;
  }

  private declaration(one: Declaration): string[] {
    const name = this.outputNames.get(one) as string;
    const output = docLines(one.doc, '') + this.shape(name, one.output, 'output');
    const input = this.inputNames.get(one);
    if (input === undefined) return [output];
    const doc = `/** ${name} as a serializer accepts it. */\n`;
    const body = this.differing.has(one)
      ? this.shape(input, one.input, 'input')
      : `export type ${input} = ${name};`;
    return [output, doc + body];
  }

  private shape(name: string, shape: Shape, side: Side): string {
    if (shape.kind === 'alias') {
      const head = `export type ${name} =`;
      return `${head}${this.after(shape.type, side, '', head.length + 1)};`;
    }
    const { properties, oneofs } = shape;
    if (properties.length === 0 && oneofs.length === 0)
      return `export interface ${name} {\n${STEP}[key: string]: never;\n}`;
    const body = properties.length === 0 ? undefined : this.object(properties, side, '');
    if (oneofs.length === 0) return `export interface ${name} ${body}`;
    const groups = oneofs.map((members) => `${this.helper(side)}<${this.object(members, side, '')}>`);
    return `export type ${name} = ${[...(body === undefined ? [] : [body]), ...groups].join(' & ')};`;
  }

  private helper(helper: HelperName): string {
    const known = this.helpers.get(helper) ?? this.names.reserve(HELPERS[helper].wanted);
    this.helpers.set(helper, known);
    return known;
  }

  private object(properties: readonly Property[], side: Side, indent: string): string {
    const inner = indent + STEP;
    const lines = properties.map((property) => {
      const head = `${inner}${keyOf(property)}:`;
      return `${docLines(property.doc, inner)}${head}${this.after(property.type, side, inner, head.length + 1)};`;
    });
    return `{\n${lines.join('\n')}\n${indent}}`;
  }

  /** Type behind a colon or an equals sign, with the space or the line break before it. */
  private after(type: TsType, side: Side, indent: string, column: number): string {
    const flat = this.flat(type, side);
    if (column + flat.length < WIDTH) return ` ${flat}`;
    const inner = indent + STEP;
    if (type.kind !== 'union') return ` ${this.broken(type, side, indent)}`;
    return type.parts.map((part) => `\n${inner}| ${this.fitted(part, side, `${inner}${STEP}`)}`).join('');
  }

  private fitted(type: TsType, side: Side, indent: string): string {
    const flat = this.flat(type, side, true);
    return indent.length + flat.length < WIDTH ? flat : this.broken(type, side, indent, true);
  }

  private broken(type: TsType, side: Side, indent: string, isPart = false): string {
    const inner = indent + STEP;
    switch (type.kind) {
      case 'union':
        return type.parts.map((part) => `\n${inner}| ${this.fitted(part, side, `${inner}${STEP}`)}`).join('');
      case 'map':
        return `Record<\n${inner}string,\n${inner}${this.fitted(type.value, side, inner)}\n${indent}>`;
      case 'list': {
        const { item } = type;
        const head = type.readonly ? 'readonly ' : '';
        if (item.kind !== 'union' && !(item.kind === 'list' && item.readonly))
          return `${head}${this.broken(item, side, indent, isPart)}[]`;
        return `${head}(${this.broken(item, side, indent)}\n${indent})[]`;
      }
      case 'choice':
        return `${this.helper('choice')}<${this.object(type.members, side, indent)}>`;
      default:
        return this.flat(type, side);
    }
  }

  /** Type on one line. @param isPart true where the type is part of an operator's operand */
  private flat(type: TsType, side: Side, isPart = false): string {
    switch (type.kind) {
      case 'word':
        return type.text;
      case 'ref':
        return (side === 'input' && this.differing.has(type.to) ? this.inputNames : this.outputNames).get(
          type.to,
        ) as string;
      case 'union': {
        const text = type.parts.map((part) => this.flat(part, side)).join(' | ');
        return isPart ? `(${text})` : text;
      }
      case 'map':
        return `Record<string, ${this.flat(type.value, side)}>`;
      case 'list': {
        const { item } = type;
        const text = this.flat(item, side, true);
        const isReadonlyList = item.kind === 'list' && item.readonly;
        return `${type.readonly ? 'readonly ' : ''}${isReadonlyList ? `(${text})` : text}[]`;
      }
      case 'choice': {
        const members = type.members.map((member) => `${keyOf(member)}: ${this.flat(member.type, side)}`);
        return `${this.helper('choice')}<{ ${members.join('; ')} }>`;
      }
    }
  }
}

const keyOf = ({ name, optional }: Property): string =>
  `${isIdentifier(name) ? name : quoted(name)}${optional === true ? '?' : ''}`;

/** Doc comment with its line break; empty without a text. */
function docLines(doc: string | undefined, indent: string): string {
  const lines = (doc ?? '')
    .replaceAll('*/', '*\\/')
    .split(/\r\n?|[\n\u2028\u2029]/)
    .map((line) => line.replace(/\p{Cc}/gu, ' ').trimEnd());
  while (lines.length > 0 && lines[0] === '') lines.shift();
  while (lines.length > 0 && lines.at(-1) === '') lines.pop();
  if (lines.length === 0) return '';
  if (lines.length === 1) return `${indent}/** ${lines[0]?.trimStart()} */\n`;
  return [`${indent}/**`, ...lines.map((line) => `${indent} * ${line}`.trimEnd()), `${indent} */`, ''].join(
    '\n',
  );
}
