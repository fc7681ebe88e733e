/** Documents: their links lead to existing targets, the code of the README parses, and the README
 *  stays short. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from 'vitest';
import { projectRoot, read, repositoryFiles } from './root.ts';

const README_WORDS_MAX = 1200;
const GLOSSARY_TERMS_MAX = 60;

const documents = repositoryFiles().filter((path) => path.endsWith('.md'));

/** Text of a document without its code. */
const prose = (path: string): string =>
  read(path)
    .replace(/^```[\s\S]*?^```/gm, '')
    .replace(/`[^`\n]*`/g, '');

/** Targets of links and pictures that are files of the repository. */
function linksOf(path: string): string[] {
  const found = prose(path).matchAll(/\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"/g);
  return [...found].map((match) => match[1] ?? match[2] ?? '').filter((link) => !/^([a-z]+:|#)/.test(link));
}

it(`the README has at most ${README_WORDS_MAX} words`, () => {
  const words = read('README.md').split(/\s+/).filter(Boolean).length;
  expect(words).toBeGreaterThan(300);
  expect(words).toBeLessThanOrEqual(README_WORDS_MAX);
});

it(`the glossary has at most ${GLOSSARY_TERMS_MAX} terms in order, each with its file`, () => {
  const rows = read('docs/glossary.md')
    .split('\n')
    .filter((line) => /^\| (?!term |---)/.test(line))
    .map((line) => line.split('|').map((cell) => cell.trim()));
  expect(rows.length).toBeGreaterThan(30);
  expect(rows.length).toBeLessThanOrEqual(GLOSSARY_TERMS_MAX);
  const terms = rows.map(([, term = '']) => term.toLowerCase());
  expect(terms).toEqual([...terms].sort((a, b) => (a < b ? -1 : 1)));
  for (const [, , meaning = '', file = ''] of rows) {
    expect(meaning).toMatch(/^[A-Z].*\.$/);
    expect(existsSync(join(projectRoot, /^`(src\/[\w./-]+)`$/.exec(file)?.[1] ?? 'nowhere')), file).toBe(
      true,
    );
  }
});

/** Path from the root to which a link of a document leads. */
const targetOf = (path: string, link: string): string =>
  normalize(join(dirname(path), decodeURIComponent(link.split('#')[0] as string)));

it('every link of a document to the repository leads to a file or a folder', () => {
  expect(documents.length).toBeGreaterThan(20);
  const dead = documents.flatMap((path) =>
    linksOf(path)
      .filter((link) => !existsSync(join(projectRoot, targetOf(path, link))))
      .map((link) => `${path}: ${link}`),
  );
  expect(dead).toEqual([]);
});

/** Documents about the sources, which the package has in their compiled form alone. */
const ABOUT_SOURCES = /^(ARCHITECTURE\.md|docs\/decisions\/)/;

it('every link of a document in the package leads to a file of the package', () => {
  const { files } = JSON.parse(read('package.json')) as { readonly files: readonly string[] };
  const isWithin = (path: string, folder: string): boolean => `${path}/`.startsWith(`${folder}/`);
  const isPacked = (path: string): boolean =>
    files.some((entry) => isWithin(path, entry)) && !files.some((entry) => isWithin(`!${path}`, entry));
  const packed = documents.filter((path) => isPacked(path) && !ABOUT_SOURCES.test(path));
  expect(packed.length).toBeGreaterThan(50);
  const dead = packed.flatMap((path) =>
    linksOf(path)
      .filter((link) => !isPacked(targetOf(path, link).replace(/\/$/, '')))
      .map((link) => `${path}: ${link}`),
  );
  expect(dead).toEqual([]);
});

it('docs/README.md links every guide and every tutorial', () => {
  const linked = new Set(linksOf('docs/README.md').map((link) => targetOf('docs/README.md', link)));
  const pages = documents.filter((path) => /^docs\/(how-to|tutorials)\//.test(path));
  expect(pages.length).toBeGreaterThan(30);
  expect(pages.filter((path) => !linked.has(path))).toEqual([]);
});

it('a link to a section names a heading of its document', () => {
  const slug = (heading: string): string =>
    heading
      .trim()
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replace(/ /g, '-');
  const dead = documents.flatMap((path) => {
    const found = [...prose(path).matchAll(/\]\(([^)\s#]*)#([^)\s]+)\)/g)];
    return found
      .filter(([, file = '', section = '']) => {
        if (/^[a-z]+:/.test(file)) return false;
        const target = file === '' ? path : normalize(join(dirname(path), file));
        if (!target.endsWith('.md')) return false;
        const headings = [...read(target).matchAll(/^#+ (.*)$/gm)].map((match) => slug(match[1] as string));
        return !headings.includes(section);
      })
      .map(([link]) => `${path}: ${link}`);
  });
  expect(dead).toEqual([]);
});

it('the JavaScript of the README parses', () => {
  const blocks = [...read('README.md').matchAll(/^```js\n([\s\S]*?)^```/gm)].map(
    (match) => match[1] as string,
  );
  expect(blocks.length).toBeGreaterThan(0);
  for (const block of blocks) {
    const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '--check', '-'], {
      input: block,
      encoding: 'utf8',
    });
    expect(stderr).toBe('');
    expect(status).toBe(0);
  }
});
