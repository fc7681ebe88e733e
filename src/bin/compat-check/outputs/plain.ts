/** What forms other than the text say of a finding, and what stands against a schema besides
 *  findings. */
import { consequence, type GateFinding, type GateReport } from '../../../registry/check/report.ts';
import { eventLines, fixLines, sidesOf } from './text.ts';

export interface AnnotationPlace {
  readonly line: number;
  readonly column: number;
}

/** Where an annotation goes: a place of the proposed file itself, else its beginning. */
export function placeIn(report: GateReport, one: GateFinding): AnnotationPlace {
  const { proposed } = sidesOf(one);
  if (proposed === undefined || proposed.source !== report.file || proposed.line < 1)
    return { line: 1, column: 1 };
  return { line: proposed.line, column: proposed.column };
}

/** Message, what breaks, the event and the fix, in lines. */
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

/** What no rule says, and still keeps the gate shut. */
export function otherRefusals(
  report: GateReport,
): ReadonlyArray<{ readonly id: string; readonly text: string }> {
  const { registry, proof } = report;
  const refusals: Array<{ readonly id: string; readonly text: string }> = [];
  if (registry.asked && !registry.compatible && report.judged)
    refusals.push({
      id: 'REGISTRY_REFUSES',
      text: `the registry refuses what is compatible as judged here: ${registry.messages.join(' ')}`.trim(),
    });
  if (proof !== undefined && proof.disagreements.length > 0)
    refusals.push({ id: 'NOT_PROVEN', text: proof.disagreements.join('; ') });
  return refusals;
}
