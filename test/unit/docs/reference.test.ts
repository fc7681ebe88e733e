/** The reference pages agree with the tables of the sources. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { COMMANDS } from '../../../src/bin/main.ts';
import { CORE_ERRORS } from '../../../src/core/errors.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { generateDocs } from '../../../tools/docs-gen.ts';

const pages = await generateDocs();

test.each([...pages.keys()])('the page %s equals the output of `npm run generate`', (path) => {
  expect(readFileSync(join(packageRoot(), path), 'utf8')).toBe(pages.get(path));
});

test('every command has its section, and every setting has its row', async () => {
  const text = pages.get('docs/reference/commands.md') ?? '';
  for (const [name, load] of Object.entries(COMMANDS)) {
    const start = text.indexOf(`\n## ${name}\n`);
    expect(start, name).toBeGreaterThan(0);
    const section = text.slice(
      start,
      text.indexOf('\n## ', start + 5) < 0 ? undefined : text.indexOf('\n## ', start + 5),
    );
    for (const flag of Object.keys((await load()).command.settings))
      expect(section).toContain(`| \`-${flag}\` |`);
  }
});

test('every code of the shared error table is on the page', () => {
  const text = pages.get('docs/reference/errors.md') ?? '';
  for (const [code, row] of Object.entries(CORE_ERRORS))
    expect(text).toContain(`| \`${code}\` | ${row.kind} | ${row.http} | ${row.grpc} | ${row.exit} |`);
});

test('the page omits no error table of the sources', () => {
  const source = join(packageRoot(), 'src');
  const tables = readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter(
      (path) =>
        path.endsWith('.ts') &&
        // A table that only combines other tables has no codes of its own.
        /^export const [A-Z_]*ERRORS = \{(?! \.\.\.)/m.test(readFileSync(join(source, path), 'utf8')),
    )
    .map((path) => `src/${path}`)
    .sort();
  const told = [...(pages.get('docs/reference/errors.md') ?? '').matchAll(/^From `(.+)`\.$/gm)]
    .map((match) => match[1])
    .sort();
  expect(told).toEqual(tables);
});

test('every row of a table has as many cells as its head', () => {
  for (const [path, text] of pages) {
    if (!path.endsWith('.md')) continue;
    let width = 0;
    let rows = 0;
    for (const line of text.split('\n')) {
      const cells = line.startsWith('|') ? line.split(/(?<!\\)\|/).length : 0;
      if (width > 0 && cells > 0) expect(cells, line).toBe(width);
      width = cells;
      if (cells > 0) rows++;
    }
    expect(rows).toBeGreaterThan(20);
  }
});
