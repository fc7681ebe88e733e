/** What the catalogue says of a rule. */
import type { SchemaFormat } from '../../formats/format.ts';
import type { Severity } from '../compatibility/finding.ts';

export interface RuleExample {
  readonly format: SchemaFormat;
  /** Of the proposed schema where it differs. */
  readonly proposedFormat?: SchemaFormat;
  /** Which of the two reads; HISTORY: the rules over all versions. */
  readonly direction: 'BACKWARD' | 'FORWARD' | 'HISTORY';
  /** Oldest first; the last one is compared. */
  readonly earlier: readonly string[];
  readonly proposed: string;
}

export interface Rule {
  readonly id: string;
  /** Under which policy it is found; `any` is the history of numbers, and what no policy can judge. */
  readonly policy: 'PROVEN' | 'STRICT' | 'any';
  readonly format: 'Avro' | 'Protobuf' | 'JSON Schema' | 'any';
  readonly severity: Severity;
  /** What was found, a few words. */
  readonly title: string;
  /** What happens to a real event. */
  readonly why: string;
  /** The smallest change that takes it away. */
  readonly fix: string;
  /** Where the rule comes from. */
  readonly source: string;
  /** Absent where no short pair shows it. */
  readonly example?: RuleExample;
}
