/** Checks that each test title is a sentence with its own subject, because a failure list prints
 *  titles without their source. The check refuses reliable marks of a fragment: a verb, a
 *  preposition or a placeholder at the beginning, or too few words. */
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { read, repositoryFiles } from './root.ts';

const TITLE_WORDS_MIN = 4;

const words = (text: string): string => text.trim().replace(/\s+/g, '|');

/** First words of a fragment, whose subject is elsewhere, most often in the name of its
 *  `describe`. */
const FRAGMENT_STARTS = new RegExp(
  `^(${[
    words(
      'is are was were has have had can cannot may must might should will would does do did being been not never',
    ),
    words(
      'it its they them this that these those there who whom whose what which when where while whether how why',
    ),
    words(
      'and but or because although though so then also of with without in into on at for from to by as under over',
    ),
    words('above below behind beyond beside after before during through between inside outside until since'),
    words(
      'accepts acknowledges adds agrees allows asks becomes begins bounds carries catches charges closes comes',
    ),
    words(
      'commits compares confirms creates crosses cuts decides decodes deletes delivers denies describes dies',
    ),
    words(
      'distinguishes draws drops ends equals escapes exits expects expires exports fails fills finds finishes fires',
    ),
    words(
      'follows forgets gets gives goes grows hands happens holds ignores joins keeps knows lasts leads leaves',
    ),
    words(
      'lets lists loads locks logs loses lies makes marks matches means measures meets merges moves needs notices',
    ),
    words(
      'offers opens outlives parks parses passes pauses prints publishes refuses registers releases removes reports',
    ),
    words(
      'resolves restores resumes returns rolls runs says sees sends serves sets settles shares shows skips sorts',
    ),
    words(
      'starts stays stands stops stores survives takes tells throws ticks tries turns uses waits wakes warns works',
    ),
  ].join('|')})(?=\\s|$)`,
);

/** Words that can be a noun or a verb. Before an article or a similar word they are the verb. */
const VERB_BEFORE_OBJECT =
  /^(answers|calls|copies|counts|names|numbers|reads|records|repeats|requests|retries|writes) (a|an|the|no|nothing|one|what|which|whatever|who|its|their|it|them|each|every|all|any|only|again)\b/;

/** Phrases that this repository replaces by a term of the field. */
const BANNED = new RegExp(
  `\\b(${[
    'the one that|who asks|whom|nobody|somebody|anybody|everybody|none of it|under way|lets? go|gives? up|given up',
    'puts? away|taken for|stands? in|stood in|comes? again|at once|goes? on|is there|a stranger|strangers|troubles?',
    'takes? up|hands? on|brings?|twins?',
  ].join('|')})(?=\\s|$)`,
  'i',
);

interface Title {
  readonly text: string;
  readonly line: number;
  readonly isDescribe: boolean;
}

/** Identifier at the root of an expression such as `it.concurrent.each(rows)`. */
function rootOf(expression: ts.Expression): string | undefined {
  let at = expression;
  while (ts.isCallExpression(at) || ts.isPropertyAccessExpression(at) || ts.isTaggedTemplateExpression(at))
    at = ts.isTaggedTemplateExpression(at) ? at.tag : at.expression;
  return ts.isIdentifier(at) ? at.text : undefined;
}

/** Literal titles of the tests and describes in a source text, including templates. */
function titlesOf(source: string): readonly Title[] {
  const file = ts.createSourceFile('x.ts', source, ts.ScriptTarget.Latest, true);
  const titles: Title[] = [];
  const visit = (node: ts.Node): void => {
    ts.forEachChild(node, visit);
    if (!ts.isCallExpression(node) || node.arguments.length < 2) return;
    const called = /^(it|test|itFull|describe|describeFull)$/.exec(rootOf(node.expression) ?? '')?.[1];
    const first = node.arguments[0] as ts.Expression;
    if (called === undefined || !(ts.isStringLiteralLike(first) || ts.isTemplateExpression(first))) return;
    titles.push({
      text: ts.isStringLiteralLike(first) ? first.text : first.getText().slice(1, -1),
      line: file.getLineAndCharacterOfPosition(first.getStart()).line + 1,
      isDescribe: called.startsWith('describe'),
    });
  };
  visit(file);
  return titles;
}

/** Describes the first fault of a title, or returns undefined. */
function faultOf({ text, isDescribe }: Title): string | undefined {
  const banned = BANNED.exec(text)?.[0];
  if (banned !== undefined) return `contains "${banned}"`;
  if (FRAGMENT_STARTS.test(text)) return 'has no subject before its first word';
  if (isDescribe) return undefined;
  if (VERB_BEFORE_OBJECT.test(text)) return 'begins with a verb';
  if (/^(%|\$[a-z])/.test(text)) return 'begins with a placeholder';
  if (/%\.\d/.test(text)) return 'has a placeholder that vitest leaves as it is';
  if (text.split(/\s+/).length < TITLE_WORDS_MIN) return `has fewer than ${TITLE_WORDS_MIN} words`;
  return undefined;
}

const faultsOf = (source: string): readonly string[] =>
  titlesOf(source).flatMap((title) => {
    const fault = faultOf(title);
    return fault === undefined ? [] : [`${title.line}: "${title.text}" ${fault}`];
  });

const files = repositoryFiles().filter((path) => /^test\/.*\.ts$/.test(path));

describe('test titles', () => {
  it('every test title has a subject, enough words and no banned phrase', () => {
    expect(files.flatMap((path) => faultsOf(read(path)).map((fault) => `${path}:${fault}`))).toEqual([]);
  });

  it('the check reads the titles of all test files', () => {
    expect(files.flatMap((path) => titlesOf(read(path))).length).toBeGreaterThan(3000);
  });

  it.each([
    ["it('is refused when the folder is held', () => {});", 'has no subject'],
    ["test('of two lives of a subject are told apart', () => {});", 'has no subject'],
    ["it.concurrent.each([1])('refuses a negative count of %i', () => {});", 'has no subject'],
    ["describe.each(rows)('without a registry', () => {});", 'has no subject'],
    ["it('reads what another thread writes', () => {});", 'begins with a verb'],
    ["itFull.each(rows)('%s is refused with its line', () => {});", 'begins with a placeholder'],
    ["it.each(rows)('$name is refused with its line', () => {});", 'begins with a placeholder'],
    ["it('the empty batch', () => {});", 'has fewer than 4 words'],
    ["it.each(rows)('a reader refuses the text %.20s', () => {});", 'vitest leaves as it is'],
    ["it('a relay at once publishes a row', () => {});", 'contains "at once"'],
    ["describe('a look at a twin', () => {});", 'contains "twin"'],
  ])('the check refuses the title in %s', (source, fault) => {
    expect(faultsOf(source)).toEqual([expect.stringContaining(fault)]);
  });

  it('the check accepts sentences that begin with a plural noun or an identifier', () => {
    const source = `
      it('reads see every write while the log answers', () => {});
      it(\`\${driver.name} streams through the death of the broker\`, () => {});
      describe('%s', () => {});
      it('GET /orders/{id} answers 404 for an id that is %s', () => {});`;
    expect(titlesOf(source)).toHaveLength(4);
    expect(faultsOf(source)).toEqual([]);
  });
});
