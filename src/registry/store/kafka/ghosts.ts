/** Ghosts: rows of transactions that were not committed. Our own readers do not see them. The
 *  existing registries read uncommitted rows, so they use a ghost as the latest value of its key. A
 *  new leader overwrites each ghost with a committed row, in the transaction that announces it.
 */
import type { Clock } from '../../../core/clock.ts';
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import {
  type BatchConsumer,
  type BrokerDriver,
  type BrokerOptions,
  OFFSET_BEGINNING,
} from '../../../io/kafka/port.ts';
import { registryError } from '../../errors.ts';
import type { LogRecord } from '../log.ts';

const ROWS = 4096;
const ARENA_BYTES = 8 << 20;
const ARENA_BYTES_MAX = 256 << 20;
const WAIT_MS = 100;
const ANSWER_MS = 10_000;
const STALL_MS = 30_000;
const OVERSIZE = -10_000;

export interface GhostSearch {
  readonly driver: BrokerDriver;
  readonly broker: BrokerOptions;
  readonly topic: string;
  readonly clock: Clock;
  /** Offset below which no ghost is stored. */
  readonly clean: bigint;
}

type OnRow = (key: Uint8Array, value: Uint8Array | null, offset: bigint) => void;
type Isolation = 'committed' | 'uncommitted';

async function opened<T>(
  { driver, broker }: GhostSearch,
  isolation: Isolation,
  use: (consumer: BatchConsumer) => Promise<T>,
): Promise<T> {
  const consumer = await driver.consumer({
    ...broker,
    isolation,
    partitionEof: true,
    properties: { 'fetch.wait.max.ms': 10, 'queued.max.messages.kbytes': 16_384, ...broker.properties },
  });
  try {
    return await use(consumer);
  } finally {
    await consumer.close();
  }
}

/** Passes every row of [from, end) to `onRow`. */
async function scan(
  consumer: BatchConsumer,
  { topic, clock }: GhostSearch,
  from: bigint,
  end: bigint,
  onRow: OnRow,
): Promise<void> {
  let batch = RecordBatch.create(ROWS, ARENA_BYTES);
  await consumer.assign([{ topic, partition: 0, offset: from }]);
  let at = from;
  let progressed = clock.monotonicMs();
  while (at < end) {
    const { rowCount, ends, events } = await consumer.consume(batch, WAIT_MS);
    const before = at;
    for (let row = 0; row < rowCount; row++) {
      const offset = batch.columns.offset[row] as bigint;
      at = offset + 1n;
      const key = batch.key(row);
      if (key !== null && offset < end) onRow(key, batch.value(row), offset);
    }
    for (const reached of ends) if (reached.offset > at) at = reached.offset;
    if (events.some(({ code }) => code === OVERSIZE) && batch.arenaCapacity * 4 <= ARENA_BYTES_MAX)
      batch = RecordBatch.create(ROWS, batch.arenaCapacity * 4);
    if (at !== before) progressed = clock.monotonicMs();
    else if (clock.monotonicMs() - progressed > STALL_MS)
      throw registryError('store_timeout', `${topic} cannot be read to its end`, {
        next: 'check that the broker runs',
      });
  }
}

const nameOf = (key: Uint8Array): string => Buffer.from(key).toString('latin1');

/** Finds the rows to write so that no ghost is the latest row of its key; `end` is the offset that
 *  the search reached. No process may write meanwhile. @throws unreachable, store_timeout
 */
export function rowsAgainstGhosts(search: GhostSearch): Promise<{ rows: LogRecord[]; end: bigint }> {
  const { topic, clean } = search;
  return opened(search, 'uncommitted', async (all) => {
    const { low, high } = await all.watermarkOffsets({ topic, partition: 0 }, ANSWER_MS);
    const from = clean > low ? clean : low;
    if (from >= high) return { rows: [], end: high };
    const latest = new Map<string, bigint>();
    await scan(all, search, from, high, (key, _, offset) => latest.set(nameOf(key), offset));
    return opened(search, 'committed', async (kept) => {
      const values = new Map<string, Uint8Array | null>();
      await scan(kept, search, from, high, (key, value, offset) => {
        const name = nameOf(key);
        if (latest.get(name) === offset) latest.delete(name);
        else if (latest.has(name)) values.set(name, value?.slice() ?? null);
      });
      // The remaining rows were never committed. The value that a ghost hides may be before the
      // searched range.
      const hidden = [...latest.keys()].filter((name) => !values.has(name));
      if (hidden.length > 0 && from > low) {
        const wanted = new Set(hidden);
        await scan(kept, search, OFFSET_BEGINNING, from, (key, value) => {
          const name = nameOf(key);
          if (wanted.has(name)) values.set(name, value?.slice() ?? null);
        });
      }
      const rows = [...latest.keys()].map((name) => ({
        key: Buffer.from(name, 'latin1'),
        value: values.get(name) ?? null,
      }));
      return { rows, end: high };
    });
  });
}
