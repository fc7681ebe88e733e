/** Protobuf, policy PROVEN and the history of numbers. */
import type { Rule } from './rules.ts';

export const PROTO_RULES: readonly Rule[] = [];
