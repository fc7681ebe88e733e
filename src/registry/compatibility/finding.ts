/** Findings of a comparison of two schemas, in one form for the API, the command line and the
 *  console. */

/** fail: an event is refused or read with a wrong value. lossy: a value changes in a way that the
 *  format's specification allows. unjudged: no rule covers this change, so it is refused. note:
 *  compatible, for information. */
export type Severity = 'fail' | 'lossy' | 'unjudged' | 'note';

/** Place in a schema's text, or in the text of the reference `from`. */
export type SchemaPlace =
  /** Avro and JSON: UTF-16 units from the beginning. */
  | { readonly at: number; readonly from?: string }
  /** Protobuf: line and column. */
  | { readonly line: number; readonly column: number; readonly from?: string };

/** Step from the root of a written event towards the place of a finding, along the writer schema.
 */
export type Step =
  /** Protobuf: message type of the event; always the first step. */
  | { readonly kind: 'root'; readonly message: string }
  /** Avro: the writer's name of the field; Protobuf: its number. */
  | { readonly kind: 'field'; readonly key: string | number }
  /** Item of an array or of a repeated field. */
  | { readonly kind: 'item' }
  /** Value of a map. */
  | { readonly kind: 'value' }
  /** Index among the branches of the writer's union. */
  | { readonly kind: 'branch'; readonly index: number };

/** Steps in reverse order, as a linked list: pairs share their outer steps. */
export interface EventRoute {
  readonly outer: EventRoute | undefined;
  readonly step: Step;
}

/** Returns the steps from the root inwards. */
export function stepsOf(route: EventRoute | undefined): Step[] {
  const steps: Step[] = [];
  for (let one = route; one !== undefined; one = one.outer) steps.push(one.step);
  return steps.reverse();
}

export interface Finding {
  /** Stable name of the rule, e.g. AVRO_READER_FIELD_WITHOUT_DEFAULT. */
  readonly rule: string;
  readonly severity: Severity;
  /** Path from the outermost type: `Order.items[].qty`. */
  readonly path: string;
  readonly message: string;
  /** Place in the reader's schema: the part itself, or its holder. Absent if there is neither. */
  readonly reader?: SchemaPlace;
  /** The same in the writer's schema. */
  readonly writer?: SchemaPlace;
  /** Route of a written event to the place; undefined: the whole event. */
  readonly route?: EventRoute;
  /** STRICT, Avro only: pointer that the existing registries report, `/fields/2/type`. */
  readonly pointer?: string;
  /** STRICT, Avro only: their detail text, `reader type: INT not compatible with writer type:
   *  STRING`. */
  readonly detail?: string;
  /** Protobuf only: message and field number, `#/Order/2`. */
  readonly place?: string;
  /** Protobuf only: kind of the field, if the rule's public name depends on it. */
  readonly kind?: FieldKind;
}

export type FieldKind = 'text' | 'numeric' | 'scalar' | 'other';

/** True if a reader with these findings can be used with the writer's data: each finding is a loss
 *  that the reader accepts, or a note.
 *  @example
 *  const accepted = isCompatible(checkPair(reader, writer));
 */
export function isCompatible(findings: readonly Finding[]): boolean {
  return findings.every((finding) => finding.severity === 'lossy' || finding.severity === 'note');
}

/** Renders a finding as one line: message, place and rule.
 *  @example
 *  for (const finding of checkPair(reader, writer)) console.log(findingLine(finding));
 */
export function findingLine(finding: Finding): string {
  const word =
    finding.severity === 'unjudged'
      ? 'not judged, so refused: '
      : finding.severity === 'lossy'
        ? 'lossy: '
        : '';
  const at = finding.path === '' ? '' : ` at ${finding.path}`;
  return `${word}${finding.message}${at} (${finding.rule})`;
}

/** Most findings of one comparison: a hostile pair must not produce an answer of megabytes. */
export const FINDINGS_MAX = 100;
/** Most steps of all comparisons of one check, against hostile texts that combine huge numbers of
 *  types. Real schemas stay far below. */
export const CHECK_STEPS_MAX = 2_000_000;
/** Most names listed in one message. */
const NAMES_SHOWN_MAX = 10;

/** Joins names for a message, a bounded number of them. */
export function someOf(names: readonly string[]): string {
  const rest = names.length - NAMES_SHOWN_MAX;
  return rest <= 0 ? names.join(', ') : `${names.slice(0, NAMES_SHOWN_MAX).join(', ')} and ${rest} more`;
}

const RANKS: Readonly<Record<Severity, number>> = { note: 0, lossy: 1, fail: 2, unjudged: 3 };

/** Budget of steps that the comparisons of one check share. A step is one pair of fields, symbols
 *  or the like. */
export class StepBudget {
  /** Most steps. */
  readonly most: number;
  used = 0;

  constructor(most = CHECK_STEPS_MAX) {
    this.most = most;
  }

  get isSpent(): boolean {
    return this.used > this.most;
  }
}

export class Findings {
  private readonly list: Finding[] = [];
  /** Rank at or below which a full list drops findings; -1 while it is unknown. */
  private floor = -1;
  private readonly budget: StepBudget;
  private isTooLong = false;

  constructor(budget = new StepBudget()) {
    this.budget = budget;
  }

  add(
    severity: Severity,
    rule: string,
    path: string,
    message: string,
    where: Pick<Finding, 'place' | 'kind' | 'reader' | 'writer' | 'route' | 'pointer' | 'detail'> = {},
  ): void {
    const finding = { rule, severity, path, message, ...where };
    if (this.list.length < FINDINGS_MAX) {
      this.list.push(finding);
      return;
    }
    // A severe finding replaces a lesser one, so a flood of notes cannot hide it.
    const rank = RANKS[severity];
    if (rank <= this.floor) return;
    const lesser = this.list.findLastIndex((one) => RANKS[one.severity] < rank);
    if (lesser >= 0) this.list[lesser] = finding;
    else this.floor = rank;
  }

  /** False: a finding of this severity would be dropped, so the caller need not build it. */
  accepts(severity: Severity): boolean {
    return this.list.length < FINDINGS_MAX || RANKS[severity] > this.floor;
  }

  /** Counts steps. False: the budget is spent; the comparison ends and is refused. */
  spend(steps: number, path: string | (() => string)): boolean {
    this.budget.used += steps;
    if (!this.budget.isSpent) return true;
    if (!this.isTooLong) {
      this.isTooLong = true;
      this.add(
        'unjudged',
        'COMPARISON_TOO_LONG',
        typeof path === 'string' ? path : path(),
        `the schemas combine their types in more than ${this.budget.most} ways; make them simpler`,
      );
    }
    return false;
  }

  all(): readonly Finding[] {
    return this.list;
  }
}
