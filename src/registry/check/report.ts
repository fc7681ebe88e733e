/** What the gate found out about a proposed schema: one document, of which every output is made. */

import type { SchemaFormat } from '../../formats/format.ts';
import type { Schema } from '../../formats/schema.ts';
import type { Finding } from '../compatibility/finding.ts';
import type { Comparison, Level, VerdictPolicy } from '../compatibility/modes.ts';
import type { Explanation } from '../proof/explain.ts';
import type { Fix } from '../proof/fix/search.ts';

export type Direction = Comparison['direction'];

/** A schema that the proposed one is held against. */
export interface Earlier {
  /** Counts from 1 where there is no registry. */
  readonly version: number;
  /** For a person: `version 3`, or a file. */
  readonly name: string;
  /** False: deleted softly, or only part of the past; counts in the history of numbers alone. */
  readonly live: boolean;
  /** What it is, or why nobody can say. */
  readonly schema: Schema | { readonly unreadable: string };
}

export function readable(earlier: Earlier): Schema | undefined {
  return 'unreadable' in earlier.schema ? undefined : earlier.schema;
}

export interface GateFinding {
  readonly finding: Finding;
  readonly direction: Direction;
  /** The latest version that it is about; undefined: the rules that hold over all versions. */
  readonly version: number | undefined;
  /** All that it is about. */
  readonly versions: readonly number[];
  /** Whether it stands against the schema, as the subject is set. */
  readonly refuses: boolean;
  readonly explanation: Explanation;
  readonly fix: Fix | undefined;
}

/** What the registry's own check says. */
export type RegistryAnswer =
  | { readonly asked: false; readonly why: string }
  | { readonly asked: true; readonly compatible: boolean; readonly messages: readonly string[] };

/** What the live proof tried. */
export interface Proof {
  readonly events: number;
  readonly pairs: number;
  /** Pairs whose verdict is not what live decode gives: a fault of ours, so the gate does not open. */
  readonly disagreements: readonly string[];
}

export interface GateReport {
  readonly subject: string | undefined;
  readonly file: string;
  readonly format: SchemaFormat;
  /** The text of the proposed schema, as it stands in the file. */
  readonly source: string;
  /** Where the earlier schemas come from. */
  readonly against: string;
  readonly mode: Level;
  readonly policy: VerdictPolicy;
  readonly lossy: 'ACCEPT' | 'REJECT';
  readonly compared: readonly Earlier[];
  /** All that counted in the history of numbers. */
  readonly everCount: number;
  /** The answer: judged here, and by the registry where it was asked, and proven where that was asked for. */
  readonly compatible: boolean;
  /** What was judged here alone. */
  readonly judged: boolean;
  readonly registry: RegistryAnswer;
  /** What the other policy would answer. */
  readonly other: { readonly policy: VerdictPolicy; readonly compatible: boolean };
  readonly findings: readonly GateFinding[];
  /** The version that holds this very text already. */
  readonly already: number | undefined;
  readonly notes: readonly string[];
  readonly proof: Proof | undefined;
}

/** Who is upgraded first where the mode holds. */
export function upgradeOrder(mode: Level): string {
  if (mode.startsWith('BACKWARD')) return 'upgrade consumers first';
  if (mode.startsWith('FORWARD')) return 'upgrade producers first';
  if (mode.startsWith('FULL')) return 'upgrade consumers and producers in any order';
  return 'nothing is promised, so stop producers and consumers for the upgrade';
}

/** The first line of every output. */
export function headline(report: GateReport): string {
  const what = report.subject ?? report.file;
  const under = `under ${report.mode}`;
  if (report.compatible) return `${what}: compatible ${under}: ${upgradeOrder(report.mode)}`;
  if (report.judged && report.registry.asked && !report.registry.compatible)
    return `${what}: REFUSED by the registry, though compatible ${under} as judged here`;
  if (report.judged) return `${what}: NOT PROVEN ${under}: live decode differs from the verdict`;
  const count = report.findings.filter(({ refuses }) => refuses).length;
  return `${what}: INCOMPATIBLE ${under}: ${count} ${count === 1 ? 'finding stands' : 'findings stand'} against it`;
}

/** Versions that a sentence names, the latest of them. */
const NAMES_MAX = 4;

/** What a finding breaks, for a person. */
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
  // Several readers are several.
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
