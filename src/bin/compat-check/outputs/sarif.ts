/** SARIF 2.1.0 for code scanning. */

import { type GateFinding, type GateReport, headline } from '../../../registry/check/report.ts';
import { ruleOf } from '../../../registry/rules/catalogue.ts';
import { packageVersion } from '../../../shell/package.ts';
import type { Failure } from '../../../shell/terminal/report.ts';
import { otherRefusals, placeIn, plainLines } from './plain.ts';

const SCHEMA = 'https://json.schemastore.org/sarif-2.1.0.json';

/** A path as a relative URI reference. */
function uriOf(file: string): string {
  const path = file.replaceAll('\\', '/').replace(/^(\.\/)+/, '');
  return path.split('/').map(encodeURIComponent).join('/');
}

function ruleDocument(id: string) {
  const rule = ruleOf(id);
  if (rule === undefined) return { id };
  return {
    id,
    shortDescription: { text: rule.title },
    fullDescription: { text: rule.why },
    help: { text: `${rule.why} ${rule.fix}` },
  };
}

function levelOf({ refuses, finding }: GateFinding): string {
  if (refuses) return 'error';
  return finding.severity === 'lossy' ? 'warning' : 'note';
}

function locationOf(report: GateReport, place: { readonly line: number; readonly column: number }) {
  return {
    physicalLocation: {
      artifactLocation: { uri: uriOf(report.file) },
      region: { startLine: place.line, startColumn: place.column },
    },
  };
}

function fixesOf(report: GateReport, { fix }: GateFinding) {
  if (fix === undefined || fix.edits.length === 0) return {};
  const replacements = fix.edits.map(({ at, end, text }) => ({
    deletedRegion: { charOffset: at, charLength: end - at },
    insertedContent: { text },
  }));
  const change = { artifactLocation: { uri: uriOf(report.file) }, replacements };
  return { fixes: [{ description: { text: fix.words }, artifactChanges: [change] }] };
}

function run(rules: readonly string[], results: readonly unknown[], invocation: unknown): string {
  const driver = { name: 'millrace compat-check', version: packageVersion(), rules: rules.map(ruleDocument) };
  const log = {
    $schema: SCHEMA,
    version: '2.1.0',
    runs: [{ tool: { driver }, columnKind: 'utf16CodeUnits', invocations: [invocation], results }],
  };
  return `${JSON.stringify(log, undefined, 2)}\n`;
}

export function sarifReport(report: GateReport): string {
  const others = otherRefusals(report);
  const rules = [
    ...new Set([...report.findings.map(({ finding }) => finding.rule), ...others.map(({ id }) => id)]),
  ];
  const results = [
    ...report.findings.map((one) => ({
      ruleId: one.finding.rule,
      ruleIndex: rules.indexOf(one.finding.rule),
      level: levelOf(one),
      message: { text: plainLines(report, one).join('\n') },
      locations: [locationOf(report, placeIn(report, one))],
      ...fixesOf(report, one),
    })),
    ...others.map(({ id, text }) => ({
      ruleId: id,
      ruleIndex: rules.indexOf(id),
      level: 'error',
      message: { text },
      locations: [locationOf(report, { line: 1, column: 1 })],
    })),
  ];
  return run(rules, results, {
    executionSuccessful: true,
    properties: { headline: headline(report), compatible: report.compatible },
  });
}

export function sarifFailure({ document: { error }, exit }: Failure): string {
  return run([], [], {
    executionSuccessful: false,
    exitCode: exit,
    toolExecutionNotifications: [
      { level: 'error', message: { text: error.message }, descriptor: { id: error.code } },
    ],
  });
}
