/** What a comparison of two schemas found, in one form for the API, the command line and the console. */

/** fail: some event is refused or comes back wrong. lossy: it comes back changed in a way that the format's own
 *  specification allows. unjudged: there is no rule for this change, so it is refused. note: allowed, worth saying. */
export type Severity = 'fail' | 'lossy' | 'unjudged' | 'note';

/** A place in a schema's text, or in the text of the reference `from`. */
export type Place =
  /** UTF-16 units from the beginning: what the Avro parser keeps. */
  | { readonly at: number; readonly from?: string }
  /** What the Protobuf parser keeps. */
  | { readonly line: number; readonly column: number; readonly from?: string };

/** One step from the root of a written event to what a finding is about, along the writer's schema. */
export type Step =
  /** Protobuf: the message that the event is; stands first. */
  | { readonly kind: 'root'; readonly message: string }
  /** Avro: the writer's name of the field; Protobuf: its number. */
  | { readonly kind: 'field'; readonly key: string | number }
  /** Of an array or of a repeated field. */
  | { readonly kind: 'item' }
  /** Of a map. */
  | { readonly kind: 'value' }
  /** Index among the branches of the writer's union. */
  | { readonly kind: 'branch'; readonly index: number };

/** The steps so far, last one outermost in the list: pairs share what leads to them. */
export interface Route {
  readonly outer: Route | undefined;
  readonly step: Step;
}

/** The steps in their order. */
export function stepsOf(route: Route | undefined): Step[] {
  const steps: Step[] = [];
  for (let one = route; one !== undefined; one = one.outer) steps.push(one.step);
  return steps.reverse();
}

export interface Finding {
  /** A rule's stable name, e.g. AVRO_READER_FIELD_WITHOUT_DEFAULT. */
  readonly rule: string;
  readonly severity: Severity;
  /** Where, from the outermost type: `Order.items[].qty`. */
  readonly path: string;
  readonly message: string;
  /** What it is about in the reader's schema, or what holds it there; absent where nothing does. */
  readonly reader?: Place;
  /** The same in the writer's schema. */
  readonly writer?: Place;
  /** How a written event gets there; undefined: the event itself. */
  readonly route?: Route;
  /** STRICT, Avro only: where the existing registries say it is, `/fields/2/type`. */
  readonly pointer?: string;
  /** STRICT, Avro only: what they add to it, `reader type: INT not compatible with writer type: STRING`. */
  readonly detail?: string;
  /** Protobuf only: the message and the number, `#/Order/2`. */
  readonly place?: string;
  /** Protobuf only: what kind of field it is, where the rule's public name depends on it. */
  readonly kind?: FieldKind;
}

export type FieldKind = 'text' | 'numeric' | 'scalar' | 'other';

/** Whether the reader may be let near the writer's data. */
export function isCompatible(findings: readonly Finding[]): boolean {
  return findings.every((finding) => finding.severity === 'lossy' || finding.severity === 'note');
}

/** One line for a person. */
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

/** Findings of one comparison, bounded: a hostile pair must not answer with megabytes. */
export const FINDINGS_MAX = 100;
/** Steps of all comparisons of one check. Two texts can name more pairs of types than anyone waits for; all that people
 *  write stays far below. */
export const CHECK_STEPS_MAX = 2_000_000;
/** Names listed in one message. */
const NAMES_SHOWN_MAX = 10;

/** Names for a message, a bounded number of them. */
export function someOf(names: readonly string[]): string {
  const rest = names.length - NAMES_SHOWN_MAX;
  return rest <= 0 ? names.join(', ') : `${names.slice(0, NAMES_SHOWN_MAX).join(', ')} and ${rest} more`;
}

const RANKS: Readonly<Record<Severity, number>> = { note: 0, lossy: 1, fail: 2, unjudged: 3 };

/** Steps that the comparisons of one check share. A step is one pair of fields, symbols or the like. */
export class StepBudget {
  /** The most steps. */
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
  /** Of a full list: none in it ranks below. */
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
    // What decides is never lost behind a list of notes.
    const rank = RANKS[severity];
    if (rank <= this.floor) return;
    const lesser = this.list.findLastIndex((one) => RANKS[one.severity] < rank);
    if (lesser >= 0) this.list[lesser] = finding;
    else this.floor = rank;
  }

  /** False: one of this severity would be dropped, so there is no need to make it. */
  takes(severity: Severity): boolean {
    return this.list.length < FINDINGS_MAX || RANKS[severity] > this.floor;
  }

  /** Counts steps. False: the check took too many, so the comparison ends here, refused. */
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
