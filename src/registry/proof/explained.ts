/** Findings in a form for programs, beside the messages that the clients of the existing registries parse.
 *
 *  Each says what the rule found and where; the first few also show an event that breaks, and what mends the schema.
 *  Those are tried out, so their number, the size of the texts and the time are bounded; between two of them other
 *  requests are served.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Schema } from '../../formats/schema.ts';
import type { Finding, Severity } from '../compatibility/finding.ts';
import type { Comparison, VerdictPolicy } from '../compatibility/modes.ts';
import type { Counterexample } from './counterexample.ts';
import { cpuMs } from './effort.ts';
import { type ExplainedFinding, explain, type Fragment } from './explain.ts';

/** Findings of one answer; those that refuse come first. */
const FINDINGS_MAX = 100;
/** Findings with an event and a mend, the processor time after which none is begun, and characters of the two texts. */
const EXPLAINED_MAX = 5;
const EXPLAIN_MS = 250;
const EXPLAIN_CHARS_MAX = 64 * 1024;
/** Of all texts of the past, which each mend that is tried is held against. */
const EVER_CHARS_MAX = 256 * 1024;

/** A verdict with the schemas that it is about. */
export interface Told {
  readonly comparisons: readonly Comparison[];
  readonly proposed: Schema;
  readonly policy: VerdictPolicy;
  /** One of the versions that were compared; undefined where it cannot be read. */
  readonly schemaOf: (version: number) => Schema | undefined;
  /** All the subject ever had whose numbers count, oldest first; none where their texts have more characters. */
  readonly ever: (charsMax: number) => readonly Schema[];
}

const ORDER: Readonly<Record<Severity, number>> = { fail: 0, unjudged: 1, lossy: 2, note: 3 };

function fragment(name: string, one: Fragment | undefined): object {
  if (one === undefined) return {};
  const { source, line, column, text } = one;
  return { [name]: { source, line, column, text } };
}

function bare(finding: Finding, { direction, version }: Comparison): object {
  const { rule, severity, path, message } = finding;
  return {
    rule,
    severity,
    direction,
    ...(version === undefined ? {} : { version }),
    path,
    message,
  };
}

function shown({ explanation, fix }: ExplainedFinding): object {
  const { reader, writer, counterexample } = explanation;
  return {
    ...fragment('reader', reader),
    ...fragment('writer', writer),
    ...(counterexample === undefined ? {} : { counterexample: eventOf(counterexample) }),
    ...(fix === undefined ? {} : { fix: { words: fix.words, edits: fix.edits } }),
  };
}

function eventOf({ outcome, json, hex, bytes, at, got, promised, alone }: Counterexample): object {
  const offset = at === undefined ? {} : { offset: at };
  return { outcome, json, hex, bytes, ...offset, got, promised, ...(alone ? { alone } : {}) };
}

function explained(finding: Finding, comparison: Comparison, told: Told, ever: readonly Schema[]): object {
  const { proposed, schemaOf } = told;
  const other = comparison.version === undefined ? undefined : schemaOf(comparison.version);
  if (proposed.source.length + (other?.source.length ?? 0) > EXPLAIN_CHARS_MAX) return {};
  const how = { ever, policy: told.policy };
  const [one] = explain({ ...comparison, findings: [finding] }, proposed, other, {}, how);
  return one === undefined ? {} : shown(one);
}

export async function explainedFindings(told: Told): Promise<readonly object[]> {
  const all = told.comparisons
    .flatMap((comparison) => comparison.findings.map((finding) => ({ finding, comparison })))
    .sort((a, b) => ORDER[a.finding.severity] - ORDER[b.finding.severity])
    .slice(0, FINDINGS_MAX);
  const ever = told.ever(EVER_CHARS_MAX);
  const until = cpuMs() + EXPLAIN_MS;
  const answer: object[] = [];
  for (const [i, { finding, comparison }] of all.entries()) {
    const more =
      i < EXPLAINED_MAX && finding.severity !== 'note' && cpuMs() < until
        ? explained(finding, comparison, told, ever)
        : {};
    answer.push({ ...bare(finding, comparison), ...more });
    if (i < EXPLAINED_MAX) await nextTurn();
  }
  return answer;
}
