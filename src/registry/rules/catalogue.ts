/** The catalogue of rules: what each finding means, shown by a pair that has it.
 *
 *  Invariants: (1) every rule that a checker may name stands here, and nothing else; (2) the checkers find in each
 *  example what it is an example of. The pages in docs/rules are made of this.
 */

import { AVRO_RULES } from './avro.ts';
import { GENERAL_RULES } from './general.ts';
import { JSON_RULES } from './json.ts';
import { PROTO_RULES } from './protobuf.ts';
import type { Rule } from './rule.ts';
import { STRICT_RULES } from './strict.ts';

export type { Rule } from './rule.ts';

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
