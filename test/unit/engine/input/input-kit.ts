/** Helpers of the tests of the input: batches of records, a registry in memory, and the rows that
 *  an input decodes. */
import { loadColumnKernels } from '../../../../src/addon/codec.ts';
import { loadJsonKernels } from '../../../../src/addon/json.ts';
import { loadKernels } from '../../../../src/addon/load.ts';
import type { MillraceError } from '../../../../src/core/errors.ts';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS, TIMESTAMP_TYPE } from '../../../../src/core/layout/layouts.gen.ts';
import { RecordBatch, type RecordInput } from '../../../../src/core/layout/record-batch.ts';
import type { Logger } from '../../../../src/core/log.ts';
import type { InputDefinition } from '../../../../src/engine/source/input/definition.ts';
import { TopicInput, type TopicInputParts } from '../../../../src/engine/source/input/topic-input.ts';
import { Payloads } from '../../../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../../../src/formats/schema.ts';
import { writerCodec } from '../../../../src/serde/codec.ts';
import { serdeError } from '../../../../src/serde/errors.ts';
import { realClock } from '../../../wait.ts';

export const SIDES = ['native', 'reference'] as const;
export type Side = (typeof SIDES)[number];

export const avro = (...fields: readonly unknown[]): string =>
  JSON.stringify({ type: 'record', name: 'Payment', fields });

/** Registry in memory: schemas get ids from 1. */
export class MemoryRegistry {
  readonly schemas: Schema[] = [];
  /** Errors that the next requests end with. */
  failures: Error[] = [];
  requests = 0;

  add(format: 'AVRO' | 'PROTOBUF' | 'JSON', text: string): number {
    return this.schemas.push(parseSchema(format, text));
  }

  countHits(): void {}

  async schemasById(ids: ReadonlyMap<number, number>): Promise<ReadonlyMap<number, Schema | MillraceError>> {
    this.requests++;
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
    return new Map(
      [...ids.keys()].map((id) => [
        id,
        this.schemas[id - 1] ?? serdeError('unknown_schema_id', `no schema ${id}`),
      ]),
    );
  }

  /** Framed value of a registered schema. */
  frame(id: number, value: unknown, message?: string): Buffer {
    const codec = writerCodec(this.schemas[id - 1] as Schema, message);
    const payloads = new Payloads(1, 4096);
    codec.encode(value, payloads);
    const into = RecordBatch.create(1, 8192);
    const { bytes, start, length } = payloads;
    loadKernels('reference').writeFrames(bytes, start, length, 1, id, codec.messageIndexes, into);
    return Buffer.from(into.value(0) as Uint8Array);
  }
}

export function recordsOf(records: readonly (RecordInput | Buffer | null)[]): RecordBatch {
  const bytes = records.map(
    (one): RecordInput => (one === null || Buffer.isBuffer(one) ? { value: one } : one),
  );
  const arena = bytes.reduce((sum, { key, value }) => sum + (key?.length ?? 0) + (value?.length ?? 0), 64);
  const batch = RecordBatch.create(Math.max(1, records.length), arena);
  bytes.forEach((record, row) => {
    batch.append({
      partition: 0,
      offset: BigInt(row),
      timestamp: 5000n + BigInt(row),
      timestampType: TIMESTAMP_TYPE.CREATE,
      ...record,
    });
  });
  return batch;
}

export const json = (value: unknown): Buffer =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));

export interface Opened {
  readonly input: TopicInput;
  readonly logged: Array<{ readonly fields: Record<string, unknown>; readonly text: string }>;
}

export function openedInput(
  asked: Omit<InputDefinition, 'format'> & Partial<Pick<InputDefinition, 'format'>>,
  {
    side = 'native',
    registry,
    ...more
  }: { side?: Side; registry?: MemoryRegistry | undefined } & Partial<TopicInputParts> = {},
): Opened {
  const logged: Opened['logged'] = [];
  const note = (fields: Record<string, unknown>, text: string): void => void logged.push({ fields, text });
  const input = new TopicInput({
    asked: { format: 'undecided', ...asked },
    kernels: loadKernels(side),
    columns: loadColumnKernels(side),
    json: loadJsonKernels(side),
    client: registry,
    reader: undefined,
    clock: realClock,
    sleep: async () => {},
    signal: new AbortController().signal,
    log: { debug: note, info: note, warn: note, error: note } as unknown as Logger,
    ...more,
  });
  return { input, logged };
}

const NAMES = new Map(Object.entries(EVENT_STATUS).map(([name, status]) => [status as number, name]));

/** Decodes records and returns a row as `[key, time, value]`, or the name of its status. */
export async function decoded(
  input: Pick<TopicInput, 'decode'>,
  records: RecordBatch,
): Promise<ReadonlyArray<readonly [bigint, bigint, bigint] | string>> {
  const events = EventBatch.create(records.rowCapacity);
  await input.decode(records, events);
  const { status, accountId, value, eventTs } = events.columns;
  return Array.from({ length: events.rowCount }, (_, row) => {
    const cells = [accountId[row], eventTs[row], value[row]] as [bigint, bigint, bigint];
    if (status[row] === EVENT_STATUS.OK) return cells;
    const name = NAMES.get(status[row] as number) as string;
    return name === 'FILTERED' ? `FILTERED ${cells[1]}` : name;
  });
}
