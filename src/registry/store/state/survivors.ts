/** Log compaction: decides which records of a log are still needed. They are the last value of each
 *  key, and the records that delete a range of versions while a version before them is left.
 *
 *  Invariant: replaying the kept records in order leaves the same state as replaying all records,
 *  except for facts that only removed records proved. A caller adds records for those
 *  (`LogSink.summary`). A DELETE_SUBJECT or CLEAR_SUBJECT affects the records before it, so a later
 *  one of the same key does not replace it.
 */
import type { LogRecord } from '../log.ts';
import { contextOf, parseSubject } from './names.ts';
import { decodeRecord } from './records.ts';

/** Number of keys that are decoded before `pause` is called. */
const KEYS_A_SLICE = 2_000;

/** Prefixes of the keys of our own records that delete no range: a fast test for them. */
const SINGLE = /^\{"keytype":"(SCHEMA|CONFIG|MODE|CONTEXT|NOOP)"/;

interface RangeDeletion {
  readonly ordinal: number;
  readonly scope: string | null;
}

export class Survivors {
  private count = 0;
  private readonly last = new Map<string, number>();
  private readonly deletions: RangeDeletion[] = [];

  /** Adds the next record.
   *  @returns the ordinal of the record, from 0 in the order of the calls, and that of the record
   *    that it replaces or removes
   */
  add(record: LogRecord): { readonly ordinal: number; readonly replaces: number | undefined } {
    const ordinal = this.count++;
    const key = Buffer.from(record.key.buffer, record.key.byteOffset, record.key.length).toString('latin1');
    if (!SINGLE.test(key)) {
      const decoded = decodeRecord(record);
      const read = 'record' in decoded ? decoded.record : undefined;
      if (read?.kind === 'deleteSubject' || read?.kind === 'clearSubject') {
        if (read.value !== null) this.deletions.push({ ordinal, scope: read.subject });
        return { ordinal, replaces: undefined };
      }
    }
    const replaces = this.last.get(key);
    if (record.value === null) this.last.delete(key);
    else this.last.set(key, ordinal);
    return { ordinal, replaces };
  }

  /** Returns one byte for each record: 1 where the record is kept.
   *  @param pause lets other work of the process run
   */
  async kept(pause: () => Promise<void>): Promise<Uint8Array> {
    const kept = new Uint8Array(this.count);
    for (const ordinal of this.last.values()) kept[ordinal] = 1;
    if (this.deletions.length === 0) return kept;
    const first = await this.firstVersions(pause);
    for (const { ordinal, scope } of this.deletions)
      if ((first.get(placeOf(scope)) ?? Number.POSITIVE_INFINITY) < ordinal) kept[ordinal] = 1;
    return kept;
  }

  /** Ordinal of the first kept version: of each subject, of each context, and of all. */
  private async firstVersions(pause: () => Promise<void>): Promise<ReadonlyMap<string, number>> {
    const first = new Map<string, number>();
    let decodedKeys = 0;
    for (const [key, ordinal] of this.last) {
      if (++decodedKeys % KEYS_A_SLICE === 0) await pause();
      // A null value decodes without its content; the key alone names the subject.
      const decoded = decodeRecord({ key: Buffer.from(key, 'latin1'), value: null });
      if (!('record' in decoded) || decoded.record.kind !== 'schema') continue;
      const { subject } = decoded.record;
      for (const place of [subject, inContext(contextOf(subject)), placeOf(null)])
        if (ordinal < (first.get(place) ?? Number.POSITIVE_INFINITY)) first.set(place, ordinal);
    }
    return first;
  }
}

/** Key of a context in `firstVersions`. Subjects never contain NUL, so no subject has this key. */
const inContext = (context: string): string => `\0${context}`;

/** Key of a deletion's scope in `firstVersions`: a subject, a context, or everything. */
function placeOf(scope: string | null): string {
  if (scope === null) return '\0';
  const { context, name } = parseSubject(scope);
  return name === '' ? inContext(context) : scope;
}
