/** What a comparison of two schemas found, in one form for the API, the command line and the console. */

/** fail: some event is refused or comes back wrong. lossy: it comes back changed in a way that the format's own
 *  specification allows. unjudged: there is no rule for this change, so it is refused. note: allowed, worth saying. */
export type Severity = 'fail' | 'lossy' | 'unjudged' | 'note';

export interface Finding {
  /** A rule's stable name, e.g. AVRO_READER_FIELD_WITHOUT_DEFAULT. */
  readonly rule: string;
  readonly severity: Severity;
  /** Where, from the outermost type: `Order.items[].qty`. */
  readonly path: string;
  readonly message: string;
}

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
  return `${word}${finding.message} at ${finding.path} (${finding.rule})`;
}

/** Findings of one comparison, bounded: a hostile pair must not answer with megabytes. */
const FINDINGS_MAX = 100;

export class Findings {
  private readonly list: Finding[] = [];

  add(severity: Severity, rule: string, path: string, message: string): void {
    if (this.list.length < FINDINGS_MAX) this.list.push({ rule, severity, path, message });
    // A refusal is never lost behind a list of notes.
    else if (severity === 'fail' || severity === 'unjudged')
      this.list[FINDINGS_MAX - 1] = { rule, severity, path, message };
  }

  all(): readonly Finding[] {
    return this.list;
  }
}
