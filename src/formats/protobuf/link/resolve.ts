/** Second step of linking: loads imports and resolves names.
 *
 *  A file sees itself, its imports, and the files that these import publicly. An import is searched
 *  in all references of the schema, the nearest first, then in the files of every Protobuf
 *  installation. One path is one file. Names are resolved as protoc does: from the innermost scope
 *  outwards, and the first part of a name decides. */
import { REFERENCE_DEPTH_MAX, type ResolvedReference } from '../../content.ts';
import { knownProtoFile, knownProtoPathOf } from '../known/files.ts';
import type { FileNode, ImportNode, Position } from '../syntax/ast.ts';
import { protoFail } from '../syntax/lexer.ts';
import { parseProtoFile } from '../syntax/parser.ts';
import {
  allEnums,
  allExtensions,
  allMessages,
  type LinkedField,
  type LinkedFile,
  type LinkedMessage,
  type ProtoSymbol,
} from './model.ts';
import { outline } from './outline.ts';

/** Characters of all files that one schema includes. */
const PROTO_LINKED_CHARS_MAX = 16 << 20;
/** Import statements of all these files. */
const IMPORTS_MAX = 20_000;

export interface LinkOptions {
  readonly references: readonly ResolvedReference[];
  /** True: missing imports are dropped, and names without a meaning stay unresolved. */
  readonly lenient: boolean;
  /** True: missing imports are dropped, and each well-known type has its import; any other name
   *  must be defined. */
  readonly looseImports?: boolean;
}

/** Paths that files import implicitly, by the path of the file; the schema itself has the path
 *  undefined. */
type ImplicitImports = ReadonlyMap<string | undefined, ReadonlySet<string>>;

/** Links a file. A well-known type that is used without its import gets one, unless a strict reader
 *  finds it in the schema itself. */
export function linkProto(node: FileNode, options: LinkOptions): ProtoLink {
  const link = new ProtoLink(node, options);
  return link.unimported.size === 0 ? link : new ProtoLink(node, options, link.unimported);
}

/** Files of one schema, and all names in them. */
export class ProtoLink {
  readonly root: LinkedFile;
  /** Files by import path, without the schema itself. */
  readonly files = new Map<string, LinkedFile>();
  /** Symbols by full name; packages are in `packages`. */
  readonly symbols = new Map<string, ProtoSymbol>();
  private readonly packages = new Map<string, Set<LinkedFile>>();
  /** Paths of well-known files whose types are used without an import. */
  readonly unimported = new Map<string | undefined, Set<string>>();
  private readonly options: LinkOptions;
  private readonly implicit: ImplicitImports | undefined;
  private readonly byPath = new Map<string, ResolvedReference>();
  private readonly loading: string[] = [];
  private chars = 0;
  private imports = 0;

  /** @param implicit undefined: `unimported` collects them */
  constructor(node: FileNode, options: LinkOptions, implicit?: ImplicitImports) {
    this.options = options;
    this.implicit = implicit;
    this.flatten(options.references);
    this.root = outline(node, undefined);
    this.load(this.root);
    const files = [...this.files.values(), this.root];
    const publics = new Map<LinkedFile, Set<LinkedFile>>();
    for (const file of files) {
      for (const { file: imported } of file.imports) {
        for (const seen of publicClosure(imported, publics)) file.visible.add(seen);
      }
    }
    for (const file of files) this.register(file);
    for (const file of files) this.resolveFile(file);
  }

  /** Collects the references breadth-first, so that the nearest reference of a path wins. */
  private flatten(references: readonly ResolvedReference[]): void {
    const seen = new Set<ResolvedReference>();
    let level = references;
    for (let depth = 0; level.length > 0 && depth <= REFERENCE_DEPTH_MAX; depth++) {
      const next: ResolvedReference[] = [];
      const here = new Map<string, ResolvedReference>();
      for (const reference of level) {
        if (seen.has(reference)) continue;
        seen.add(reference);
        const same = depth === 0 ? here.get(reference.name) : undefined;
        if (same !== undefined && same.text !== reference.text && !this.options.lenient) {
          protoFail(`two references are named ${JSON.stringify(reference.name)}`);
        }
        here.set(reference.name, reference);
        if (!this.byPath.has(reference.name)) this.byPath.set(reference.name, reference);
        next.push(...reference.references);
      }
      level = next;
    }
  }

  private load(file: LinkedFile): void {
    const done = new Set<LinkedFile>();
    const implicit = this.implicit?.get(file.path) ?? [];
    const more = [...implicit].map((path) => ({ path, mode: 'plain', at: { line: 1, column: 1 } }) as const);
    for (const node of [...file.node.imports, ...more]) {
      if (++this.imports > IMPORTS_MAX)
        protoFail(`it and its references have more than ${IMPORTS_MAX} imports`);
      const imported = this.import(node, file.path);
      if (imported === undefined || done.has(imported)) continue;
      done.add(imported);
      file.imports.push({ file: imported, mode: node.mode });
    }
  }

  private import({ path, at }: ImportNode, importer: string | undefined): LinkedFile | undefined {
    if (this.loading.includes(path)) {
      if (this.options.lenient) return undefined;
      protoFail(
        `the imports are a circle: ${[...this.loading.slice(-8), path].join(' imports ')}`,
        at,
        importer,
      );
    }
    const held = this.files.get(path);
    if (held !== undefined) return held;
    const reference = path.startsWith('google/protobuf/') ? undefined : this.byPath.get(path);
    const node = reference === undefined ? knownProtoFile(path) : this.parse(reference);
    if (node === undefined) {
      if (this.isLoose(importer)) return undefined;
      protoFail(`the import ${JSON.stringify(path)} is in no reference`, at, importer);
    }
    const file = outline(node, path);
    this.loading.push(path);
    if (this.loading.length > REFERENCE_DEPTH_MAX) {
      protoFail(`imports are nested deeper than ${REFERENCE_DEPTH_MAX} files`, at, importer);
    }
    this.load(file);
    this.loading.pop();
    this.files.set(path, file);
    return file;
  }

  private parse(reference: ResolvedReference): FileNode {
    if (reference.format !== 'PROTOBUF') {
      protoFail(`the reference ${JSON.stringify(reference.name)} is a schema of type ${reference.format}`);
    }
    this.chars += reference.text.length;
    if (this.chars > PROTO_LINKED_CHARS_MAX) {
      protoFail(`its references have more than ${PROTO_LINKED_CHARS_MAX} characters together`);
    }
    return parseProtoFile(reference.text, reference.name);
  }

  private register(file: LinkedFile): void {
    const parts = file.node.package?.split('.') ?? [];
    parts.forEach((_part, index) => {
      const name = parts.slice(0, index + 1).join('.');
      const files = this.packages.get(name) ?? new Set();
      this.packages.set(name, files.add(file));
    });
    const add = (symbol: ProtoSymbol, name: string): void => {
      const held = this.symbols.get(name);
      if (held === undefined) this.symbols.set(name, symbol);
      else if (!this.options.lenient && held.file !== file) {
        const where = held.file.path ?? 'the schema';
        protoFail(`${name} is defined in ${where} and again`, positionOf(symbol), file.path);
      }
    };
    for (const message of allMessages(file.messages)) add(message, message.name);
    for (const enumeration of allEnums(file)) add(enumeration, enumeration.name);
    for (const service of file.services) add(service, service.name);
    for (const extension of allExtensions(file)) add(extension, extension.fullName);
  }

  /** Resolves `name` inside `scope`, a full name; undefined where this file sees no such name. */
  find(
    name: string,
    scope: string,
    file: LinkedFile,
    wants: (symbol: ProtoSymbol) => boolean,
  ): ProtoSymbol | undefined {
    const sees = (full: string): ProtoSymbol | undefined => {
      const symbol = this.symbols.get(full);
      return symbol !== undefined && file.visible.has(symbol.file) ? symbol : undefined;
    };
    if (name.startsWith('.')) {
      const symbol = sees(name.slice(1));
      return symbol !== undefined && wants(symbol) ? symbol : undefined;
    }
    const dot = name.indexOf('.');
    const first = dot < 0 ? name : name.slice(0, dot);
    let outer = scope;
    for (;;) {
      const prefix = outer === '' ? '' : `${outer}.`;
      const found = sees(`${prefix}${first}`);
      if (dot < 0) {
        if (found !== undefined && wants(found)) return found;
      } else if (
        (found !== undefined && found.kind !== 'field') ||
        this.seesPackage(`${prefix}${first}`, file)
      ) {
        const whole = sees(`${prefix}${name}`);
        return whole !== undefined && wants(whole) ? whole : undefined;
      }
      if (outer === '') return undefined;
      outer = outer.slice(0, Math.max(0, outer.lastIndexOf('.')));
    }
  }

  private seesPackage(name: string, file: LinkedFile): boolean {
    for (const one of this.packages.get(name) ?? []) if (file.visible.has(one)) return true;
    return false;
  }

  /** Extension by the name that an option or an aggregate value uses. */
  extension(name: string, scope: string, file: LinkedFile): LinkedField | undefined {
    const symbol = this.find(name, scope, file, (one) => one.kind === 'field');
    return symbol?.kind === 'field' ? symbol : undefined;
  }

  /** Options message, such as google.protobuf.FieldOptions: its fields are the defined options. */
  optionsMessage(name: string): LinkedMessage | undefined {
    const symbol = descriptorLink().symbols.get(name);
    return symbol?.kind === 'message' ? symbol : undefined;
  }

  private resolveFile(file: LinkedFile): void {
    const scope = file.node.package ?? '';
    for (const field of file.extensions) this.resolveField(field, scope);
    for (const message of allMessages(file.messages)) {
      for (const field of [...message.fields, ...message.extensions]) this.resolveField(field, message.name);
    }
    for (const service of file.services) {
      for (const method of service.methods) {
        method.input = this.message(method.node.input, service.name, file, method.node.at);
        method.output = this.message(method.node.output, service.name, file, method.node.at);
      }
    }
  }

  private resolveField(field: LinkedField, scope: string): void {
    const { file, node } = field;
    if (field.extendeeName !== undefined) {
      field.extendee = this.message(field.extendeeName, scope, file, node.at);
    }
    if (field.target !== undefined || field.type !== 'message') return;
    const isType = (symbol: ProtoSymbol): boolean => symbol.kind === 'message' || symbol.kind === 'enum';
    const symbol = this.find(node.type, scope, file, isType);
    if (symbol?.kind === 'message' || symbol?.kind === 'enum') {
      field.target = symbol;
      field.type = symbol.kind;
    } else this.unresolved(node.type, node.typeAt, file);
  }

  /** True for a file that may lack imports: a reference was accepted at registration. */
  private isLoose(path: string | undefined): boolean {
    return this.options.lenient || this.options.looseImports === true || path !== undefined;
  }

  private unresolved(name: string, at: Position, file: LinkedFile): void {
    const path = this.isLoose(file.path) ? knownProtoPathOf(name.replace(/^\./, '')) : undefined;
    if (path !== undefined && this.implicit === undefined) {
      const paths = this.unimported.get(file.path) ?? new Set();
      this.unimported.set(file.path, paths.add(path));
    } else if (!this.options.lenient) this.undefined(name, at, file);
  }

  private message(name: string, scope: string, file: LinkedFile, at: Position): LinkedMessage | undefined {
    const isType = (symbol: ProtoSymbol): boolean => symbol.kind === 'message' || symbol.kind === 'enum';
    const symbol = this.find(name, scope, file, isType);
    if (symbol?.kind === 'message') return symbol;
    if (symbol === undefined) this.unresolved(name, at, file);
    else if (!this.options.lenient) protoFail(`${JSON.stringify(name)} is not a message`, at, file.path);
    return undefined;
  }

  private undefined(name: string, at: Position, file: LinkedFile): never {
    const elsewhere = this.symbols.get(name.replace(/^\./, ''))?.file;
    const hint =
      elsewhere === undefined || file.visible.has(elsewhere)
        ? ''
        : `; it is in ${JSON.stringify(elsewhere.path ?? 'the schema')}, which is not imported`;
    protoFail(`the type ${JSON.stringify(name)} is not defined${hint}`, at, file.path);
  }
}

let descriptor: ProtoLink | undefined;

/** descriptor.proto alone, linked once in each process. */
function descriptorLink(): ProtoLink {
  const node = knownProtoFile('google/protobuf/descriptor.proto') as FileNode;
  descriptor ??= new ProtoLink(node, { references: [], lenient: false });
  return descriptor;
}

/** A file and all files that it imports publicly, directly or indirectly. */
function publicClosure(file: LinkedFile, done: Map<LinkedFile, Set<LinkedFile>>): Set<LinkedFile> {
  const held = done.get(file);
  if (held !== undefined) return held;
  const closure = new Set([file]);
  done.set(file, closure);
  for (const { file: imported, mode } of file.imports) {
    if (mode !== 'public') continue;
    for (const one of publicClosure(imported, done)) closure.add(one);
  }
  return closure;
}

function positionOf(symbol: ProtoSymbol): Position {
  return symbol.kind === 'field' ? symbol.at : symbol.node.at;
}
