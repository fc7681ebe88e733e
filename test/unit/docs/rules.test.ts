/** The pages of the rules agree with the catalogue. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { RULES } from '../../../src/registry/rules/catalogue.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { generateRules } from '../../../tools/docs-gen.ts';

const pages = generateRules();

test.each([...pages.keys()])('the page %s equals the output of `npm run generate`', (path) => {
  expect(readFileSync(join(packageRoot(), path), 'utf8')).toBe(pages.get(path));
});

test('each rule has exactly one page and one row in the list', () => {
  const names = readdirSync(join(packageRoot(), 'docs', 'reference', 'rules')).sort();
  expect(names).toEqual([...RULES.map(({ id }) => `${id}.md`), 'README.md'].sort());
  const list = pages.get('docs/reference/rules/README.md') ?? '';
  for (const { id } of RULES) expect(list).toContain(`| [\`${id}\`](${id}.md) |`);
});
