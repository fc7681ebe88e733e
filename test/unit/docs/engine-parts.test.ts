/** The page of `millrace/engine` names every export of the entry point, and nothing else. */
import { expect, it } from 'vitest';
import { read } from '../../repository/root.ts';

it('the page of millrace/engine lists exactly the names that the entry point exports', () => {
  const exported = [...read('src/engine/index.ts').matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(
    ([, list = '']) =>
      list
        .split(',')
        .map((name) => name.replace(/\btype\b/, '').trim())
        .filter((name) => name !== ''),
  );
  expect(exported.length).toBeGreaterThan(40);
  const rows = read('docs/reference/engine-parts.md').match(/^\| `.*$/gm) ?? [];
  const named = rows.flatMap((row) =>
    [...(row.split(' | ')[0] as string).matchAll(/`(\w+)`/g)].map(([, name]) => name as string),
  );
  expect(named.sort()).toEqual(exported.sort());
});
