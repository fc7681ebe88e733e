// Site of the documents. tools/docs-site.mjs writes `pages` from the documents of the repository.
// The sidebar follows from the folders and from the first heading of each page.
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitepress';

const pages = fileURLToPath(new URL('../pages', import.meta.url));

const SECTIONS = [
  ['Tutorials', 'tutorials'],
  ['How-to guides', 'how-to'],
  ['Reference', 'reference'],
  ['Library', 'reference/library'],
  ['Compatibility rules', 'reference/rules'],
  ['Explanation', 'explanation'],
  ['Decisions', 'decisions'],
  ['Results', 'results'],
];

const titleOf = (path) =>
  /^# (.*)$/m.exec(readFileSync(join(pages, path), 'utf8'))?.[1] ?? basename(path, '.md');

const pagesOf = (folder) =>
  readdirSync(join(pages, folder))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => ({ text: titleOf(`${folder}/${name}`), link: `/${folder}/${name.replace(/\.md$/, '')}` }));

export default defineConfig({
  title: 'Millrace',
  description:
    'Contracts, effectively-once effects and exact event-time windows for Node.js on Kafka and PostgreSQL',
  srcDir: 'pages',
  outDir: '../../.millrace/docs',
  cacheDir: '../../.millrace/docs-cache',
  cleanUrls: true,
  lastUpdated: false,
  markdown: { theme: { light: 'github-light', dark: 'github-dark' } },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Start', link: '/' },
      { text: 'Tutorials', link: '/tutorials/demo' },
      { text: 'How-to', link: '/how-to/outbox' },
      { text: 'Reference', link: '/reference/commands' },
      { text: 'Explanation', link: '/explanation/architecture' },
    ],
    sidebar: SECTIONS.map(([text, folder]) => ({
      text,
      collapsed: folder === 'decisions' || folder === 'reference/rules' || folder === 'results',
      items: pagesOf(folder),
    })),
  },
});
