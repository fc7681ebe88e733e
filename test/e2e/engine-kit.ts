/** The oracle's reading of a topic of events, and its rows as an export shows them. */
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import type { OracleRules } from '../../bench/peers/oracle/rules.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';

/** Reads the whole topic, partition by partition. */
export async function oracleOf(brokers: string, topic: string, rules: OracleRules): Promise<Oracle> {
  const reader = await TopicReader.open(brokers, topic);
  const oracle = new Oracle(rules, reader.partitions.length);
  for (const p of reader.partitions) await reader.read(p, ({ value }) => oracle.value(p, value));
  reader.close();
  return oracle;
}

/** A row as an export and an answer of the engine have it. */
export const rowText = (row: object): string => Object.values(row).join(',');
