/** What a check of `millrace doctor` is: a question with an id, and an answer a user can act on. */
import { findMillraceError } from '../core/errors.ts';

export type DoctorVerdict = 'ok' | 'warn' | 'fail';

export interface Answer {
  readonly verdict: DoctorVerdict;
  /** What was found. */
  readonly found: string;
  /** What to do; left out where all is well. */
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

/** Asks one after the other, so that no check disturbs another. A check that throws has failed. */
export async function askAll(checks: readonly Check[]): Promise<readonly DoctorFinding[]> {
  const findings: DoctorFinding[] = [];
  for (const check of checks) {
    let answer: Answer;
    try {
      answer = await check.ask();
    } catch (thrown) {
      const known = findMillraceError(thrown);
      const text = known?.message ?? (thrown instanceof Error ? thrown.message : String(thrown));
      answer = fail(text.split('\n')[0] ?? '', known?.next ?? 'run bin/bootstrap, then ask again');
    }
    findings.push({ id: check.id, ...answer });
  }
  return findings;
}

/** One line a finding: verdict, id, what was found, what to do. */
export function renderFindings(findings: readonly DoctorFinding[]): string {
  const width = Math.max(0, ...findings.map((finding) => finding.id.length));
  return findings
    .map(
      ({ verdict, id, found, next }) =>
        `${verdict.padEnd(4)}  ${id.padEnd(width)}  ${found}${next === undefined ? '' : `; ${next}`}`,
    )
    .join('\n');
}
