// Checks the language of comments, messages, names and documents: banned words, comment lines over
// 100 columns, comments that start without their noun, contractions.
//
//   node tools/lint/words.mjs [-long] [PATH ...]     default: every tracked file
//
// -long also lists sentences of more than 30 words. It never fails the check.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, extname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

export const COMMENT_COLUMNS_MAX = 100;
const SENTENCE_WORDS_MAX = 30;

/** Banned phrases, and the term that usually replaces each. */
const BANNED = [
  ['the one that', 'name the noun'],
  ['who asks|whoever asks', 'the caller'],
  ['whom|nobody|somebody|anybody|none of it', 'name the noun'],
  ['under ?way', 'in flight, running'],
  ['(?:let|lets|letting) (?:\\w+ )?go', 'release, drop'],
  ['given up(?= *(?:[.,;:)]|$))', 'say what ends'],
  ['puts? away|putting away', 'stored, closed'],
  ['taken for(?! (?:example|\\d))', 'treated as'],
  ['stands? in|stood in', 'is stored in'],
  ['comes? again|came again', 'is redelivered'],
  ['at once', 'immediately, atomically, at the same time'],
  ['goes on|go on|went on|going on', 'continues, resumes'],
  ['is there(?! (?:a|an|any|no)\\b)', 'exists'],
  ['(?:an?|the|each|every|next|last|first|one) looks?(?= *(?:[.,;:)]|$|at\\b|for\\b))', 'check, poll'],
  ['strangers?', 'unverified client, unknown name'],
  ['strange', 'foreign'],
  ['troubles?', 'error'],
  ['beats?', 'heartbeat, is faster than'],
  ['takes? up|took up|taken up', 'resumes, loads'],
  ['hands? on|handed on|handing on', 'forwards'],
  ['brings?|brought|bringing', 'loads, delivers, causes'],
  ['twins?', 'TypeScript reference implementation'],
  ['house', 'repository'],
].map(([pattern, instead]) => ({ pattern: new RegExp(`\\b(?:${pattern})\\b`, 'i'), instead }));

const CONTRACTION =
  /\b(?:\w+n['’]t|(?:it|that|there|what|who|let|here)['’]s|(?:you|we|they)['’](?:re|ve|ll|d)|I['’]m)\b/i;

/** First words that stand for a missing noun. "For each" and "For example" have theirs. */
const NOUNLESS =
  /^(?:Of|For(?! (?:each|every|example)\b)|Who|Whom|Whose|What|Whatever|Whoever|Whether|How)\b/;

/** Uses that stay, each with its reason: `file` is a path or the beginning of one. */
const JUSTIFIED = [
  { file: 'tools/lint/words', phrase: /./, why: 'the list itself and its test' },
  { file: 'test/repository/titles', phrase: /./, why: 'the list of banned words in titles and its test' },
  { file: 'src/', phrase: /^nobody$/i, why: 'the user nobody of Unix, who runs PostgreSQL' },
  { file: 'src/devstack/errors', phrase: /^strange$/, why: 'error code strange_folder, which users see' },
  { file: 'test/', phrase: /^nobody$/i, why: 'a published hash text, and messages that are expected' },
  { file: 'tools/figures', phrase: /^at once$/, why: 'names of figures in recorded results' },
  { file: 'bench/', phrase: /^(?:at once|is there|twin)$/, why: 'names of figures in recorded results' },
  { file: 'test/e2e/registry-bench', phrase: /^at once$/, why: 'names of figures in recorded results' },
];

const isJustified = (path, text) =>
  JUSTIFIED.some(({ file, phrase }) => path.startsWith(file) && phrase.test(text));

/** A run of text with the line it starts at: `comment` is read with all rules, `message` (a
 *  string), `name` (an identifier, split into words) and `prose` (a document) without the rule of
 *  the first word. */
const run = (kind, line, text) => ({ kind, line, text });

const stripped = (comment) =>
  comment
    .replace(/^\/\*+!?|\*+\/$/g, '')
    .split('\n')
    .map((line) => line.replace(/^\s*(?:\/\/+|\*+)?\s?/, ''))
    .join('\n')
    .trim();

/** Comments of a file as one run for each block; consecutive line comments make one block. */
function commentRuns(ranges, text, lineOf) {
  const runs = [];
  let previous;
  for (const { pos, end } of ranges) {
    const gap = previous === undefined ? undefined : text.slice(previous.end, pos);
    const joins = gap !== undefined && /^[^\S\n]*\n[^\S\n]*$/.test(gap) && text.startsWith('//', pos);
    if (joins && text.startsWith('//', previous.pos)) previous.end = end;
    else {
      previous = { pos, end };
      runs.push(previous);
    }
  }
  return runs.map(({ pos, end }) => run('comment', lineOf(pos), stripped(text.slice(pos, end))));
}

const wordsOfName = (name) =>
  name
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replace(/_/g, ' ')
    .toLowerCase();

function runsOfScript(path, text) {
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, false, ts.ScriptKind.TS);
  const lineOf = (pos) => file.getLineAndCharacterOfPosition(pos).line + 1;
  const comments = new Map();
  const runs = [];
  const collect = (ranges) => {
    for (const range of ranges ?? []) comments.set(range.pos, range);
  };
  const visit = (node) => {
    collect(ts.getLeadingCommentRanges(text, node.pos));
    collect(ts.getTrailingCommentRanges(text, node.end));
    if (ts.isStringLiteralLike(node) || ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node))
      runs.push(run('message', lineOf(node.end), node.text));
    else if (ts.isIdentifier(node)) runs.push(run('name', lineOf(node.end), wordsOfName(node.text)));
    ts.forEachChild(node, visit);
  };
  visit(file);
  // Comments before a closing bracket belong to no node of the tree, only to a token.
  for (const match of text.matchAll(/^[^\S\n]*(?:\/\/[^\n]*|\/\*[\s\S]*?\*\/)/gm)) {
    const pos = match.index + match[0].search(/\S/);
    if (!comments.has(pos) && !insideLiteral(file, pos))
      comments.set(pos, { pos, end: match.index + match[0].length });
  }
  const ordered = [...comments.values()].sort((left, right) => left.pos - right.pos);
  return [...commentRuns(ordered, text, lineOf), ...runs];
}

/** True where `pos` lies inside a string, a template or another comment's node text. */
function insideLiteral(file, pos) {
  let inside = false;
  const visit = (node) => {
    if (node.pos > pos || node.end <= pos) return;
    const starts = ts.skipTrivia(file.text, node.pos);
    if (
      starts <= pos &&
      (ts.isStringLiteralLike(node) ||
        ts.isTemplateHead(node) ||
        ts.isTemplateMiddleOrTemplateTail(node) ||
        ts.isRegularExpressionLiteral(node))
    )
      inside = true;
    ts.forEachChild(node, visit);
  };
  visit(file);
  return inside;
}

function runsOfCpp(text) {
  const lines = text.split('\n');
  const starts = [0];
  for (const line of lines) starts.push(starts.at(-1) + line.length + 1);
  const lineOf = (pos) => starts.findLastIndex((start) => start <= pos) + 1;
  const ranges = [];
  const runs = [];
  for (const match of text.matchAll(/\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'/g)) {
    const end = match.index + match[0].length;
    if (match[0].startsWith('/')) ranges.push({ pos: match.index, end });
    else if (match[0].startsWith('"')) runs.push(run('message', lineOf(match.index), match[0].slice(1, -1)));
  }
  return [...commentRuns(ranges, text, lineOf), ...runs];
}

function runsOfDocument(text) {
  const runs = [];
  let inCode = false;
  for (const [index, line] of text.split('\n').entries()) {
    if (/^\s*(?:```|~~~)/.test(line)) inCode = !inCode;
    else if (!inCode) runs.push(run('prose', index + 1, line.replace(/`[^`]*`/g, '``')));
  }
  return runs;
}

const SCRIPTS = new Set(['.ts', '.mjs', '.cjs', '.cts', '.mts', '.js']);
const CPP = new Set(['.cc', '.h']);

function runsOf(path, text) {
  const kind = extname(path);
  if (SCRIPTS.has(kind)) return runsOfScript(path, text);
  return CPP.has(kind) ? runsOfCpp(text) : runsOfDocument(text);
}

function findingsOfRun(path, { kind, line, text }) {
  const findings = [];
  const found = (what) => findings.push({ path, line, what, text: text.split('\n')[0].slice(0, 90) });
  if (kind === 'comment' && NOUNLESS.test(text))
    found(`starts with "${text.split(/\s/)[0]}" without its noun`);
  for (const { pattern, instead } of BANNED) {
    const match = pattern.exec(text.replace(/\s+/g, ' '));
    if (match !== null && !isJustified(path, match[0])) found(`"${match[0]}" is banned: ${instead}`);
  }
  if ((kind === 'comment' || kind === 'prose') && CONTRACTION.test(text)) found('a contraction');
  return findings;
}

const isCommentLine = (line) => /^\s*(?:\/\/|\/\*|\*)/.test(line);

/** Findings of one file, in the order of its lines. */
export function findingsOf(path, text) {
  const findings = [];
  if (extname(path) !== '.md')
    for (const [index, line] of text.split('\n').entries())
      if (isCommentLine(line) && line.length > COMMENT_COLUMNS_MAX)
        findings.push({ path, line: index + 1, what: `comment line of ${line.length} columns`, text: '' });
  for (const each of runsOf(path, text)) findings.push(...findingsOfRun(path, each));
  return findings.sort((left, right) => left.line - right.line);
}

/** Long sentences of comments and documents, for whoever rewrites a file. */
function longSentences(path, text) {
  return runsOf(path, text)
    .filter(({ kind }) => kind === 'comment' || kind === 'prose')
    .flatMap(({ line, text: words }) =>
      words
        .split(/(?<=[.;:])\s|\n\s*\n/)
        .filter((sentence) => sentence.split(/\s+/).length > SENTENCE_WORDS_MAX)
        .map((sentence) => ({ path, line, what: 'a long sentence', text: sentence.slice(0, 90) })),
    );
}

const READ = /\.(?:ts|mjs|cjs|cts|cc|h|md)$/;
/** Generated files take their words from the source that they are generated from. */
const GENERATED = /\.gen\.(?:ts|h)$|^docs\/results\/|^docs\/decisions\/|^test\/clients\/prisma\/generated\//;

function trackedFiles() {
  return execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  })
    .split('\0')
    .filter((path) => READ.test(path) && !GENERATED.test(path));
}

/** Files under the given paths, or all. */
function chosen(paths) {
  if (paths.length === 0) return trackedFiles();
  const wanted = paths.map((path) => relative(root, resolve(path)));
  return trackedFiles().filter((path) => wanted.some((each) => path === each || path.startsWith(`${each}/`)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2);
  const long = args.includes('-long');
  const found = [];
  for (const path of chosen(args.filter((arg) => arg !== '-long'))) {
    const text = readFileSync(join(root, path), 'utf8');
    found.push(...findingsOf(path, text));
    if (long)
      for (const each of longSentences(path, text))
        console.log(`${each.path}:${each.line}: ${each.what}: ${each.text}`);
  }
  for (const { path, line, what, text } of found)
    console.log(`${path}:${line}: ${what}${text === '' ? '' : `: ${text}`}`);
  console.error(`${found.length} findings`);
  process.exitCode = found.length === 0 ? 0 : 1;
}
