/** Pages that are written by hand agree with the sources that they describe. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import type { Access, Need, RequestGate } from '../../../src/access/request.ts';
import { engineRoutes } from '../../../src/engine/api/routes.ts';
import { RECORD } from '../../../src/engine/durability/changelog/records.ts';
import {
  STATE_STORES,
  WINDOWS_FILE,
  WINDOWS_FOLDER,
} from '../../../src/engine/durability/savepoint/files.ts';
import type { HttpRequestHead } from '../../../src/io/http/port.ts';
import { projectRoot, read, repositoryFiles } from '../../repository/root.ts';

/** Text of a page between two headings. */
function sectionOf(path: string, heading: string): string {
  const text = read(path);
  const start = text.indexOf(`\n${heading}\n`) + 1;
  expect(start, `${path} has ${heading}`).toBeGreaterThan(0);
  const level = heading.slice(0, heading.indexOf(' '));
  const rest = text.slice(start + heading.length);
  const end = rest.search(new RegExp(`^#{1,${level.length}} `, 'm'));
  return end < 0 ? rest : rest.slice(0, end);
}

/** Cells of the rows of a table, without its head. */
const rowsOf = (text: string): string[][] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
    .slice(2);

const codesOf = (cell: string): string[] =>
  [...cell.matchAll(/`([^`]+)`/g)].map(([, code]) => code as string);

describe('docs/reference/access.md', () => {
  /** Right that each route of the engine asks the gate for. */
  function engineNeeds(): Map<string, string> {
    const asked: Need[] = [];
    const everyone: Access = {
      ...{ principal: 'anonymous', may: () => true },
      ...{ mayRead: () => true, mayReadContext: () => true },
    };
    const gate: RequestGate = {
      authorise: (_, need) => {
        asked.push(need);
        return everyone;
      },
      demand: () => {},
    };
    const routes = engineRoutes(() => undefined, '0', { gate, savepoints: () => undefined });
    return new Map(
      routes.map(({ method, path, admit }) => {
        asked.length = 0;
        void admit?.({} as HttpRequestHead);
        const [need] = asked;
        if (need === undefined) return [path, 'nothing'];
        return [`${method} ${path}`, `\`${need.operation}\` of \`${need.subject}\``];
      }),
    );
  }

  it('the table of the engine has each of its routes with the right that the route needs', () => {
    const rows = rowsOf(sectionOf('docs/reference/access.md', '### Engine'));
    const written = new Map(
      rows.flatMap(([requests = '', need = '']) => codesOf(requests).map((one) => [one, need] as const)),
    );
    const needs = engineNeeds();
    expect(needs.size).toBeGreaterThan(6);
    // The server itself answers these.
    for (const path of ['/metrics', '/health', '/ready', '/version']) needs.set(path, 'nothing');
    expect(written).toEqual(needs);
  });
});

describe('docs/explanation/engine-state.md', () => {
  const PAGE = 'docs/explanation/engine-state.md';

  it('the page of the state has every record of the changelog with its number', () => {
    const rows = rowsOf(sectionOf(PAGE, '## The changelog'));
    expect(rows.map(([kind, name]) => [name, Number(kind)])).toEqual(Object.entries(RECORD));
  });

  it('the page of the state names the version that the manifest has, everywhere', () => {
    const source = read('src/engine/durability/checkpoint/state-manifest.ts');
    const version = /^const STATE_VERSION = (\d+);$/m.exec(source)?.[1];
    const least = /^const STATE_VERSION_MIN = (\d+);$/m.exec(source)?.[1];
    expect(read(PAGE)).toContain(`\`millrace-engine-checkpoint\`, version ${version} (`);
    const versions = sectionOf(PAGE, '## Versions');
    expect(versions).toContain(`This build writes version ${version} and reads ${least} to ${version};`);
    expect(rowsOf(versions)[0]?.[0]).toBe(version);
  });

  it('the page of the state has the stores and the windows of a state folder', () => {
    const files = rowsOf(read(PAGE).slice(0, read(PAGE).indexOf('\n## '))).flatMap(([file = '']) =>
      codesOf(file),
    );
    const expected = [...STATE_STORES.map((store) => `${store}/`), WINDOWS_FILE, `${WINDOWS_FOLDER}/NAME/`];
    expect(files).toEqual(expect.arrayContaining(expected));
  });
});

describe('docs/how-to/install.md', () => {
  const rows = rowsOf(sectionOf('docs/how-to/install.md', '## System packages'));
  const column = (index: number): string[] => rows.flatMap((cells) => codesOf(cells[index] as string)).sort();

  it('the packages to compile are those that bin/bootstrap installs', () => {
    const probes = /^missing_packages\(\) \{\n([\s\S]*?)^\}/m.exec(read('bin/bootstrap'))?.[1] ?? '';
    const installed = [...probes.matchAll(/\becho ([\w.-]+)(?:;|$)/gm)].map(([, name]) => name as string);
    expect(installed.length).toBeGreaterThan(10);
    expect(column(0)).toEqual(installed.sort());
  });

  it('the packages to run are those that the image has', () => {
    const image = read('docker/Dockerfile');
    const runtime = image.slice(image.lastIndexOf('\nFROM '));
    const libraries = /--no-install-recommends \\\n(.*?) tini git/.exec(runtime)?.[1]?.trim().split(' ');
    expect(column(1)).toEqual(libraries?.sort());
  });
});

describe('library imports of the documents', () => {
  interface Manifest {
    readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
  }
  const { exports } = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as Manifest;

  /** Names that a module of TypeScript exports, types included. */
  function exportsOf(path: string): Set<string> {
    const source = ts.createSourceFile(path, read(path), ts.ScriptTarget.Latest, true);
    const names = new Set<string>();
    for (const statement of source.statements) {
      if (ts.isExportDeclaration(statement) && statement.exportClause !== undefined) {
        if (ts.isNamedExports(statement.exportClause))
          for (const { name } of statement.exportClause.elements) names.add(name.text);
      } else if (ts.canHaveModifiers(statement)) {
        if (!ts.getModifiers(statement)?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) continue;
        if (ts.isVariableStatement(statement))
          for (const { name } of statement.declarationList.declarations) names.add(name.getText());
        else if ('name' in statement) names.add((statement.name as ts.Identifier).text);
      }
    }
    return names;
  }

  /** Names that a block imports from an entry point of the package. */
  function importsOf(code: string): Array<readonly [entry: string, name: string]> {
    const source = ts.createSourceFile('block.ts', code, ts.ScriptTarget.Latest, true);
    return source.statements.filter(ts.isImportDeclaration).flatMap(({ moduleSpecifier, importClause }) => {
      const entry = (moduleSpecifier as ts.StringLiteral).text;
      const bindings = importClause?.namedBindings;
      if (!/^millrace(\/|$)/.test(entry) || bindings === undefined || !ts.isNamedImports(bindings)) return [];
      return bindings.elements.map(({ name, propertyName }) => [entry, (propertyName ?? name).text] as const);
    });
  }

  it('every name that a document imports from an entry point is exported there', () => {
    const imports = repositoryFiles()
      .filter((path) => path.endsWith('.md'))
      .flatMap((path) =>
        [...read(path).matchAll(/^ *```(?:js|ts)\n([\s\S]*?)^ *```/gm)].flatMap(([, code = '']) =>
          importsOf(code).map(([entry, name]) => ({ path, entry, name })),
        ),
      );
    expect(imports.length).toBeGreaterThan(20);
    const known = new Map<string, Set<string>>();
    const isExported = (entry: string, name: string): boolean => {
      const target = exports[entry.replace('millrace', '.')];
      if (target === undefined || typeof target === 'string') return false;
      const source = target.default.replace('./dist/', '').replace(/\.js$/, '.ts');
      if (!known.has(source)) known.set(source, exportsOf(source));
      return known.get(source)?.has(name) === true;
    };
    expect(imports.filter(({ entry, name }) => !isExported(entry, name))).toEqual([]);
  });
});
