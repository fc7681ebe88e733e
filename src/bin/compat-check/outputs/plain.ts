/** Text of a finding for formats other than `text`, and refusals that are not findings. */
import { consequence, type GateFinding, type GateReport } from '../../../registry/check/report.ts';
import { eventLines, fixLines, sidesOf } from './text.ts';

export interface AnnotationPlace {
  readonly line: number;
  readonly column: number;
}

/** Location of an annotation: the fragment in the proposed file, or its first line. */
export function placeIn(report: GateReport, one: GateFinding): AnnotationPlace {
  const { proposed } = sidesOf(one);
  if (proposed === undefined || proposed.source !== report.file || proposed.line < 1)
    return { line: 1, column: 1 };
  return { line: proposed.line, column: proposed.column };
}

/** Message, consequence, example event and fix, one per line. */
export function plainLines(report: GateReport, one: GateFinding): string[] {
  const { finding, explanation } = one;
  const { earlier } = sidesOf(one);
  const lines = [finding.message, consequence(one, report.compared)];
  if (earlier !== undefined && earlier.text !== '')
    lines.push(`before (${earlier.source}:${earlier.line}:${earlier.column}): ${earlier.text}`);
  const rest = [
    ...(explanation.counterexample === undefined ? [] : eventLines(explanation.counterexample)),
    ...fixLines(one, report.source),
  ];
  return [...lines, ...rest.map((line) => line.trimStart())];
}

/** Reasons for refusal that belong to no rule. */
export function otherRefusals(
  report: GateReport,
): ReadonlyArray<{ readonly id: string; readonly text: string }> {
  const { registry, proof } = report;
  const refusals: Array<{ readonly id: string; readonly text: string }> = [];
  if (registry.asked && !registry.compatible && report.judged)
    refusals.push({
      id: 'REGISTRY_REFUSES',
      text: `the registry refuses a schema that this check found compatible: ${registry.messages.join(' ')}`.trim(),
    });
  if (proof !== undefined && proof.disagreements.length > 0)
    refusals.push({ id: 'NOT_PROVEN', text: proof.disagreements.join('; ') });
  return refusals;
}
