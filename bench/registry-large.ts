/** Many large schemas: memory usage and start-up time. */
import { join } from 'node:path';
import { type BenchResult, result, type Series, seriesOf } from './harness.ts';
import { NUMBER } from './http-load.ts';
import { dataBytesUnder } from './registry-disk.ts';
import { FILL_CONNECTIONS, RegistryLoads } from './registry-loads.ts';
import { lessMs, MIB, type Run } from './registry-run.ts';
import { residentBytes, startOurs } from './registry-server.ts';

export const LARGE_BYTES = 2048;
const MEMORY_BYTES_MAX = 600e6;

/** Avro record of about LARGE_BYTES of text, distinct by its name. */
export function largeSchema(name: string): string {
  const fields: object[] = [];
  const text = (): string => JSON.stringify({ type: 'record', name, namespace: 'bench.large', fields });
  for (let i = 0; text().length < LARGE_BYTES; i++)
    fields.push({ name: `field_${i}`, type: ['null', 'string'], default: null, doc: 'One of many fields.' });
  return text();
}

export async function largeResults(run: Run): Promise<BenchResult[]> {
  const { context, sizes, dir } = run;
  const count = sizes.largeSchemas;
  const store = join(dir, 'large');
  context.say(`registering ${count} schemas of ${LARGE_BYTES} B`);
  const first = await startOurs(`file:${store}`);
  let grown: number;
  let rate: number;
  try {
    const loads = new RegistryLoads(first, `${run.name}l`, sizes, context.drain);
    const { ratePerSecond } = await loads.register(count, largeSchema(`L${run.name}_${NUMBER}`));
    rate = ratePerSecond;
    grown = residentBytes(first.pid);
  } finally {
    await first.stop();
  }
  context.say(`starts with ${count} schemas, ${(dataBytesUnder(store) / MIB).toFixed(0)} MiB on the disk`);
  const writable: number[] = [];
  const resident: number[] = [];
  for (let turn = 0; turn < Math.min(3, context.repeats); turn++) {
    const again = await startOurs(`file:${store}`, [], `large${turn}`);
    writable.push(again.writableMs);
    resident.push(residentBytes(again.pid));
    await again.stop();
  }
  const memory = (metric: string, values: readonly number[]): BenchResult =>
    result({
      metric,
      unit: 'MB',
      better: 'less',
      ours: seriesOf(values.map((bytes) => bytes / 1e6)),
      goal: { valueAtMost: MEMORY_BYTES_MAX / 1e6 },
    });
  const large = `${count} schemas of ${LARGE_BYTES} B`;
  const one = (value: number): Series => seriesOf([value]);
  return [
    memory(`memory after registering ${large}`, [grown]),
    memory(`memory after a start with ${large}`, resident),
    result({ ...lessMs, metric: `start until writable, ${large}, file store`, ours: seriesOf(writable) }),
    result({
      metric: `registrations of ${LARGE_BYTES} B, ${FILL_CONNECTIONS} at once, until there were ${count}`,
      unit: 'requests/s',
      better: 'more',
      ours: one(rate),
    }),
  ];
}
