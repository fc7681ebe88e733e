/** The complete report as a JSON document. Its field names are stable. */

import { type GateFinding, type GateReport, headline, upgradeOrder } from '../../../registry/check/report.ts';
import { ruleOf } from '../../../registry/rules/catalogue.ts';

function findingDocument({ finding, direction, versions, refuses, explanation, fix }: GateFinding) {
  return {
    rule: finding.rule,
    severity: finding.severity,
    refuses,
    direction,
    versions,
    path: finding.path,
    message: finding.message,
    why: ruleOf(finding.rule)?.why ?? null,
    reader: explanation.reader ?? null,
    writer: explanation.writer ?? null,
    event: explanation.counterexample ?? null,
    fix: fix ?? null,
  };
}

export function jsonReport(report: GateReport, patch: string | undefined): unknown {
  const { registry } = report;
  return {
    compatible: report.compatible,
    headline: headline(report),
    upgrade: report.compatible ? upgradeOrder(report.mode) : null,
    subject: report.subject ?? null,
    proposed: { file: report.file, format: report.format },
    against: report.against,
    mode: report.mode,
    policy: report.policy,
    lossy: report.lossy,
    compared: report.compared.map(({ version, name }) => ({ version, name })),
    judged: report.judged,
    registry,
    agrees: registry.asked ? registry.compatible === report.judged : null,
    other: report.other,
    already: report.already ?? null,
    findings: report.findings.map(findingDocument),
    proof: report.proof ?? null,
    notes: report.notes,
    ...(patch === undefined ? {} : { patch }),
  };
}
