/** The import rules name each planted violation and pass a clean tree. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { projectRoot } from './root.ts';

const tree = mkdtempSync(join(tmpdir(), 'millrace-imports-'));
afterAll(() => rmSync(tree, { recursive: true, force: true }));

const CLEAN: Readonly<Record<string, string>> = {
  'src/core/a.ts': 'export const a = 1;\n',
  'src/io/log/port.ts': "import { a } from '../../core/a.ts';\nexport const port = a;\n",
  'src/io/log/driver.ts': "import { port } from './port.ts';\nexport const driver = port;\n",
  'src/registry/index.ts': "import { port } from '../io/log/port.ts';\nexport const registry = port;\n",
  'src/outbox/index.ts': "import { port } from '../io/log/port.ts';\nexport const outbox = port;\n",
  'src/drivers.ts': "import { driver } from './io/log/driver.ts';\nexport const drivers = driver;\n",
  'src/bin/main.ts':
    "import { driver } from '../io/log/driver.ts';\nimport { drivers } from '../drivers.ts';\nimport { registry } from '../registry/index.ts';\nimport { outbox } from '../outbox/index.ts';\nexport const main = [driver, drivers, registry, outbox];\n",
};

const PLANTED: ReadonlyArray<{ readonly rule: string; readonly path: string; readonly text: string }> = [
  {
    rule: 'core-imports-core',
    path: 'src/core/a.ts',
    text: "import { readFileSync } from 'node:fs';\nexport const a = readFileSync;\n",
  },
  {
    rule: 'products-import-down',
    path: 'src/outbox/index.ts',
    text: "import { registry } from '../registry/index.ts';\nexport const outbox = registry;\n",
  },
  {
    rule: 'products-import-down',
    path: 'src/registry/index.ts',
    text: "import { driver } from '../io/log/driver.ts';\nexport const registry = driver;\n",
  },
  {
    rule: 'drivers-import-down',
    path: 'src/drivers.ts',
    text: "import { outbox } from './outbox/index.ts';\nexport const drivers = outbox;\n",
  },
  {
    rule: 'port-names-no-driver',
    path: 'src/io/log/port.ts',
    text: "import { driver } from './driver.ts';\nexport type Port = typeof driver;\nexport const port = 1;\n",
  },
  {
    rule: 'only-bin-imports-bin',
    path: 'src/registry/index.ts',
    text: "import { main } from '../bin/main.ts';\nexport const registry = main;\n",
  },
];

function cruise(files: Readonly<Record<string, string>>): {
  readonly status: number | null;
  readonly output: string;
} {
  rmSync(join(tree, 'src'), { recursive: true, force: true });
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    writeFileSync(join(tree, path), text);
  }
  copyFileSync(join(projectRoot, '.dependency-cruiser.cjs'), join(tree, '.dependency-cruiser.cjs'));
  copyFileSync(join(projectRoot, 'tsconfig.json'), join(tree, 'tsconfig.json'));
  copyFileSync(join(projectRoot, 'tsconfig.check.json'), join(tree, 'tsconfig.check.json'));
  writeFileSync(join(tree, 'package.json'), '{"type":"module"}');
  rmSync(join(tree, 'node_modules'), { force: true });
  symlinkSync(join(projectRoot, 'node_modules'), join(tree, 'node_modules'));
  const cli = join(projectRoot, 'node_modules/.bin/depcruise');
  const result = spawnSync(cli, ['src', '--config', '.dependency-cruiser.cjs', '--output-type', 'err'], {
    cwd: tree,
    encoding: 'utf8',
  });
  return { status: result.status, output: `${result.stdout}${result.stderr}` };
}

describe('import rules', () => {
  it('the import rules pass a tree whose imports point down', () => {
    expect(cruise(CLEAN)).toEqual({ status: 0, output: expect.stringContaining('no dependency violations') });
  });

  it.each(PLANTED)('the import rule $rule catches $path', ({ rule, path, text }) => {
    const { status, output } = cruise({ ...CLEAN, [path]: text });
    expect(output).toContain(rule);
    expect(status).not.toBe(0);
  });
});
