/** Module loader for test modules outside of a test runner: compiles the TypeScript of tests, takes
 *  the product from its build, and plants a fault into one module of the build. */
import { readFileSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import ts from 'typescript';

let root;
let fault;
export function initialize(data) {
  ({ root, fault } = data);
}

export async function resolve(specifier, context, nextResolve) {
  if (!specifier.startsWith('.') || !specifier.endsWith('.ts')) return nextResolve(specifier, context);
  const path = fileURLToPath(new URL(specifier, context.parentURL));
  const source = `${root}/src/`;
  const url = path.startsWith(source)
    ? pathToFileURL(`${root}/dist/src/${path.slice(source.length, -'.ts'.length)}.js`).href
    : pathToFileURL(path).href;
  return { url, shortCircuit: true };
}

export async function load(url, context, nextLoad) {
  if (url.endsWith('.ts')) {
    const options = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 };
    const { outputText } = ts.transpileModule(readFileSync(fileURLToPath(url), 'utf8'), {
      compilerOptions: options,
    });
    return { format: 'module', source: outputText, shortCircuit: true };
  }
  const loaded = await nextLoad(url, context);
  if (fault === null || !url.endsWith(fault.module)) return loaded;
  let source = String(loaded.source);
  for (const [from, to] of fault.edits) {
    if (source.split(from).length !== 2)
      throw new Error(`${fault.module} contains ${source.split(from).length - 1} times ${from}`);
    source = source.replace(from, () => to);
  }
  return { ...loaded, source };
}
