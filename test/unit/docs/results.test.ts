/** The page of results agrees with its JSON files, including missed goals. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { BenchReport } from '../../../bench/harness.ts';
import { packageRoot } from '../../../src/shell/package.ts';
import { generateCompatibility } from '../../../tools/compatibility-gen.ts';
import { withReadmeFigures } from '../../../tools/figures.ts';
import { generateResults } from '../../../tools/results-gen.ts';

const pages = generateResults();
const folder = join(packageRoot(), 'docs/results');

test.each([...pages.keys()])('the page %s equals the output of `npm run generate`', (path) => {
  expect(readFileSync(join(packageRoot(), path), 'utf8')).toBe(pages.get(path));
});

test('another stored result changes the row of the README that has its figure', () => {
  const stored = readdirSync(folder).filter((name) => name.endsWith('.json'));
  const reports = new Map(
    stored.map((name) => [
      name.replace(/\.json$/, ''),
      JSON.parse(readFileSync(join(folder, name), 'utf8')) as BenchReport,
    ]),
  );
  const engine = reports.get('engine') as BenchReport;
  const results = engine.results.map((row) =>
    row.metric.endsWith('from Kafka: rate') ? { ...row, value: 1234, ratio: 0.5 } : row,
  );
  reports.set('engine', { ...engine, results });
  const readme = readFileSync(join(packageRoot(), 'README.md'), 'utf8');
  const changed = withReadmeFigures(readme, reports, (value) => `${value}`).split('\n');
  expect(changed).toContainEqual(
    expect.stringMatching(/^\| engine from Kafka, .* \| 1234 events\/s \| .* \| 0\.5 \|$/),
  );
  expect(changed).toHaveLength(readme.split('\n').length);
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
