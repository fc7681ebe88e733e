/** The late tail of a generated stream at a chosen watermark: the oracle's result of the delayed
 *  order beside the batch result of the true order, from the generator's own truth. */

import type { GenKernels } from '../../src/addon/gen-surface.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { type LateTail, lateTail } from '../peers/oracle/late-tail.ts';
import type { OracleRow, OracleRules } from '../peers/oracle/rules.ts';
import { Oracle } from '../peers/oracle/windows.ts';

const ROWS = 4096;

export interface LateTailStream {
  readonly options: Omit<EventOptions, 'order'>;
  /** Keys are dealt to partitions by account_id modulo their number. */
  readonly partitions: number;
  readonly kernels: GenKernels;
}

function tell(oracle: Oracle, of: LateTailStream, order: EventOptions['order']): void {
  const generator = new EventGenerator({ ...of.options, order }, of.kernels);
  const batch = EventBatch.create(ROWS);
  const { accountId, value, eventTs } = batch.columns;
  for (let rows = generator.fillEvents(batch); rows > 0; rows = generator.fillEvents(batch)) {
    for (let row = 0; row < rows; row++) {
      const account = accountId[row] as bigint;
      const partition = Number(account % BigInt(of.partitions));
      oracle.event(partition, account, value[row] as bigint, eventTs[row] as bigint);
    }
  }
}

/** The batch result of the true order. It depends on the windows of the rules alone. */
export function trueRows(of: LateTailStream, rules: OracleRules): readonly OracleRow[] {
  const oracle = new Oracle(rules, of.partitions, false);
  tell(oracle, of, 'true');
  return [...oracle.rows()];
}

/** What the rules make of the delayed order, beside it. */
export function lateTailOf(of: LateTailStream, rules: OracleRules, truth: readonly OracleRow[]): LateTail {
  const oracle = new Oracle(rules, of.partitions);
  tell(oracle, of, 'delayed');
  return lateTail(oracle.rows(), truth, oracle.counters);
}
