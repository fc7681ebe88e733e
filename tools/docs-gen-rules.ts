/** Generates docs/reference/rules: a page for each rule of the catalogue, and their index. */
import { rulePage, SEVERITIES } from '../src/bin/compat-check/outputs/explain-rule.ts';
import { RULES, type Rule } from '../src/registry/rules/catalogue.ts';

const GROUPS: ReadonlyArray<readonly [string, (rule: Rule) => boolean]> = [
  ['In any policy', ({ policy, format }) => policy === 'any' && format !== 'JSON Schema'],
  ['Avro, policy PROVEN', ({ policy, format }) => policy === 'PROVEN' && format === 'Avro'],
  ['Protobuf, policy PROVEN', ({ policy, format }) => policy === 'PROVEN' && format === 'Protobuf'],
  ['JSON Schema, in any policy', ({ format }) => format === 'JSON Schema'],
  ['Policy STRICT', ({ policy }) => policy === 'STRICT'],
];

/** Pages by path from the project's root. */
export function rulePages(note: string, cell: (text: string) => string): ReadonlyMap<string, string> {
  const pages = new Map<string, string>();
  const lines = ['# Rules', '', note, ''];
  lines.push(
    'Findings of a compatibility check, by the name that the registry and `millrace compat-check` use.',
    '`millrace compat-check -explain RULE` prints the page of a rule. Every example is tested: the checkers report',
    'the rule that it demonstrates.',
    '',
  );
  for (const [title, isIn] of GROUPS) {
    const rules = RULES.filter(isIn);
    if (rules.length === 0) continue;
    lines.push(`## ${title}`, '', '| rule | what | verdict |', '| --- | --- | --- |');
    for (const rule of rules)
      lines.push(
        `| [\`${rule.id}\`](${rule.id}.md) | ${cell(rule.title)} | ${cell((SEVERITIES[rule.severity].split(':')[0] ?? '').split(',')[0] ?? '')} |`,
      );
    lines.push('');
  }
  pages.set('docs/reference/rules/README.md', `${lines.join('\n').trimEnd()}\n`);
  for (const rule of RULES)
    pages.set(`docs/reference/rules/${rule.id}.md`, rulePage(rule).replace('\n', `\n\n${note}\n`));
  return pages;
}
