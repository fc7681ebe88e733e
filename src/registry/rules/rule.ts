/** Entry of the rule catalogue. */
import type { SchemaFormat } from '../../formats/format.ts';
import type { Severity } from '../compatibility/finding.ts';

export interface RuleExample {
  readonly format: SchemaFormat;
  /** Format of the proposed schema, if it differs. */
  readonly proposedFormat?: SchemaFormat;
  /** BACKWARD: the proposed schema reads; FORWARD: the earlier one reads; HISTORY: the rules over
   *  all versions. */
  readonly direction: 'BACKWARD' | 'FORWARD' | 'HISTORY';
  /** Oldest first; the last one is compared. */
  readonly earlier: readonly string[];
  readonly proposed: string;
}

export interface Rule {
  readonly id: string;
  /** Policy that reports the rule; `any`: the history of numbers, and changes that no policy can
   *  judge. */
  readonly policy: 'PROVEN' | 'STRICT' | 'any';
  readonly format: 'Avro' | 'Protobuf' | 'JSON Schema' | 'any';
  readonly severity: Severity;
  /** Finding in a few words. */
  readonly title: string;
  /** Effect on a real event. */
  readonly why: string;
  /** Smallest change that removes the finding. */
  readonly fix: string;
  /** Origin of the rule. */
  readonly source: string;
  /** Absent if no short pair of schemas shows the rule. */
  readonly example?: RuleExample;
}
