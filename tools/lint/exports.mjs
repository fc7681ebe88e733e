// Checks public names and comments: no type name is exported twice in src; every function or class
// that an entry point of the package exports has a doc comment, and a function has an example.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export const ENTRY_POINTS = [
  'src/registry/index.ts',
  'src/outbox/index.ts',
  'src/outbox/adapters/index.ts',
  'src/outbox/nestjs/index.ts',
  'src/outbox/testing/index.ts',
  'src/engine/index.ts',
  'src/drivers.ts',
];

/** Findings for type names that several files declare and export. `files`: text by path. */
export function repeatedTypes(files) {
  const places = new Map();
  for (const [path, text] of files)
    for (const [, name] of text.matchAll(/^export (?:abstract )?(?:interface|type|class) (\w+)/gm))
      places.set(name, [...(places.get(name) ?? []), path]);
  return [...places]
    .filter(([, paths]) => paths.length > 1)
    .map(([name, paths]) => `${name} is exported by ${paths.join(' and ')}: rename all but one`);
}

const isFunction = (symbol) => (symbol.flags & ts.SymbolFlags.Function) !== 0;
const isClass = (symbol) => (symbol.flags & ts.SymbolFlags.Class) !== 0;

/** Findings for exported functions and classes without a doc comment, and functions without an
 *  example. */
export function undocumented(entryPoints, directory = root) {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent({ ...config, include: [] }, ts.sys, root);
  const paths = entryPoints.map((path) => join(directory, path));
  const program = ts.createProgram(paths, { ...options, noEmit: true, incremental: false });
  const checker = program.getTypeChecker();
  return paths.flatMap((path, index) => {
    const file = checker.getSymbolAtLocation(program.getSourceFile(path));
    return checker.getExportsOfModule(file).flatMap((exported) => {
      const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
      const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
      if (!isFunction(symbol) && !isClass(symbol)) return [];
      const at = relative(root, symbol.declarations[0].getSourceFile().fileName);
      const name = `${exported.name} (${at}, exported by ${entryPoints[index]})`;
      if (symbol.getDocumentationComment(checker).length === 0) return [`${name} has no doc comment`];
      const hasExample = symbol.getJsDocTags(checker).some((tag) => tag.name === 'example');
      return isFunction(symbol) && !hasExample ? [`${name} has no @example`] : [];
    });
  });
}

function sources() {
  return readdirSync(join(root, 'src'), { recursive: true })
    .map((path) => join('src', String(path)))
    .filter((path) => path.endsWith('.ts') && !path.endsWith('.gen.ts'))
    .map((path) => [path, readFileSync(join(root, path), 'utf8')]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = [...repeatedTypes(sources()), ...undocumented(ENTRY_POINTS)];
  for (const line of found) console.log(line);
  console.error(`${found.length} findings`);
  process.exitCode = found.length === 0 ? 0 : 1;
}
