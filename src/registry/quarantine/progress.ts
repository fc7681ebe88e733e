/** Progress of redrives: the ids of the records that were redriven, by output, in a compacted topic
 *  beside the quarantine.
 *
 *  A redrive into a topic writes the ids in the transaction of its records, so a record is redriven
 *  exactly if its id is in the topic. A single offset cannot be the progress: a redrive with a
 *  filter skips records that a later redrive must find.
 *
 *  Record of the topic: key `OUTPUT ID`, value `{"reason":"…","at":MS}`. */
import type { RecordInput } from '../../core/layout/record-batch.ts';
import { registryError } from '../errors.ts';
import type { Quarantined } from './record.ts';
import { Scan, type ScanOptions } from './scan.ts';

/** Greatest number of ids that one run keeps in memory, about 100 bytes each. */
const PROGRESS_IDS_MAX = 10_000_000;

export const progressTopicOf = (quarantineTopic: string): string => `${quarantineTopic}.redriven`;

/** Settings of a new progress topic. An id must not expire before its quarantined record. */
export const PROGRESS_CONFIG: Readonly<Record<string, string>> = { 'cleanup.policy': 'compact' };

/** Set of record ids with a limit. */
export class RecordIds {
  private readonly ids = new Set<string>();

  has(id: string): boolean {
    return this.ids.has(id);
  }

  /** @throws too_many_redriven */
  add(id: string): void {
    this.ids.add(id);
    if (this.ids.size > PROGRESS_IDS_MAX)
      throw registryError('too_many_redriven', `more than ${PROGRESS_IDS_MAX} records were redriven`, {
        next: 'when the quarantine has no record that you still need, delete the quarantine topic and its progress topic',
      });
  }
}

/** Record that notes a redriven record. */
export function progressRecord(output: string, { id, reason }: Quarantined, nowMs: number): RecordInput {
  return {
    partition: 0,
    key: Buffer.from(`${output} ${id}`, 'utf8'),
    value: Buffer.from(JSON.stringify({ reason, at: nowMs }), 'utf8'),
  };
}

/** Output and id of a key; undefined for another key. */
function parseKey(key: Uint8Array | null): readonly [output: string, id: string] | undefined {
  if (key === null) return undefined;
  const bytes = Buffer.from(key.buffer, key.byteOffset, key.byteLength);
  const space = bytes.indexOf(0x20);
  if (space <= 0) return undefined;
  // The id is decoded alone: a slice of a longer text would keep that text in memory.
  return [bytes.toString('utf8', 0, space), bytes.toString('utf8', space + 1)];
}

export class RedriveProgress {
  private readonly scan: ScanOptions;
  private readonly topic: string;
  private position = 0n;

  constructor(scan: ScanOptions, topic: string) {
    this.scan = scan;
    this.topic = topic;
  }

  /** Passes the ids that were noted since the last call.
   *  @param to `written` waits for transactions that are open: call it as the only writer
   *  @throws timeout, broker_unavailable */
  async read(to: 'stable' | 'written', each: (output: string, id: string) => void): Promise<void> {
    const scan = await Scan.open(this.scan, this.topic, [0], { from: new Map([[0, this.position]]), to });
    try {
      await scan.run(async (records) => {
        for (let row = 0; row < records.rowCount; row++) {
          const entry = parseKey(records.key(row));
          if (entry !== undefined && records.value(row) !== null) each(...entry);
        }
        return true;
      });
      this.position = scan.positions.get(0) ?? this.position;
    } finally {
      await scan.close();
    }
  }
}
