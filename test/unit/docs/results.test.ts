/** The page of results agrees with its JSON files, including missed goals. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { BenchReport } from '../../../bench/harness.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { generateCompatibility } from '../../../tools/compatibility-gen.ts';
import { generateResults } from '../../../tools/results-gen.ts';

const pages = generateResults();
const folder = join(packageRoot(), 'docs/results');

test.each([...pages.keys()])('the page %s equals the output of `npm run generate`', (path) => {
  expect(readFileSync(join(packageRoot(), path), 'utf8')).toBe(pages.get(path));
});

test('the compatibility table equals the reports of its own runs', () => {
  for (const [path, text] of generateCompatibility())
    expect(readFileSync(join(packageRoot(), path), 'utf8')).toBe(text);
});

test('every missed goal is marked as missed on the page', () => {
  const reports = readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as BenchReport);
  expect(reports.length).toBeGreaterThan(0);
  const missed = reports.flatMap((report) => report.results.filter((row) => row.met === false));
  const page = [...pages].flatMap(([path, text]) => (path.endsWith('figures.md') ? [] : [text])).join('');
  expect(page.match(/\*\*missed\*\*/g)?.length ?? 0).toBe(missed.length);
});
