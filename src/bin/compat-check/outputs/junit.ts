/** JUnit XML: one test case for each version and direction, one for the history of field numbers,
 *  one for the registry and one for the live proof. */
import { type GateFinding, type GateReport, headline } from '../../../registry/check/report.ts';
import type { Failure } from '../../../shell/terminal/report.ts';
import { otherRefusals, plainLines } from './plain.ts';

interface Case {
  readonly name: string;
  readonly failures: ReadonlyArray<{
    readonly type: string;
    readonly message: string;
    readonly text: string;
  }>;
}

/** Escapes text and replaces characters that XML cannot represent. */
function xml(text: string): string {
  return (
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: XML 1.0 allows no others
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '\ufffd')
      .replace(/\p{Surrogate}/gu, '\ufffd')
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
  );
}

const attribute = (text: string): string => xml(text).replaceAll('\n', '&#10;').replaceAll('\t', '&#9;');

function failureOf(report: GateReport, one: GateFinding) {
  const { finding } = one;
  return { type: finding.rule, message: finding.message, text: plainLines(report, one).join('\n') };
}

function casesOf(report: GateReport): Case[] {
  const refusing = report.findings.filter(({ refuses }) => refuses);
  const of = (direction: string, version: number | undefined) =>
    refusing
      .filter(
        (one) => one.direction === direction && (version === undefined || one.versions.includes(version)),
      )
      .map((one) => failureOf(report, one));
  const cases: Case[] = [];
  for (const { version, name } of report.compared) {
    if (!report.mode.startsWith('FORWARD'))
      cases.push({ name: `the proposed schema reads ${name}`, failures: of('BACKWARD', version) });
    if (!report.mode.startsWith('BACKWARD')) {
      // An unreadable version has a finding of direction BACKWARD only; report it once.
      const unread = report.mode.startsWith('FORWARD') ? of('BACKWARD', version) : [];
      cases.push({
        name: `${name} reads the proposed schema`,
        failures: [...unread, ...of('FORWARD', version)],
      });
    }
  }
  if (report.format === 'PROTOBUF')
    cases.push({ name: 'no number changes its meaning', failures: of('HISTORY', undefined) });
  const others = otherRefusals(report).map(({ id, text }) => ({ type: id, message: text, text }));
  if (report.registry.asked)
    cases.push({
      name: 'the registry agrees',
      failures: others.filter(({ type }) => type === 'REGISTRY_REFUSES'),
    });
  if (report.proof !== undefined)
    cases.push({ name: 'live decode agrees', failures: others.filter(({ type }) => type === 'NOT_PROVEN') });
  return cases;
}

function document(name: string, counts: string, body: string): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ${counts}>\n  <testsuite name="${attribute(name)}" ${counts}>\n${body}  </testsuite>\n</testsuites>\n`;
}

export function junitReport(report: GateReport): string {
  const cases = casesOf(report);
  const failed = cases.filter(({ failures }) => failures.length > 0).length;
  const suite = `compat-check ${report.subject ?? report.file}`;
  const body = cases
    .map(({ name, failures }) => {
      const open = `    <testcase classname="${attribute(suite)}" name="${attribute(name)}"`;
      if (failures.length === 0) return `${open}/>\n`;
      // A test case has one failure: the first finding names it, its text lists all findings.
      const [first] = failures;
      const text = failures.map((one) => `${one.type}: ${one.text}`).join('\n\n');
      return `${open}>\n      <failure type="${attribute(first?.type ?? '')}" message="${attribute(first?.message ?? '')}">${xml(text)}</failure>\n    </testcase>\n`;
    })
    .join('');
  const out = `    <system-out>${xml(headline(report))}</system-out>\n`;
  return document(suite, `tests="${cases.length}" failures="${failed}" errors="0"`, body + out);
}

export function junitFailure({ document: { error }, line }: Failure): string {
  const body = `    <testcase classname="compat-check" name="the check is made">\n      <error type="${attribute(error.code)}" message="${attribute(error.message)}">${xml(line)}</error>\n    </testcase>\n`;
  return document('compat-check', 'tests="1" failures="0" errors="1"', body);
}
