/** Rows of the elements that an input splits and decodes. */
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import type { TopicInput } from '../../../../src/engine/source/input/topic-input.ts';
import { LIST_ELEMENTS_MAX, ListRows } from '../../../../src/engine/source/list/rows.ts';

const NAMES = new Map(Object.entries(EVENT_STATUS).map(([name, status]) => [status as number, name]));

/** A batch of elements, as text: `offset.element: key time value`, or the name of the status. */
export interface Decoded {
  readonly rows: readonly string[];
  /** Descriptions of the invalid rows. */
  readonly faults: readonly string[];
}

/** Splits and decodes all records. Returns one entry for each batch of elements. */
export async function decodedLists(
  input: TopicInput,
  records: RecordBatch,
  rowCapacity: number = LIST_ELEMENTS_MAX,
): Promise<readonly Decoded[]> {
  const lists = ListRows.create(rowCapacity, records.arenaCapacity);
  const events = EventBatch.create(rowCapacity);
  const batches: Decoded[] = [];
  for (let from = 0; from < records.rowCount; ) {
    const next = (await input.split(records, from, lists)) as number;
    await input.decode(lists.records, events);
    batches.push(batchText(input, lists, events));
    from = next;
  }
  return batches;
}

function batchText(input: TopicInput, lists: ListRows, events: EventBatch): Decoded {
  const { status, accountId, eventTs, value } = events.columns;
  const faults: string[] = [];
  const rows = Array.from({ length: events.rowCount }, (_, row) => {
    const place = `${lists.records.columns.offset[row]}.${lists.element[row]}`;
    const name = NAMES.get(status[row] as number) as string;
    if (name === 'OK') return `${place}: ${accountId[row]} ${eventTs[row]} ${value[row]}`;
    const isFault = name !== 'FILTERED' && name !== 'NO_EVENT';
    if (isFault) faults.push(input.describe(lists.records, row) ?? '');
    return `${place}: ${name}`;
  });
  return { rows, faults };
}

export async function rowsOf(input: TopicInput, records: RecordBatch): Promise<readonly string[]> {
  return (await decodedLists(input, records)).flatMap(({ rows }) => rows);
}
