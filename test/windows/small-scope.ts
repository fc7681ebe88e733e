/** Enumerates every stream up to a length over a few timestamps, keys and partitions.
 *
 *  It omits streams that are equivalent to another one. Keys and partitions are numbered in the
 *  order of their first use. The first timestamp lies in [0, step), because windows repeat every
 *  step (sessions every ms). Only the sum of skew and lateness matters, so lateness stays 0. Event
 *  i has the value 2^i, so a sum identifies its events. */
import type { LogEntry } from '../../bench/peers/oracle/rules.ts';
import { type LiteralRules, type LiteralState, literalStart, literalStep } from './literal.ts';

export interface Scope {
  readonly rules: LiteralRules;
  readonly partitions: number;
  readonly keys: number;
  /** Greatest distance of a timestamp from the first one, ms. */
  readonly reach: number;
  /** Number of entries of the longest stream. */
  readonly length: number;
  /** True if partitions may also be declared idle. */
  readonly idle: boolean;
}

const stepOf = (rules: LiteralRules): bigint =>
  rules.window === 'session' ? 1n : rules.window === 'sliding' ? rules.slideMs : rules.sizeMs;

export const scopeName = ({ rules, partitions, keys, reach, length, idle }: Scope): string => {
  const windows =
    rules.window === 'session'
      ? `sessions of gap ${rules.gapMs}`
      : `windows of ${rules.sizeMs}${rules.window === 'sliding' ? ` every ${rules.slideMs}` : ''}`;
  const mode = rules.watermark === 'global' ? ', global' : '';
  return `${windows}, skew ${rules.skewMs}${mode}: up to ${length} entries, ${2 * reach + 1} times, ${partitions} partitions, ${keys} keys${idle ? ', idle decisions' : ''}`;
};

/** Calls `visit` with each stream and the literal state after it; the array is reused.
 *  @returns the number of streams */
export function everyStream(
  scope: Scope,
  visit: (log: readonly LogEntry[], state: LiteralState) => void,
): number {
  const { rules, partitions, keys, reach, length } = scope;
  const step = stepOf(rules);
  const log: LogEntry[] = [];
  let streams = 0;

  const times = (first: bigint | undefined): bigint[] => {
    const found: bigint[] = [];
    const [from, to] = first === undefined ? [0n, step - 1n] : [first - BigInt(reach), first + BigInt(reach)];
    for (let ts = from; ts <= to; ts++) found.push(ts);
    return found;
  };

  const walk = (
    state: LiteralState,
    first: bigint | undefined,
    partitionsUsed: number,
    keysUsed: number,
  ): void => {
    if (log.length === length) return;
    const append = (entry: LogEntry, nextFirst: bigint | undefined, p: number, k: number): void => {
      const next = literalStep(rules, state, entry);
      log.push(entry);
      streams++;
      visit(log, next);
      walk(next, nextFirst, Math.max(partitionsUsed, p + 1), Math.max(keysUsed, k + 1));
      log.pop();
    };
    const value = 1n << BigInt(log.length);
    for (let partition = 0; partition < Math.min(partitions, partitionsUsed + 1); partition++) {
      if (scope.idle && state.partitions[partition]?.idle === false)
        append({ kind: 'idle', partition }, first, partition, -1);
      for (let key = 0; key < Math.min(keys, keysUsed + 1); key++) {
        for (const eventTs of times(first)) {
          const entry = { kind: 'event', partition, accountId: BigInt(key), value, eventTs } as const;
          append(entry, first ?? eventTs, partition, key);
        }
      }
    }
  };
  walk(literalStart(partitions), undefined, 0, 0);
  return streams;
}
