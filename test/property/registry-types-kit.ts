/** Compiles generated types together with literals of values, and reports which literals have the
 *  type. */
import ts from 'typescript';

/** Declaration of Buffer without the types of Node.js, which take a second to check. */
const GLOBALS = `interface Buffer extends Uint8Array<ArrayBuffer> { readonly isBuffer: true; }
declare const Buffer: { of(...bytes: number[]): Buffer };`;

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2022.d.ts'],
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  strict: true,
  exactOptionalPropertyTypes: true,
  noUnusedLocals: true,
  noEmit: true,
  skipLibCheck: true,
  types: [],
};

const files = new Map<string, ts.SourceFile>();
const host = ts.createCompilerHost(OPTIONS);
const readFile = host.getSourceFile.bind(host);
/** Parses the declarations of the language once. */
const cached: ts.CompilerHost['getSourceFile'] = (name, version) => {
  const known = files.get(name) ?? readFile(name, version);
  if (known !== undefined) files.set(name, known);
  return known;
};

/** A literal that is checked against a type of the module. */
export interface Claim {
  readonly type: string;
  readonly literal: string;
}

export interface Checked {
  /** Errors of the generated module itself. */
  readonly errors: readonly string[];
  /** Errors of the literals, one for each claim; undefined where a literal has the type. */
  readonly misfits: ReadonlyArray<string | undefined>;
}

/** Checks claims against a generated module. */
export function checkClaims(module: string, claims: readonly Claim[]): Checked {
  const head = ["import type * as types from './types.ts';", 'export type Module = typeof types;'];
  const lines = claims.map(({ type, literal }, i) => `export const v${i}: types.${type} = ${literal};`);
  const texts: Readonly<Record<string, string>> = {
    '/globals.d.ts': GLOBALS,
    '/types.ts': module,
    '/claims.ts': [...head, ...lines].join('\n'),
  };
  const program = ts.createProgram({
    rootNames: Object.keys(texts),
    options: { ...OPTIONS, allowImportingTsExtensions: true },
    host: {
      ...host,
      fileExists: (name) => name in texts || host.fileExists(name),
      readFile: (name) => texts[name] ?? host.readFile(name),
      getSourceFile: (name, version) => {
        const text = texts[name];
        return text === undefined ? cached(name, version) : ts.createSourceFile(name, text, version);
      },
    },
  });
  const errors: string[] = [];
  const misfits: Array<string | undefined> = claims.map(() => undefined);
  for (const found of ts.getPreEmitDiagnostics(program)) {
    const { file, start = 0, messageText } = found;
    const text = ts.flattenDiagnosticMessageText(messageText, '\n');
    const line = file?.fileName === '/claims.ts' ? file.getLineAndCharacterOfPosition(start).line : 0;
    if (line < head.length) errors.push(`${file?.fileName ?? ''}: ${text}`);
    else misfits[line - head.length] ??= text;
  }
  return { errors, misfits };
}

const SHOWN_MAX = 20;

/** Value as a literal of TypeScript; of a long text or long bytes the start, which has the same
 *  type. */
export function literalOf(value: unknown): string {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'number') return Object.is(value, -0) ? '-0' : String(value);
  if (typeof value === 'string') return JSON.stringify(value.slice(0, SHOWN_MAX));
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Buffer.isBuffer(value)) return `Buffer.of(${[...value.subarray(0, SHOWN_MAX)].join()})`;
  if (value instanceof Uint8Array) return `new Uint8Array([${[...value].join()}])`;
  if (Array.isArray(value)) return `[${value.map(literalOf).join(', ')}]`;
  const members = Object.entries(value).map(([key, part]) => `[${JSON.stringify(key)}]: ${literalOf(part)}`);
  return `{ ${members.join(', ')} }`;
}

/** Place inside a value: a path of keys. */
type Path = ReadonlyArray<string | number>;

interface Place {
  readonly path: Path;
  readonly value: unknown;
}

function* places(value: unknown, path: Path = []): Generator<Place> {
  yield { path, value };
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return;
  if (Array.isArray(value)) for (const [i, item] of value.entries()) yield* places(item, [...path, i]);
  else for (const [key, part] of Object.entries(value)) yield* places(part, [...path, key]);
}

/** Copy of a value with another part at a place. @param part undefined removes the property */
function replaced(value: unknown, path: Path, part: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return part;
  if (Array.isArray(value))
    return value.map((item, i) => (i === key ? replaced(item, rest, part) : (item as unknown)));
  const entries = Object.entries(value as object);
  return Object.fromEntries(
    entries.flatMap(([name, one]) => {
      if (name !== key) return [[name, one]];
      return part === undefined && rest.length === 0 ? [] : [[name, replaced(one, rest, part)]];
    }),
  );
}

/** Bytes of no fixed type of the generators. */
export const MUTANT_BYTES = Buffer.alloc(25, 1);
/** The same as an array that is no Buffer. */
export const MUTANT_ARRAY = new Uint8Array(2);

/** Parts of other types. 77 and the text belong to no enum, and 77 fits every number type. */
const PARTS: readonly unknown[] = [
  undefined,
  null,
  true,
  77,
  77n,
  'none of the names',
  MUTANT_BYTES,
  MUTANT_ARRAY,
  [],
];

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !ArrayBuffer.isView(value) && !Array.isArray(value);

/** Copy of a value with one part of another type, or without a property. */
export interface Mutant {
  readonly value: unknown;
  /** True where the part was an object. */
  readonly wasObject: boolean;
}

export function mutated(value: unknown, next: (below: number) => number): Mutant {
  const all = [...places(value)];
  // The deepest places are most of all; the first ones are as likely.
  const { path, value: old } = all[next(2) === 0 ? next(all.length) : next(Math.min(all.length, 5))] as Place;
  const part = PARTS[next(PARTS.length)];
  const inList = path.length === 0 || typeof path.at(-1) === 'number';
  const wasObject = isObject(old);
  return { value: replaced(value, path, part === undefined && inList ? null : part), wasObject };
}
