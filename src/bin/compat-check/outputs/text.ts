/** The report as text for a terminal. */

import { consequence, type GateFinding, type GateReport, headline } from '../../../registry/check/report.ts';
import type { Counterexample } from '../../../registry/proof/counterexample.ts';
import { applyEdits } from '../../../registry/proof/fix/search.ts';
import { ruleOf } from '../../../registry/rules/catalogue.ts';
import { changedLines } from './patch.ts';

/** Number of findings that are shown in full. */
const FINDINGS_MAX = 20;
const LINE_CHARS_MAX = 160;
const WRAP_CHARS = 104;

/** Assigns the reader and writer fragments to the proposed and the earlier schema. */
export function sidesOf({ direction, explanation }: GateFinding) {
  const { reader, writer } = explanation;
  return direction === 'FORWARD'
    ? { proposed: writer, earlier: reader }
    : { proposed: reader, earlier: writer };
}

const severityWords: Readonly<Record<GateFinding['finding']['severity'], string>> = {
  fail: 'breaks',
  unjudged: 'not judged, so refused',
  lossy: 'loses',
  note: 'note',
};

/** Removes line breaks and escapes control characters of schema texts and file names, so that none
 *  starts a line or moves the cursor. */
const visible = (line: string): string =>
  line
    .replace(/\s*[\r\n]+\s*/g, ' ')
    .replace(/(?!\t)\p{Cc}/gu, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`);

const cut = (text: string): string =>
  text.length > LINE_CHARS_MAX ? `${text.slice(0, LINE_CHARS_MAX)}…` : text;
const row = (name: string, text: string): string => `   ${name.padEnd(8)} ${text}`;

export function eventLines(example: Counterexample): string[] {
  const { json, hex, bytes, at, got, promised, outcome } = example;
  const broken = at === undefined ? '' : `; decoding breaks at byte ${at}`;
  const lines = [
    row('event', cut(json)),
    row('bytes', `${cut(hex === '' ? '(none)' : hex)} (${bytes} ${bytes === 1 ? 'byte' : 'bytes'}${broken})`),
  ];
  if (at !== undefined || outcome === 'FAIL') lines.push(row('reader', cut(got)));
  else lines.push(row('reader', `gets ${cut(got)}`));
  if (outcome === 'FAIL' && promised !== got && at === undefined && !promised.startsWith('field'))
    lines.push(row('promised', cut(promised)));
  return lines;
}

export function fixLines(one: GateFinding, source: string): string[] {
  const { fix } = one;
  if (fix === undefined) return [];
  const lines = [row('fix', fix.words)];
  if (fix.edits.length > 0)
    lines.push(...changedLines(source, applyEdits(source, fix.edits)).map((line) => `     ${cut(line)}`));
  return lines;
}

/** Wraps a sentence below its row name. */
function wrapped(name: string, text: string): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + word.length >= WRAP_CHARS) {
      lines.push(line);
      line = '';
    }
    line += `${line === '' ? '' : ' '}${word}`;
  }
  return [...lines, line].map((one, index) => row(index === 0 ? name : '', one));
}

/** @param known rules whose reason was already printed */
function findingLines(report: GateReport, one: GateFinding, number: number, known: Set<string>): string[] {
  const { finding, explanation } = one;
  const { proposed, earlier } = sidesOf(one);
  const place =
    proposed === undefined ? report.file : `${proposed.source}:${proposed.line}:${proposed.column}`;
  const lines = [`${number}. ${place}: ${finding.message}`];
  lines.push(row(severityWords[finding.severity].split(',')[0] as string, consequence(one, report.compared)));
  lines.push(row('rule', `${finding.rule}${finding.path === '' ? '' : ` at ${finding.path}`}`));
  const why = known.has(finding.rule) ? undefined : ruleOf(finding.rule)?.why;
  if (why !== undefined) lines.push(...wrapped('why', why));
  known.add(finding.rule);
  if (earlier !== undefined && earlier.text !== '')
    lines.push(`   - ${earlier.source}:${earlier.line}:${earlier.column}  ${cut(earlier.text)}`);
  if (proposed !== undefined && proposed.text !== '') lines.push(`   + ${place}  ${cut(proposed.text)}`);
  if (explanation.counterexample !== undefined) lines.push(...eventLines(explanation.counterexample));
  lines.push(...fixLines(one, report.source));
  return lines;
}

/** Describes which versions the schema was compared with. */
export function comparedLine(report: GateReport): string {
  const { compared, mode } = report;
  const names = compared.map(({ name }) => name);
  const shown =
    names.length > 4 ? `${names.slice(0, 2).join(', ')} … ${names[names.length - 1]}` : names.join(', ');
  const what =
    mode === 'NONE'
      ? 'with nothing, as the mode says'
      : names.length === 0
        ? 'with nothing: there is no earlier version'
        : `with ${shown}${report.against.startsWith('http') ? ` of ${report.against}` : ''}`;
  return `${report.file} compared ${what}; policy ${report.policy}`;
}

export function registryLines({ registry, judged }: GateReport): string[] {
  if (!registry.asked) return [`The registry was not asked: ${registry.why}.`];
  if (registry.compatible)
    return [
      judged ? 'The registry agrees.' : 'The registry would accept it; the verdict of this check counts.',
    ];
  const lines = [judged ? 'The registry refuses it:' : 'The registry refuses it too.'];
  if (judged) lines.push(...registry.messages.map((message) => `  ${cut(message)}`));
  return lines;
}

export function otherLine({ other, judged }: GateReport): string | undefined {
  if (other.compatible === judged) return undefined;
  return `Policy ${other.policy} would answer otherwise: ${other.compatible ? 'compatible' : 'incompatible'}.`;
}

export function proofLine({ proof }: GateReport): string | undefined {
  if (proof === undefined) return undefined;
  if (proof.events === 0)
    return 'Live proof: there was nothing to try, for want of an earlier version or of events of this format.';
  const pairs = `${proof.pairs} ${proof.pairs === 1 ? 'pair' : 'pairs'} of schemas`;
  const tried = `Live proof: ${proof.events} events written and read over ${pairs}`;
  return proof.disagreements.length === 0
    ? `${tried}; every verdict is what happened.`
    : `${tried}; NOT what was judged: ${proof.disagreements.join('; ')}.`;
}

export function textReport(report: GateReport): string {
  const listed = report.findings.filter(({ finding }) => finding.severity !== 'note');
  const notes = report.findings.filter(({ finding }) => finding.severity === 'note');
  const lines = [headline(report), comparedLine(report), ''];
  const known = new Set<string>();
  for (const [index, one] of listed.slice(0, FINDINGS_MAX).entries())
    lines.push(...findingLines(report, one, index + 1, known), '');
  if (listed.length > FINDINGS_MAX)
    lines.push(`${listed.length - FINDINGS_MAX} more; -output=json has them all`, '');
  for (const { finding } of notes.slice(0, FINDINGS_MAX))
    lines.push(`note: ${finding.message} (${finding.rule})`);
  if (report.already !== undefined)
    lines.push(
      `The subject has this very text as version ${report.already}; to register it again changes nothing.`,
    );
  lines.push(...registryLines(report));
  for (const line of [otherLine(report), proofLine(report)]) if (line !== undefined) lines.push(line);
  for (const note of report.notes) lines.push(`Note: ${note}.`);
  const [rule] = listed;
  if (rule !== undefined && !report.compatible)
    lines.push(`More about a rule: millrace compat-check -explain ${rule.finding.rule}`);
  return `${lines.map(visible).join('\n')}\n`;
}
