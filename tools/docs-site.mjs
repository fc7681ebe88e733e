// Builds the documentation site into .millrace/docs: copies the documents of the repository into
// docs/site/pages, adds the library reference that TypeDoc generates from doc comments, and runs
// VitePress, which also builds the search index and rejects dead links between pages.
//
//   npm run docs [-- -serve]
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const site = join(root, 'docs', 'site');
const pages = join(site, 'pages');

/** Documents outside docs/: path from the root, and page. */
const OUTSIDE = new Map([
  ['README.md', 'index.md'],
  ['ARCHITECTURE.md', 'explanation/architecture.md'],
  ['CONTRIBUTING.md', 'contributing.md'],
  ['CHANGELOG.md', 'changelog.md'],
]);

const ENTRY_POINTS = [
  'src/registry/index.ts',
  'src/outbox/index.ts',
  'src/engine/index.ts',
  'src/drivers.ts',
];

const run = (command, args, cwd = root) => execFileSync(command, args, { cwd, stdio: 'inherit' });

const documents = () => [
  ...OUTSIDE.keys(),
  ...readdirSync(join(root, 'docs'), { recursive: true })
    .map((path) => join('docs', String(path)))
    .filter((path) => path.endsWith('.md') && !path.startsWith(join('docs', 'site'))),
];

/** Path of a document's page; undefined if the file has no page. */
export function pageOf(path) {
  const page =
    OUTSIDE.get(path) ?? (path.startsWith('docs/') && path.endsWith('.md') ? path.slice(5) : undefined);
  return page?.replace(/(^|\/)README\.md$/, '$1index.md');
}

/** Text of a document with its links adapted to the site. A link to another document points to its
 *  page; a link to another file of the repository becomes the file's path, because the site has no
 *  copy. */
export function pageText(path, text) {
  const from = dirname(pageOf(path));
  const linkTo = (target) => {
    const step = relative(from, target);
    return step.startsWith('.') ? step : `./${step}`;
  };
  const relink = (label, link) => {
    const [file, section] = link.split('#');
    const target = normalize(join(dirname(path), decodeURIComponent(file)));
    const page = pageOf(existsSync(join(root, target, 'README.md')) ? join(target, 'README.md') : target);
    if (page !== undefined && existsSync(join(root, target)))
      return `[${label}](${linkTo(page)}${section === undefined ? '' : `#${section}`})`;
    return label.includes('`') || label === target ? label : `${label} (\`${target}\`)`;
  };
  return text
    .split(/(^```[\s\S]*?^```|`[^`\n]*`(?!\]))/m)
    .map((part, index) =>
      index % 2 === 1
        ? part
        : part
            .replace(/(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)/g, (_, label, link) => relink(label, link))
            .replace(/(src|srcset)="docs\/(images\/[^"]+)"/g, '$1="./$2"'),
    )
    .join('');
}

function writePages() {
  rmSync(pages, { recursive: true, force: true });
  for (const path of documents()) {
    const page = join(pages, pageOf(path));
    mkdirSync(dirname(page), { recursive: true });
    writeFileSync(page, pageText(path, readFileSync(join(root, path), 'utf8')));
  }
  cpSync(join(root, 'docs', 'images'), join(pages, 'images'), { recursive: true });
  const results = join(root, 'docs', 'results');
  for (const name of readdirSync(results).filter((name) => name.endsWith('.svg')))
    copyFileSync(join(results, name), join(pages, 'results', name));
}

function writeLibraryReference() {
  run(process.execPath, [
    join(site, 'node_modules', 'typedoc', 'bin', 'typedoc'),
    ...['--plugin', join(site, 'node_modules', 'typedoc-plugin-markdown', 'dist', 'index.js')],
    ...['--tsconfig', join(root, 'tsconfig.json'), '--skipErrorChecking', '--readme', 'none'],
    ...['--out', join(pages, 'reference', 'library'), '--name', 'Library', '--disableSources'],
    ...['--router', 'module', '--entryFileName', 'index', '--hidePageHeader', '--hideBreadcrumbs'],
    ...['--excludePrivate', '--excludeInternal', '--sanitizeComments', '--useCodeBlocks'],
    ...ENTRY_POINTS.flatMap((entry) => ['--entryPoints', join(root, entry)]),
  ]);
}

function main() {
  if (!existsSync(join(site, 'node_modules', 'vitepress')))
    run('npm', ['ci', '--no-audit', '--no-fund'], site);
  writePages();
  writeLibraryReference();
  const vitepress = join(site, 'node_modules', 'vitepress', 'bin', 'vitepress.js');
  run(process.execPath, [vitepress, 'build', '.'], site);
  console.log(`documentation site: ${relative(process.cwd(), join(root, '.millrace', 'docs'))}`);
  if (process.argv.includes('-serve'))
    run(process.execPath, [vitepress, 'serve', '.', '--host', '127.0.0.1'], site);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
