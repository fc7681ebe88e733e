/** The catalogue of rules: what each finding means, shown by a pair that has it.
 *
 *  Invariants: (1) every rule that a checker may name stands here, and nothing else; (2) the checkers find in each
 *  example what it is an example of. The pages in docs/rules are made of this.
 */
import type { SchemaFormat } from '../schemas/format.ts';
import type { Severity } from './finding.ts';
import { AVRO_RULES } from './rules-avro.ts';
import { GENERAL_RULES } from './rules-general.ts';
import { JSON_RULES } from './rules-json.ts';
import { PROTO_RULES } from './rules-proto.ts';
import { STRICT_RULES } from './rules-strict.ts';

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

export const RULES: readonly Rule[] = [
  ...GENERAL_RULES,
  ...AVRO_RULES,
  ...PROTO_RULES,
  ...JSON_RULES,
  ...STRICT_RULES,
];

const BY_ID = new Map(RULES.map((rule) => [rule.id, rule]));

export function ruleOf(id: string): Rule | undefined {
  return BY_ID.get(id);
}
