/** Explains findings: both pieces of text with their places, a counterexample event, and a fix. */

import type { ResolvedReference } from '../../formats/content.ts';
import { positionOf } from '../../formats/json/text.ts';
import type { Schema } from '../../formats/schema.ts';
import type { Finding, SchemaPlace } from '../compatibility/finding.ts';
import type { Comparison } from '../compatibility/modes.ts';
import {
  type Counterexample,
  counterexampleOf,
  historyCounterexample,
  historyField,
} from './counterexample.ts';
import { type Fix, fixOf } from './fix/search.ts';
import { jsonSpan, offsetOf, protoSpan } from './fix/spans.ts';

/** Piece of a schema's text. */
export interface Fragment {
  /** `proposed`, `version 3`, or the name of a reference. */
  readonly source: string;
  readonly line: number;
  readonly column: number;
  /** One line, cut to FRAGMENT_CHARS_MAX; empty if the text is not available. */
  readonly text: string;
}

export interface Explanation {
  readonly reader: Fragment | undefined;
  readonly writer: Fragment | undefined;
  /** Undefined for notes, and if no event shows the finding. */
  readonly counterexample: Counterexample | undefined;
}

export interface ExplainedFinding {
  readonly finding: Finding;
  readonly direction: Comparison['direction'];
  /** Undefined: the rules over all versions. */
  readonly version: number | undefined;
  readonly explanation: Explanation;
  readonly fix: Fix | undefined;
}

export interface SourceNames {
  readonly proposed?: string;
  /** Name of the other schema. */
  readonly other?: string;
}

/** Every earlier schema, oldest first, and the policy. */
export type ExplainOptions = NonNullable<Parameters<typeof fixOf>[4]>;

const FRAGMENT_CHARS_MAX = 100;
/** Most characters that are searched for the end of a piece. */
const SPAN_CHARS_MAX = 4_000;

/** Returns the text of a reference, found breadth-first; undefined if no reference has that name.
 */
function referenceText(references: readonly ResolvedReference[], name: string): string | undefined {
  const seen = new Set<ResolvedReference>();
  const open = [...references];
  for (let one = open.shift(); one !== undefined; one = open.shift()) {
    if (one.name === name) return one.text;
    if (seen.has(one)) continue;
    seen.add(one);
    open.push(...one.references);
  }
  return undefined;
}

function fragmentOf(place: SchemaPlace | undefined, schema: Schema, name: string): Fragment | undefined {
  if (place === undefined) return undefined;
  const { from } = place;
  const text = from === undefined ? schema.source : referenceText(schema.references, from);
  const source = from === undefined ? name : `reference ${from}`;
  if (text === undefined) {
    const { line, column } = 'at' in place ? { line: 0, column: 0 } : place;
    return { source, line, column, text: '' };
  }
  const at = 'at' in place ? place.at : offsetOf(text, place);
  const { line, column } = 'at' in place ? positionOf(text, at) : place;
  const near = text.slice(at, at + SPAN_CHARS_MAX);
  const { end } = 'at' in place ? jsonSpan(near, 0) : protoSpan(near, 0);
  const piece = near.slice(0, end).replace(/\s+/g, ' ').trim();
  const cut = piece.length > FRAGMENT_CHARS_MAX ? `${piece.slice(0, FRAGMENT_CHARS_MAX)}…` : piece;
  return { source, line, column, text: cut };
}

/** Returns the field of this schema that a finding of the number history concerns. */
function heldAt(finding: Finding, schema: Schema | undefined): SchemaPlace | undefined {
  const field = historyField(finding);
  if (field === undefined || schema?.format !== 'PROTOBUF') return undefined;
  const message = schema.tree.byName.get(field.message);
  return message?.fields.find(({ number }) => number === field.number)?.at;
}

function explainHistory(
  finding: Finding,
  proposed: Schema,
  ever: readonly Schema[],
  names: Required<SourceNames>,
): Explanation {
  const shown = historyCounterexample(finding, proposed, ever);
  const writer = shown?.writer ?? ever.findLast((schema) => heldAt(finding, schema) !== undefined);
  return {
    reader: fragmentOf(finding.reader ?? heldAt(finding, proposed), proposed, names.proposed),
    writer: writer && fragmentOf(heldAt(finding, writer), writer, names.other),
    counterexample: shown?.counterexample,
  };
}

/** @param other schema with which the proposed one was compared; undefined if it cannot be read
 *  @param how `ever`: the earlier schemas of a finding of the number history
 *  @cost some hundred decoded events, and some parses of the proposed text, for each finding */
export function explain(
  { version, direction, findings }: Comparison,
  proposed: Schema,
  other: Schema | undefined,
  names: SourceNames = {},
  how: ExplainOptions = {},
): ExplainedFinding[] {
  const named = {
    proposed: names.proposed ?? 'proposed',
    other: names.other ?? (version === undefined ? 'an earlier version' : `version ${version}`),
  };
  const explainPair = (finding: Finding): Explanation => {
    const mine = (place: SchemaPlace | undefined): Fragment | undefined =>
      fragmentOf(place, proposed, named.proposed);
    const its = (place: SchemaPlace | undefined): Fragment | undefined =>
      other && fragmentOf(place, other, named.other);
    if (direction === 'FORWARD')
      return {
        reader: its(finding.reader),
        writer: mine(finding.writer),
        counterexample: other && counterexampleOf(finding, other, proposed),
      };
    return {
      reader: mine(finding.reader),
      writer: its(finding.writer),
      counterexample: other && counterexampleOf(finding, proposed, other),
    };
  };
  const past = how.ever ?? (other === undefined ? [] : [other]);
  return findings.map((finding) => ({
    finding,
    direction,
    version,
    explanation:
      direction === 'HISTORY' ? explainHistory(finding, proposed, past, named) : explainPair(finding),
    fix: fixOf(finding, direction, proposed, other, how),
  }));
}
