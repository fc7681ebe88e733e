/** Counts of a replay. Tallies of several threads merge into the tally that one thread would have.
 */
import { QUARANTINE_REASONS, type QuarantineReason } from '../../serde/errors.ts';

/** Failed records of a reason that a report lists: those with the lowest partitions and offsets. */
const LISTED_MAX = 10;
/** Most writer schemas that are counted separately. */
const SCHEMAS_MAX = 1000;
/** Most characters of an error text that are kept. */
const ERROR_CHARS_MAX = 500;

export interface ListedFailure {
  readonly partition: number;
  readonly offset: bigint;
  /** Id or guid of the writer schema; 0 if the record names none. */
  readonly schemaId: number | string;
  readonly error: string;
}

interface ReasonTally {
  readonly count: number;
  readonly first: readonly ListedFailure[];
}

/** Tally as plain data. */
export interface TallyData {
  readonly records: number;
  readonly tombstones: number;
  /** Decoded records by the id or guid of their writer schema. */
  readonly bySchema: ReadonlyMap<number | string, number>;
  readonly byReason: ReadonlyMap<QuarantineReason, ReasonTally>;
}

const inOrder = (a: ListedFailure, b: ListedFailure): number =>
  a.partition - b.partition || (a.offset < b.offset ? -1 : a.offset > b.offset ? 1 : 0);

export class ReplayTally {
  records = 0;
  tombstones = 0;
  private readonly bySchema = new Map<number | string, number>();
  private readonly byReason = new Map<QuarantineReason, { count: number; first: ListedFailure[] }>();

  /** Counts decoded records of a writer schema. Schemas beyond SCHEMAS_MAX share the key `other`.
   */
  decoded(schemaId: number | string, count: number): void {
    const key = this.bySchema.has(schemaId) || this.bySchema.size < SCHEMAS_MAX ? schemaId : 'other';
    this.bySchema.set(key, (this.bySchema.get(key) ?? 0) + count);
  }

  failed(reason: QuarantineReason, failure: ListedFailure): void {
    const known = this.byReason.get(reason);
    const first: ListedFailure[] = known?.first ?? [];
    this.byReason.set(reason, { count: (known?.count ?? 0) + 1, first });
    const last = first.at(-1);
    if (first.length >= LISTED_MAX && last !== undefined && inOrder(last, failure) < 0) return;
    first.push({ ...failure, error: failure.error.slice(0, ERROR_CHARS_MAX) });
    first.sort(inOrder);
    if (first.length > LISTED_MAX) first.pop();
  }

  add(other: TallyData): void {
    this.records += other.records;
    this.tombstones += other.tombstones;
    for (const [schemaId, count] of other.bySchema) this.decoded(schemaId, count);
    for (const [reason, { count, first }] of other.byReason) {
      for (const failure of first) this.failed(reason, failure);
      const known = this.byReason.get(reason) as { count: number; first: ListedFailure[] };
      known.count += count - first.length;
    }
  }

  data(): TallyData {
    return {
      records: this.records,
      tombstones: this.tombstones,
      bySchema: this.bySchema,
      byReason: new Map(
        QUARANTINE_REASONS.flatMap((reason) => {
          const one = this.byReason.get(reason);
          return one === undefined ? [] : [[reason, one] as const];
        }),
      ),
    };
  }

  get failures(): number {
    return [...this.byReason.values()].reduce((sum, { count }) => sum + count, 0);
  }
}
