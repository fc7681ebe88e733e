/** Selects the output format of a report or a failure. */
import type { MillraceError } from '../../../core/errors.ts';
import type { GateReport } from '../../../registry/check/report.ts';
import type { Failure } from '../../../shell/terminal/report.ts';
import { githubFailure, githubReport } from './github.ts';
import { jsonReport } from './json.ts';
import { junitFailure, junitReport } from './junit.ts';
import { markdownReport } from './markdown.ts';
import { sarifFailure, sarifReport } from './sarif.ts';
import { textReport } from './text.ts';

export const OUTPUTS = ['text', 'json', 'github', 'junit', 'sarif', 'markdown'] as const;
export type Output = (typeof OUTPUTS)[number];

export const isOutput = (text: string): text is Output => (OUTPUTS as readonly string[]).includes(text);

export interface Printed {
  readonly text: string;
  /** Document for -json. */
  readonly document: unknown;
}

export function reportOutput(output: Output, report: GateReport, patch: string | undefined): Printed {
  const document = jsonReport(report, patch);
  const text = (): string => {
    switch (output) {
      case 'text':
        return textReport(report);
      case 'json':
        return `${JSON.stringify(document, undefined, 2)}\n`;
      case 'github':
        return githubReport(report);
      case 'junit':
        return junitReport(report);
      case 'sarif':
        return sarifReport(report);
      case 'markdown':
        return markdownReport(report);
    }
  };
  return { text: text(), document };
}

/** Renders a check that failed to run; undefined for formats where the line on stderr is enough. */
export function failureOutput(
  output: Output,
  failure: Failure,
  error: MillraceError | undefined,
): string | undefined {
  switch (output) {
    case 'json':
      return `${JSON.stringify(failure.document, undefined, 2)}\n`;
    case 'github':
      return githubFailure(failure, error);
    case 'junit':
      return junitFailure(failure);
    case 'sarif':
      return sarifFailure(failure);
    default:
      return undefined;
  }
}
