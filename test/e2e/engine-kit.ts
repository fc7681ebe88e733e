/** Runs the oracle over a topic of events, and formats rows like an export. */
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import type { OracleRules } from '../../bench/peers/oracle/rules.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';

/** Feeds the whole topic to an oracle, partition by partition. */
export async function oracleOf(brokers: string, topic: string, rules: OracleRules): Promise<Oracle> {
  const reader = await TopicReader.open(brokers, topic);
  const oracle = new Oracle(rules, reader.partitions.length);
  for (const p of reader.partitions) await reader.read(p, ({ value }) => oracle.value(p, value));
  reader.close();
  return oracle;
}

/** Formats a row as the engine's export does. */
export const rowText = (row: object): string => Object.values(row).join(',');
