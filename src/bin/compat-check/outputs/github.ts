/** Annotations of a workflow run: `::error file=…,line=…::…`, one line each. */
import type { MillraceError } from '../../../core/errors.ts';
import { type GateFinding, type GateReport, headline } from '../../../registry/check/report.ts';
import { visibleLine } from '../../../shell/terminal/redact.ts';
import type { Failure } from '../../../shell/terminal/report.ts';
import { otherRefusals, placeIn, plainLines } from './plain.ts';

const escapeText = (text: string): string =>
  text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
const escapeProperty = (text: string): string =>
  escapeText(text).replaceAll(':', '%3A').replaceAll(',', '%2C');

function annotation(
  level: string,
  properties: Readonly<Record<string, string | number>>,
  text: string,
): string {
  const listed = Object.entries(properties)
    .map(([name, value]) => `${name}=${escapeProperty(String(value))}`)
    .join(',');
  return `::${level} ${listed}::${escapeText(text)}`;
}

function levelOf({ refuses, finding }: GateFinding): string {
  if (refuses) return 'error';
  return finding.severity === 'lossy' ? 'warning' : 'notice';
}

export function githubReport(report: GateReport): string {
  // A subject that starts with `::` must not become a workflow command.
  const lines = [visibleLine(headline(report)).replace(/^(?=::)/, ' ')];
  for (const one of report.findings) {
    const { line, column } = placeIn(report, one);
    const properties = { file: report.file, line, col: column, title: one.finding.rule };
    lines.push(annotation(levelOf(one), properties, plainLines(report, one).join('\n')));
  }
  for (const { id, text } of otherRefusals(report))
    lines.push(annotation('error', { file: report.file, line: 1, col: 1, title: id }, text));
  return `${lines.join('\n')}\n`;
}

export function githubFailure(failure: Failure, error: MillraceError | undefined): string {
  const { message, code } = failure.document.error;
  const { file, line, column } = error?.details ?? {};
  const properties = {
    ...(typeof file === 'string' ? { file } : {}),
    ...(typeof line === 'number' ? { line } : {}),
    ...(typeof column === 'number' ? { col: column } : {}),
    title: code,
  };
  return `${annotation('error', properties, message)}\n`;
}
