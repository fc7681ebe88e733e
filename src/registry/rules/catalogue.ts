/** Catalogue of rules: the meaning of each finding, with an example pair of schemas. The pages in
 *  docs/reference/rules are generated from it.
 *  Invariants: (1) the catalogue has every rule that a checker can report, and no other rule;
 *  (2) the checkers report the rule for its example. */

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
