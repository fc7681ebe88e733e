/** Measures the effect of lateness on a generated stream at a chosen watermark: compares the
 *  oracle's result of the delayed order with the batch result of the true order, both from the
 *  generator. */

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
  /** Partitions; an account belongs to account_id modulo this number. */
  readonly partitions: number;
  readonly kernels: GenKernels;
}

function applyEvents(oracle: Oracle, stream: LateTailStream, order: EventOptions['order']): void {
  const generator = new EventGenerator({ ...stream.options, order }, stream.kernels);
  const batch = EventBatch.create(ROWS);
  const { accountId, value, eventTs } = batch.columns;
  for (let rows = generator.fillEvents(batch); rows > 0; rows = generator.fillEvents(batch)) {
    for (let row = 0; row < rows; row++) {
      const account = accountId[row] as bigint;
      const partition = Number(account % BigInt(stream.partitions));
      oracle.event(partition, account, value[row] as bigint, eventTs[row] as bigint);
    }
  }
}

/** Batch result of the true order. It depends only on the windows of the rules. */
export function trueRows(stream: LateTailStream, rules: OracleRules): readonly OracleRow[] {
  const oracle = new Oracle(rules, stream.partitions, false);
  applyEvents(oracle, stream, 'true');
  return [...oracle.rows()];
}

/** Compares the result of the delayed order under these rules with the truth. */
export function lateTailOf(
  stream: LateTailStream,
  rules: OracleRules,
  truth: readonly OracleRow[],
): LateTail {
  const oracle = new Oracle(rules, stream.partitions);
  applyEvents(oracle, stream, 'delayed');
  return lateTail(oracle.rows(), truth, oracle.counters);
}
