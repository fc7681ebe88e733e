/** `millrace engine export`: prints the sink as CSV. */
import { existsSync } from 'node:fs';
import { coreError, EXIT } from '../../../core/errors.ts';
import { savedJob } from '../../../engine/durability/checkpoint/restore.ts';
import type { Job } from '../../../engine/job.ts';
import { type KeyType, keyValues, partNames, typeText, valueText } from '../../../engine/keys/type.ts';
import { columnText, type ResultColumn, shapeOfKeys } from '../../../engine/output/columns.ts';
import { csvCell } from '../../../engine/output/csv.ts';
import { BINARY256 } from '../../../engine/source/input/binary256.ts';
import { aggregatesIn, hasSignedKeys, keyTypeOf } from '../../../engine/source/input/definition.ts';
import type { WindowResult } from '../../../engine/window/accumulator.ts';
import { openDisk } from '../../../io/disk/node.ts';
import { readSink } from '../sinks.ts';
import type { EngineContext } from './settings.ts';

/** Resolves when the operating system has taken the text for the reader of stdout, so that a long
 *  export does not accumulate in memory. */
const writeOut = (text: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(text, () => resolve()));

/** Job of the checkpoint in -state-dir; undefined for none. */
async function jobInFolder({ settings }: EngineContext): Promise<Job | undefined> {
  const folder = settings['state-dir'];
  // An export from another machine has no folder, and makes none.
  return existsSync(folder) ? savedJob(await openDisk(folder)) : undefined;
}

/** Returns the text of a result's key, and the head of the key's columns. */
async function keyFormat(
  context: EngineContext,
  found: KeyType | undefined,
): Promise<{ readonly head: string; readonly cells: (row: WindowResult) => string }> {
  const asked = context.settings['export-keys'];
  const input = (await jobInFolder(context))?.input ?? BINARY256;
  if (found === undefined) {
    const isSigned = asked === undefined ? hasSignedKeys(input) : asked === 'signed';
    return {
      head: 'account_id',
      cells: ({ accountId }) => String(isSigned ? BigInt.asIntN(64, accountId) : accountId),
    };
  }
  if (asked !== undefined)
    throw coreError('usage', `-export-keys has no meaning for keys of type ${typeText(found)}`, {
      next: 'leave -export-keys out',
    });
  // A topic of results has no names of the parts.
  const own = keyTypeOf(input);
  const isOwn = own?.map(({ kind }) => kind).join() === found.map(({ kind }) => kind).join();
  const names = context.settings.sink.startsWith('kafka:') && isOwn && own !== undefined ? own : found;
  return {
    head: partNames(names).map(csvCell).join(),
    cells: ({ key }) =>
      keyValues(found, key as Uint8Array)
        .map((value) => csvCell(valueText(value)))
        .join(),
  };
}

/** Columns of an export behind those of the key. The count of the default results is unsigned. */
function exportColumns(aggregate: string | undefined, emit: Job['emit']): readonly ResultColumn[] {
  const { columns } = shapeOfKeys([{ name: 'key', kind: 'i64' }], aggregate, emit);
  return columns
    .filter(({ role }) => role !== 'key')
    .map((column) =>
      aggregate === undefined && column.name === 'count' ? { ...column, read: ({ count }) => count } : column,
    );
}

export async function exportSink(context: EngineContext): Promise<number> {
  if (context.settings.json) {
    throw coreError('usage', 'engine export prints CSV, not one JSON document', { next: 'leave -json out' });
  }
  const job = await jobInFolder(context);
  const emit = context.settings.emit === 'updates' ? 'updates' : job?.emit;
  const known = { aggregate: aggregatesIn(context.settings) ?? aggregatesIn(job?.input ?? {}), emit };
  const { pages, keyType, aggregate } = await readSink(context, known);
  const columns = exportColumns(aggregate, emit);
  let cells: ((row: WindowResult) => string) | undefined;
  const begin = async (): Promise<(row: WindowResult) => string> => {
    const format = await keyFormat(context, keyType());
    await writeOut(`${[format.head, ...columns.map(({ name }) => name)].join()}\n`);
    return format.cells;
  };
  for await (const page of pages) {
    cells ??= await begin();
    const keyOf = cells;
    const lines = page.map((row) =>
      [keyOf(row), ...columns.map(({ read }) => csvCell(columnText(read(row))))].join(),
    );
    await writeOut(`${lines.join('\n')}\n`);
  }
  if (cells === undefined) await begin();
  return EXIT.done;
}
