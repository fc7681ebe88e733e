/** The documentation site, built from the documents and the doc comments by `npm run docs`. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';

/** Time limit of one installation of the generators and one build of the site. */
const BUILD_LIMIT_MS = 1_200_000;

const root = packageRoot();
const built = join(root, '.millrace', 'docs');
const page = (path: string): string => readFileSync(join(built, path), 'utf8');

interface Site {
  readonly pageOf: (path: string) => string | undefined;
  readonly pageText: (path: string, text: string) => string;
}
/** Part of the search library that VitePress runs in the browser. */
interface SearchLibrary {
  loadJSON(
    index: string,
    options: { readonly fields: readonly string[] },
  ): { search(words: string, options: { readonly combineWith?: 'AND' }): readonly { readonly id: string }[] };
}
const { pageOf, pageText } = (await import(join(root, 'tools/docs-site.mjs'))) as Site;

describe('the pages of the documentation site', () => {
  it('a document has the page of its folder, and any other file has none', () => {
    expect(pageOf('docs/how-to/security.md')).toBe('how-to/security.md');
    expect(pageOf('docs/reference/rules/README.md')).toBe('reference/rules/index.md');
    expect(pageOf('README.md')).toBe('index.md');
    expect(pageOf('src/core/errors.ts')).toBeUndefined();
  });

  it('a link to a document leads to its page, and a link to a source file becomes its path', () => {
    const links = '[flags](../reference/commands.md#relay), [errors](../../src/core/errors.ts), `[x](y)`';
    expect(pageText('docs/how-to/outbox.md', links)).toBe(
      '[flags](../reference/commands.md#relay), errors (`src/core/errors.ts`), `[x](y)`',
    );
    expect(pageText('README.md', '[limits](docs/reference/limits.md)')).toBe(
      '[limits](./reference/limits.md)',
    );
  });
});

describe('npm run docs', () => {
  // VitePress itself refuses a dead link between pages.
  beforeAll(() => {
    execFileSync('npm', ['run', '--silent', 'docs'], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  }, BUILD_LIMIT_MS);

  it('the start page links the four kinds of documents', () => {
    for (const kind of ['tutorials', 'how-to', 'reference', 'explanation'])
      expect(page('index.html')).toContain(`href="/${kind}/`);
  });

  it('the reference of the library has a page for each entry point, made from its doc comments', () => {
    expect(page('reference/library/outbox.html')).toContain('idempotency');
    for (const entry of ['registry', 'engine', 'drivers'])
      expect(page(`reference/library/${entry}.html`).length).toBeGreaterThan(10_000);
  });

  it('a search for two words of a document finds its page', async () => {
    const names = readdirSync(join(built, 'assets'), { recursive: true }).map(String);
    const chunk = names.find((name) => /localSearchIndex.*\.js$/.test(name)) ?? 'no search index';
    const { default: index } = (await import(join(built, 'assets', chunk))) as { default: string };
    const { default: MiniSearch } = (await import(
      join(root, 'docs/site/node_modules/minisearch/dist/es/index.js')
    )) as { default: SearchLibrary };
    const search = MiniSearch.loadJSON(index, { fields: ['title', 'titles', 'text'] });
    const found = search.search('safe-id horizon', { combineWith: 'AND' }).map(({ id }) => id);
    expect(found).toContainEqual(expect.stringContaining('/glossary#'));
    expect(search.search('wordthatnodocumentcontains', {})).toEqual([]);
  });
});
