/** The report as Markdown, for a comment on a merge request. */

import { consequence, type GateFinding, type GateReport, headline } from '../../../registry/check/report.ts';
import { applyEdits } from '../../../registry/proof/fix/search.ts';
import { ruleOf } from '../../../registry/rules/catalogue.ts';
import { changedLines } from './patch.ts';
import { comparedLine, eventLines, otherLine, proofLine, registryLines, sidesOf } from './text.ts';

const FINDINGS_MAX = 20;

/** Escapes Markdown markup. */
const plain = (text: string): string => text.replace(/[\\`*_{}[\]<>#|~]/g, '\\$&').replace(/\s*\n\s*/g, ' ');

/** Fenced code block whose fence is longer than any run of backticks in its lines. */
function block(language: string, lines: readonly string[]): string[] {
  const longest = Math.max(2, ...lines.flatMap((line) => (line.match(/`+/g) ?? []).map((run) => run.length)));
  const fence = '`'.repeat(longest + 1);
  return ['', `${fence}${language}`, ...lines, fence];
}

function findingLines(report: GateReport, one: GateFinding): string[] {
  const { finding, explanation, fix } = one;
  const { proposed, earlier } = sidesOf(one);
  const place =
    proposed === undefined ? '' : ` (${plain(proposed.source)}:${proposed.line}:${proposed.column})`;
  const lines = [
    `### ${one.refuses ? 'Breaks' : 'Loses'}: ${plain(finding.message)}`,
    '',
    `\`${finding.rule}\`${finding.path === '' ? '' : ` at \`${finding.path.replaceAll('`', '')}\``}${place}: ${plain(consequence(one, report.compared))}.`,
  ];
  const why = ruleOf(finding.rule)?.why;
  if (why !== undefined) lines.push('', plain(why));
  const pieces = [
    ...(earlier === undefined || earlier.text === '' ? [] : [`- ${earlier.text}`]),
    ...(proposed === undefined || proposed.text === '' ? [] : [`+ ${proposed.text}`]),
  ];
  if (pieces.length > 0) lines.push(...block('diff', pieces));
  if (explanation.counterexample !== undefined)
    lines.push(
      ...block(
        '',
        eventLines(explanation.counterexample).map((line) => line.trimStart()),
      ),
    );
  if (fix !== undefined) {
    lines.push('', `Fix: ${plain(fix.words)}`);
    if (fix.edits.length > 0)
      lines.push(...block('diff', changedLines(report.source, applyEdits(report.source, fix.edits))));
  }
  return [...lines, ''];
}

export function markdownReport(report: GateReport): string {
  const listed = report.findings.filter(({ finding }) => finding.severity !== 'note');
  const notes = report.findings.filter(({ finding }) => finding.severity === 'note');
  const lines = [`## ${plain(headline(report))}`, '', `${plain(comparedLine(report))}.`, ''];
  for (const one of listed.slice(0, FINDINGS_MAX)) lines.push(...findingLines(report, one));
  if (listed.length > FINDINGS_MAX) lines.push(`${listed.length - FINDINGS_MAX} more.`, '');
  for (const { finding } of notes.slice(0, FINDINGS_MAX))
    lines.push(`- ${plain(finding.message)} (\`${finding.rule}\`)`);
  if (notes.length > 0) lines.push('');
  const last = [...registryLines(report), otherLine(report), proofLine(report), ...report.notes];
  for (const line of last) if (line !== undefined) lines.push(plain(line), '');
  return `${lines.join('\n').trimEnd()}\n`;
}
