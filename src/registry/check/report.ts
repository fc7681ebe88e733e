/** Report on a proposed schema: the one document from which every output is rendered. */

import type { SchemaFormat } from '../../formats/format.ts';
import type { Schema } from '../../formats/schema.ts';
import type { Finding } from '../compatibility/finding.ts';
import type { Comparison, Level, VerdictPolicy } from '../compatibility/modes.ts';
import type { Explanation } from '../proof/explain.ts';
import type { Fix } from '../proof/fix/search.ts';

export type Direction = Comparison['direction'];

/** Earlier schema with which the proposed schema is compared. */
export interface Earlier {
  /** Counts from 1 if there is no registry. */
  readonly version: number;
  /** Name for messages: `version 3`, or a file. */
  readonly name: string;
  /** False: softly deleted, or supplied as history only. Such a version counts only in the history
   *  of numbers. */
  readonly live: boolean;
  /** Parsed schema, or the reason why the text cannot be parsed. */
  readonly schema: Schema | { readonly unreadable: string };
}

export function readable(earlier: Earlier): Schema | undefined {
  return 'unreadable' in earlier.schema ? undefined : earlier.schema;
}

export interface GateFinding {
  readonly finding: Finding;
  readonly direction: Direction;
  /** Latest version that has the finding; undefined for the rules over all versions. */
  readonly version: number | undefined;
  /** All versions that have the finding. */
  readonly versions: readonly number[];
  /** True: the finding refuses the schema under the subject's settings. */
  readonly refuses: boolean;
  readonly explanation: Explanation;
  readonly fix: Fix | undefined;
}

/** Result of the registry's own check. */
export type RegistryAnswer =
  | { readonly asked: false; readonly why: string }
  | { readonly asked: true; readonly compatible: boolean; readonly messages: readonly string[] };

/** Result of the live proof. */
export interface Proof {
  readonly events: number;
  readonly pairs: number;
  /** Pairs whose verdict differs from live decode. This is a bug of Millrace, so the schema is
   *  refused. */
  readonly disagreements: readonly string[];
}

export interface GateReport {
  readonly subject: string | undefined;
  readonly file: string;
  readonly format: SchemaFormat;
  /** Text of the proposed schema, as the file has it. */
  readonly source: string;
  /** Source of the earlier schemas. */
  readonly against: string;
  readonly mode: Level;
  readonly policy: VerdictPolicy;
  readonly lossy: 'ACCEPT' | 'REJECT';
  readonly compared: readonly Earlier[];
  /** Number of versions that count in the history of numbers. */
  readonly everCount: number;
  /** Final answer: the local verdict, the registry's verdict if it was asked, and the live proof if
   *  it was requested. */
  readonly compatible: boolean;
  /** Local verdict alone. */
  readonly judged: boolean;
  readonly registry: RegistryAnswer;
  /** Verdict of the other policy. */
  readonly other: { readonly policy: VerdictPolicy; readonly compatible: boolean };
  readonly findings: readonly GateFinding[];
  /** Version that already holds this text. */
  readonly already: number | undefined;
  readonly notes: readonly string[];
  readonly proof: Proof | undefined;
}

/** Upgrade order of producers and consumers that the mode allows. */
export function upgradeOrder(mode: Level): string {
  if (mode.startsWith('BACKWARD')) return 'upgrade consumers first';
  if (mode.startsWith('FORWARD')) return 'upgrade producers first';
  if (mode.startsWith('FULL')) return 'upgrade consumers and producers in any order';
  return 'nothing is promised, so stop producers and consumers for the upgrade';
}

/** First line of every output. */
export function headline(report: GateReport): string {
  const what = report.subject ?? report.file;
  const under = `under ${report.mode}`;
  if (report.compatible) return `${what}: compatible ${under}: ${upgradeOrder(report.mode)}`;
  if (report.judged && report.registry.asked && !report.registry.compatible)
    return `${what}: REFUSED by the registry, though compatible ${under} as judged here`;
  if (report.judged) return `${what}: NOT PROVEN ${under}: live decode differs from the verdict`;
  const count = report.findings.filter(({ refuses }) => refuses).length;
  return `${what}: INCOMPATIBLE ${under}: ${count} refusing ${count === 1 ? 'finding' : 'findings'}`;
}

/** Most versions that a sentence names; the latest are named. */
const NAMES_MAX = 4;

/** Describes the effect of a finding in one sentence. */
export function consequence(
  { direction, versions, finding }: GateFinding,
  compared: readonly Earlier[],
): string {
  const names = versions.map(
    (version) => compared.find((one) => one.version === version)?.name ?? `version ${version}`,
  );
  const others = names.length - NAMES_MAX;
  const name = others > 0 ? `${names.slice(-NAMES_MAX).join(', ')} and ${others} more` : names.join(', ');
  if (direction === 'HISTORY')
    return 'no mode allows it: events with the old meaning may still be in a topic';
  const [reader, writer] =
    direction === 'BACKWARD' ? ['the proposed schema', name] : [name, 'the proposed schema'];
  // Verb ending: none for several readers.
  const s = reader === name && names.length > 1 ? '' : 's';
  const cannot =
    finding.severity === 'fail'
      ? `fail${s} on`
      : finding.severity === 'unjudged'
        ? 'may fail on'
        : finding.severity === 'lossy'
          ? `lose${s} something of`
          : `read${s}`;
  return `${reader}, as reader${s === '' ? 's' : ''}, ${cannot} events of ${writer} (${direction})`;
}
