/** `millrace engine verify -against=flink`: compares the results of two engines by a digest, and
 *  names the windows that differ. It reads both sinks, and changes nothing. */
import { coreError, EXIT } from '../../../core/errors.ts';
import { isVariable, type KeyType, keyValues, valueText } from '../../../engine/keys/type.ts';
import { DIFFERENCES_MAX } from '../../../engine/verify/compare.ts';
import { RowsDigest } from '../../../engine/verify/digest.ts';
import type { WindowResult } from '../../../engine/window/accumulator.ts';
import { type FlinkContext, sinkContext } from '../flink/plan.ts';
import { readSink, type SinkResults } from '../sinks.ts';
import { type Range, rangeOf } from './range.ts';

interface Settings {
  readonly aggregate: string | undefined;
  readonly 'verify-from': string | undefined;
  readonly 'verify-to': string | undefined;
  readonly 'verify-windows-max': number;
}
type Context = FlinkContext & { readonly settings: Settings };

/** Compares the sink with that of the Flink job.
 *  @param read reads all results of a sink
 *  @throws usage, and errors of the sinks */
export async function verifyAgainstFlink(context: Context, read = readSink): Promise<number> {
  const { settings } = context;
  const other = sinkContext(context);
  if (other.settings.sink === settings.sink && other.settings['sink-table'] === settings['sink-table'])
    throw coreError('usage', '-against=flink compares two sinks, and both are -sink', {
      next: 'give -flink-table or -flink-sink, as engine submit had it',
      details: { setting: 'against' },
    });
  const range = rangeOf(settings);
  const own = new Map<string, string>();
  const here = new RowsDigest();
  for await (const [window, values] of rowsOf(context, read, range)) {
    here.add(`${window}|${values}`);
    own.set(window, values);
    if (own.size > settings['verify-windows-max'])
      throw coreError('usage', `the range has more than ${settings['verify-windows-max']} windows`, {
        next: 'give -verify-from and -verify-to of a shorter range, or a larger -verify-windows-max',
      });
  }
  const there = new RowsDigest();
  const differences: string[] = [];
  let differing = 0;
  const differ = (line: string): void => {
    differing++;
    if (differences.length < DIFFERENCES_MAX) differences.push(line);
  };
  for await (const [window, values] of rowsOf(other, read, range)) {
    there.add(`${window}|${values}`);
    const expected = own.get(window);
    if (expected === undefined) differ(`${window}: of Flink alone (${values})`);
    else if (expected !== values) differ(`${window}: ${values} in Flink, ${expected} here`);
    own.delete(window);
  }
  for (const [window, values] of own) differ(`${window}: of this engine alone (${values})`);
  return report(context, { here, there, differing, differences });
}

/** Windows and their values as texts. */
async function* rowsOf(
  context: Context,
  read: typeof readSink,
  range: Range,
): AsyncGenerator<readonly [string, string]> {
  const { aggregate, key } = context.settings;
  const isUnsigned = key?.endsWith(':u64') === true;
  const results = await read(context, { aggregate, emit: undefined });
  for await (const page of results.pages)
    for (const row of page)
      if (isIn(row, range)) yield [windowText(row, results, isUnsigned), valuesText(row)];
}

const isIn = ({ windowStart, windowEnd }: WindowResult, { fromMs, toMs }: Range): boolean =>
  (fromMs === undefined || BigInt(windowStart) >= fromMs) &&
  (toMs === undefined || BigInt(windowEnd) <= toMs);

function windowText(row: WindowResult, { keyType }: SinkResults, isUnsigned: boolean): string {
  const type = keyType();
  const { accountId, key, windowStart, windowEnd } = row;
  const text = isVariable(type ?? [])
    ? keyValues(type as KeyType, key as Uint8Array)
        .map(valueText)
        .join()
    : String(isUnsigned ? accountId : BigInt.asIntN(64, accountId));
  return `key ${text} [${windowStart}, ${windowEnd})`;
}

function valuesText({ count, sum, min, max, aggregates, lastUpdateTs, overflow }: WindowResult): string {
  const values = aggregates ?? [count, sum, min, max];
  return [...values, lastUpdateTs, overflow].join();
}

function report(
  context: Context,
  found: {
    readonly here: RowsDigest;
    readonly there: RowsDigest;
    readonly differing: number;
    readonly differences: readonly string[];
  },
): number {
  const { here, there, differing, differences } = found;
  const isEqual = here.text === there.text && here.count === there.count;
  const more = differing - differences.length;
  const lines = isEqual
    ? [`equal: ${here.count} windows, digest ${here.text}`]
    : [
        `different: ${differing} windows; digest ${here.text} of ${here.count} here, ${there.text} of ${there.count} in Flink`,
        ...differences.map((line) => `  ${line}`),
        ...(more > 0 ? [`  and ${more} more`] : []),
      ];
  context.print(lines.join('\n'), {
    equal: isEqual,
    windows: here.count,
    digest: here.text,
    flink_windows: there.count,
    flink_digest: there.text,
    differing,
    differences,
  });
  return isEqual ? EXIT.done : EXIT.no;
}
