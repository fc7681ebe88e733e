/** Examples of a how-to page as modules of a folder inside the package, so that they import it by
 *  its name. The first line of an example names its file. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';

export interface PageExamples {
  readonly folder: string;
  /** File names. */
  readonly files: readonly string[];
  /** Compiles the examples as TypeScript of a strict ES module. Returns the errors. */
  compile(): Promise<string>;
}

/** Writes the examples of a page into a folder that is removed after the test file. */
export function pageExamples(page: string): PageExamples {
  const home = join(packageRoot(), '.millrace');
  mkdirSync(home, { recursive: true });
  const folder = mkdtempSync(join(home, 'examples-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const text = readFileSync(join(packageRoot(), page), 'utf8');
  const files = [...text.matchAll(/^```ts\n\/\/ (\S+)\n([\s\S]*?)^```$/gm)].map(([, name, code]) => {
    writeFileSync(join(folder, name as string), code as string);
    return name as string;
  });
  return {
    folder,
    files,
    async compile() {
      const compilerOptions = {
        strict: true,
        noEmit: true,
        skipLibCheck: true,
        target: 'es2023',
        module: 'nodenext',
        experimentalDecorators: true,
        emitDecoratorMetadata: true,
        types: ['node'],
      };
      writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
      const compiler = join(packageRoot(), 'node_modules/typescript-native/bin/tsc');
      const { stdout } = await promisify(execFile)(process.execPath, [compiler, '-p', folder]).catch(
        (thrown: { stdout: string }) => thrown,
      );
      return stdout;
    },
  };
}
