/** A check of `millrace doctor`: an id, a question, and an answer that a user can act on. */
import { findMillraceError } from '../core/errors.ts';

export type DoctorVerdict = 'ok' | 'warn' | 'fail';

export interface Answer {
  readonly verdict: DoctorVerdict;
  /** Result of the check. */
  readonly found: string;
  /** Next step for the user; absent if the verdict is ok. */
  readonly next?: string;
}

export interface Check {
  readonly id: string;
  ask(): Promise<Answer> | Answer;
}

export interface DoctorFinding extends Answer {
  readonly id: string;
}

export const ok = (found: string): Answer => ({ verdict: 'ok', found });
export const warn = (found: string, next: string): Answer => ({ verdict: 'warn', found, next });
export const fail = (found: string, next: string): Answer => ({ verdict: 'fail', found, next });

/** Runs the checks one after the other, so that they do not disturb each other. A check that throws
 *  has failed. */
export async function askAll(checks: readonly Check[]): Promise<readonly DoctorFinding[]> {
  const findings: DoctorFinding[] = [];
  for (const check of checks) {
    let answer: Answer;
    try {
      answer = await check.ask();
    } catch (thrown) {
      const known = findMillraceError(thrown);
      const text = known?.message ?? (thrown instanceof Error ? thrown.message : String(thrown));
      answer = fail(text.split('\n')[0] ?? '', known?.next ?? 'in a clone run bin/bootstrap, then ask again');
    }
    findings.push({ id: check.id, ...answer });
  }
  return findings;
}

/** Formats one line for each finding: verdict, id, result, next step. */
export function renderFindings(findings: readonly DoctorFinding[]): string {
  const width = Math.max(0, ...findings.map((finding) => finding.id.length));
  return findings
    .map(
      ({ verdict, id, found, next }) =>
        `${verdict.padEnd(4)}  ${id.padEnd(width)}  ${found}${next === undefined ? '' : `; ${next}`}`,
    )
    .join('\n');
}
