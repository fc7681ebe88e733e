/** Policy STRICT: the rules of the existing registries, by their own names. */
import type { Rule } from './rules.ts';

export const STRICT_RULES: readonly Rule[] = [];
