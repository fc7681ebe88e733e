/** Findings as JSON for programs, beside the messages that clients of the existing registries
 *  parse.
 *
 *  Each entry has the rule, its message and its place; the first few also have a counterexample
 *  event and a fix. Those are computed by trial, so their number, the size of the texts and the
 *  time are bounded. Other requests are served between two of them. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Schema } from '../../formats/schema.ts';
import type { Finding, Severity } from '../compatibility/finding.ts';
import type { Comparison, VerdictPolicy } from '../compatibility/modes.ts';
import type { Counterexample } from './counterexample.ts';
import { cpuMs } from './effort.ts';
import { type ExplainedFinding, explain, type Fragment } from './explain.ts';

/** Most findings of one answer; the refusing ones come first. */
const FINDINGS_MAX = 100;
/** Most findings with an event and a fix, the processor time after which none is started, and the
 *  most characters of the two texts. */
const EXPLAINED_MAX = 5;
const EXPLAIN_MS = 250;
const EXPLAIN_CHARS_MAX = 64 * 1024;
/** Most characters of all earlier texts, with which each tried fix is compared. */
const EVER_CHARS_MAX = 256 * 1024;

/** Verdict with the schemas that it concerns. */
export interface JudgedSchema {
  readonly comparisons: readonly Comparison[];
  readonly proposed: Schema;
  readonly policy: VerdictPolicy;
  /** Returns a compared version; undefined if it cannot be read. */
  readonly schemaOf: (version: number) => Schema | undefined;
  /** Returns all earlier versions whose numbers count, oldest first; none if their texts have more
   *  characters. */
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

function toJson({ explanation, fix }: ExplainedFinding): object {
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

function explained(
  finding: Finding,
  comparison: Comparison,
  judged: JudgedSchema,
  ever: readonly Schema[],
): object {
  const { proposed, schemaOf } = judged;
  const other = comparison.version === undefined ? undefined : schemaOf(comparison.version);
  if (proposed.source.length + (other?.source.length ?? 0) > EXPLAIN_CHARS_MAX) return {};
  const how = { ever, policy: judged.policy };
  const [one] = explain({ ...comparison, findings: [finding] }, proposed, other, {}, how);
  return one === undefined ? {} : toJson(one);
}

export async function explainedFindings(judged: JudgedSchema): Promise<readonly object[]> {
  const all = judged.comparisons
    .flatMap((comparison) => comparison.findings.map((finding) => ({ finding, comparison })))
    .sort((a, b) => ORDER[a.finding.severity] - ORDER[b.finding.severity])
    .slice(0, FINDINGS_MAX);
  const ever = judged.ever(EVER_CHARS_MAX);
  const until = cpuMs() + EXPLAIN_MS;
  const answer: object[] = [];
  for (const [i, { finding, comparison }] of all.entries()) {
    const more =
      i < EXPLAINED_MAX && finding.severity !== 'note' && cpuMs() < until
        ? explained(finding, comparison, judged, ever)
        : {};
    answer.push({ ...bare(finding, comparison), ...more });
    if (i < EXPLAINED_MAX) await nextTurn();
  }
  return answer;
}
