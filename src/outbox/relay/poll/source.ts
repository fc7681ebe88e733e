/** The polling source: reads pending rows of the owned shards in id order and hands them on, while earlier ones are published and
 *  marked.
 *
 *  It remembers how far it has read, but only to save work: what lies between that and the ids that are decided (frontier.ts) is
 *  looked through by every read, and each `rescanMs`, each change of what is owned, and each row that was left sends it back.
 *
 *  Invariants: (1) reads follow one another and each is one snapshot, so a row is never handed on before a row of its key that was
 *  committed earlier; (2) a row that is under way is not read; (3) no transaction is open between two statements.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { CountingPipeline, Covered, Delivered, Source } from '../pipeline/contract.ts';
import type { SourceParts } from '../source.ts';
import { type OutboxRow, type OutboxTable, readPending } from '../store.ts';
import { SafeIdHorizon } from './safe-id-horizon.ts';

export interface PollSettings {
  /** Rows a read. */
  readonly rowsMax: number;
  /** Payload bytes a read; one row above it is read alone. */
  readonly bytesMax: number;
  /** Between two reads that nobody asked for. */
  readonly intervalMs: number;
  /** Between two reads at most this often. */
  readonly spacingMs: number;
  readonly rescanMs: number;
  readonly stragglerAfterMs: number;
  readonly backoffMaxMs: number;
}

/** Between two looks at who writes, which reads the table of locks. */
const LOOK_MS = 50;
/** First wait before what was left is tried again; doubles while it goes on. */
const AGAIN_MS = 100;
/** Between two reads while rows come. */
const BUSY_MS = 10;
const START = -1n;
/** Above every id. */
const END = (1n << 63n) - 1n;

export type PollParts = SourceParts & { readonly pipeline: CountingPipeline };

export class PollSource implements Source {
  private readonly parts: PollParts;
  private readonly table: OutboxTable;
  private readonly settings: PollSettings;
  private readonly frontier: SafeIdHorizon;
  private readonly counters;
  /** Ids of reads of which not everything is marked or left. */
  private readonly out = new Set<readonly bigint[]>();
  private cursor = START;
  private readTo = START;
  private seenGeneration = -1;
  private lookedMs = Number.NEGATIVE_INFINITY;
  private rescannedMs = 0;
  private againAtMs = Number.POSITIVE_INFINITY;
  private againFrom = END;
  private againCount = 0;
  /** Since the scan was sent back it has not reached the end. */
  private goingBack = false;
  private lastTrouble: string | undefined = 'nothing has been read yet';
  private broken: { readonly thrown: unknown } | undefined;

  constructor(parts: PollParts, table: OutboxTable, settings: PollSettings) {
    this.parts = parts;
    this.table = table;
    this.settings = settings;
    this.frontier = new SafeIdHorizon(parts.pool, table, parts.clock, settings.stragglerAfterMs);
    const { metrics } = parts;
    this.counters = {
      reads: metrics.counter('relay_reads_total', 'Reads of pending rows.'),
      readSeconds: metrics.histogram('relay_read_seconds', 'Time of a read of pending rows.'),
      rescans: metrics.counter('relay_rescans_total', 'Scans that began again at the lowest id.'),
      errors: metrics.counter('relay_cycle_errors_total', 'Reads that ended with an error.'),
      again: metrics.counter('relay_left_total', 'Rows that were left and are read again.'),
      stragglers: metrics.gauge(
        'relay_stragglers',
        'Long transactions whose ids are looked for beside the scan.',
      ),
      decided: metrics.gauge(
        'relay_decided_id',
        'Up to this id every outbox row is committed or will never come.',
      ),
    };
  }

  trouble(): string | undefined {
    return this.lastTrouble;
  }

  async run(): Promise<void> {
    const { drain, log, pipeline, sleep } = this.parts;
    let failures = 0;
    while (!drain.aborted) {
      try {
        const more = await this.cycle();
        if (failures > 0) log.info({ failures }, 'relay works again');
        failures = 0;
        this.lastTrouble = undefined;
        if (more === 'end') break;
      } catch (thrown) {
        if (this.broken !== undefined) throw this.broken.thrown;
        const error = findMillraceError(thrown);
        if (error === undefined || (error.kind !== 'unavailable' && error.code !== 'sql_failed'))
          throw thrown;
        failures++;
        this.lastTrouble = error.message;
        this.counters.errors.add();
        log.warn(
          { code: error.code, error: error.message, failures },
          'relay cycle failed; the rows stay pending',
        );
        await sleep(
          Math.min(this.settings.backoffMaxMs, this.settings.intervalMs * 2 ** Math.min(failures, 16)),
        );
      }
    }
    await pipeline.idle();
    if (this.broken !== undefined) throw this.broken.thrown;
  }

  /** One read, and the wait behind it. */
  private async cycle(): Promise<'more' | 'end'> {
    const { pipeline, ownership, sleepUntilWoken, clock, exitWhenDrained } = this.parts;
    const { intervalMs, spacingMs, rescanMs } = this.settings;
    await pipeline.room();
    if (this.broken !== undefined) throw this.broken.thrown;
    const owned = ownership.owned();
    const generation = ownership.generation();
    if (owned.length === 0) {
      this.seenGeneration = -1;
      await sleepUntilWoken(Math.min(intervalMs, 50));
      return 'more';
    }
    const nowMs = clock.monotonicMs();
    if (generation !== this.seenGeneration || nowMs - this.rescannedMs >= rescanMs) {
      this.seenGeneration = generation;
      this.rescannedMs = nowMs;
      this.goBack(START);
      this.counters.rescans.add();
    }
    if (nowMs >= this.againAtMs) this.goBack(this.againFrom - 1n);
    if (nowMs - this.lookedMs >= LOOK_MS && this.frontier.wants(this.readTo)) {
      this.lookedMs = nowMs;
      await this.frontier.look();
    }
    const { rows, full } = await this.read(owned);
    if (full) return 'more';
    if (exitWhenDrained && rows === 0 && (await this.isDrained())) return 'end';
    const startMs = clock.monotonicMs();
    // While rows come, or others may still become visible, the next look is near.
    const busy = rows > 0 || this.frontier.wants(this.readTo);
    await sleepUntilWoken(busy ? Math.max(spacingMs, Math.min(intervalMs, BUSY_MS)) : intervalMs);
    const restMs = spacingMs - (clock.monotonicMs() - startMs);
    if (restMs > 0) await this.parts.sleep(restMs);
    return 'more';
  }

  private async read(owned: readonly number[]): Promise<{ readonly rows: number; readonly full: boolean }> {
    const { pool, pipeline, ownership, clock } = this.parts;
    const { rowsMax, bytesMax } = this.settings;
    const { frontier, cursor } = this;
    const mark = frontier.mark();
    const stragglers = frontier.stragglers();
    const { decided } = frontier;
    let low = decided < cursor ? decided : cursor;
    for (const one of stragglers) if (one.from <= low) low = one.from - 1n;
    const startMs = clock.monotonicMs();
    const asOf = pipeline.leftSoFar();
    const { rows: found, cut } = await readPending(pool, this.table, {
      cursor,
      decided,
      except: low >= this.readTo ? [] : this.underWayAbove(low),
      stragglers,
      filter: { shards: ownership.shards, owned },
      limit: rowsMax,
      bytesMax,
    });
    this.counters.reads.add();
    this.counters.readSeconds.observe((clock.monotonicMs() - startMs) / 1000);
    const full = cut || found.length === rowsMax;
    const rows = distinct(found);
    const last = rows[rows.length - 1]?.id;
    // A full read has come as far as its last row; what it found below the cursor may not be all.
    const reached = full ? (last as bigint) : END;
    if (!full || (last as bigint) > cursor) {
      frontier.covered(mark);
      if (last !== undefined && last > this.cursor) this.cursor = last;
    }
    if (!full && this.cursor < this.readTo) this.cursor = this.readTo;
    if (this.cursor > this.readTo) this.readTo = this.cursor;
    this.counters.stragglers.set(stragglers.length);
    this.counters.decided.set(Number(frontier.decided));
    if (rows.length > 0 || this.goingBack) this.handOn(rows, { from: cursor + 1n, to: reached, asOf });
    return { rows: rows.length, full };
  }

  private handOn(rows: readonly OutboxRow[], scanned: Covered): void {
    const { pipeline } = this.parts;
    const ids = rows.map(({ id }) => id);
    this.out.add(ids);
    // Only a scan that went back covers what was left; one that goes on has all above where it began.
    const covered = this.goingBack ? scanned : undefined;
    if (scanned.to === END) this.goingBack = false;
    pipeline.deliver(rows, covered).then(
      (delivered) => this.settled(ids, delivered),
      (thrown: unknown) => {
        this.broken ??= { thrown };
      },
    );
  }

  private settled(ids: readonly bigint[], delivered: Delivered): void {
    const { clock } = this.parts;
    if (delivered.left.length > 0) {
      this.counters.again.add(delivered.left.length);
      for (const id of delivered.left) if (id < this.againFrom) this.againFrom = id;
      if (this.againAtMs === Number.POSITIVE_INFINITY) {
        const waitMs = Math.min(this.settings.backoffMaxMs, AGAIN_MS * 2 ** Math.min(this.againCount++, 16));
        this.againAtMs = clock.monotonicMs() + waitMs;
      }
    } else if (delivered.published > 0 && this.againAtMs === Number.POSITIVE_INFINITY) this.againCount = 0;
    const done = (): void => {
      this.out.delete(ids);
    };
    delivered.marked.then(done, done);
  }

  private underWayAbove(low: bigint): bigint[] {
    const { pipeline } = this.parts;
    const found: bigint[] = [];
    for (const ids of this.out) for (const id of ids) if (id > low && pipeline.isUnderWay(id)) found.push(id);
    return found;
  }

  private goBack(to: bigint): void {
    if (to < this.cursor) this.cursor = to;
    this.goingBack = true;
    if (to < this.againFrom) {
      this.againFrom = END;
      this.againAtMs = Number.POSITIVE_INFINITY;
    }
  }

  /** Nothing is pending, nothing is under way, and no transaction may still bring a row. */
  private async isDrained(): Promise<boolean> {
    const { pipeline } = this.parts;
    if (this.againAtMs !== Number.POSITIVE_INFINITY) return false;
    await pipeline.idle();
    if (this.againAtMs !== Number.POSITIVE_INFINITY) return false;
    const { rows } = await this.parts.pool.query<{ some: boolean }>(
      `SELECT EXISTS (SELECT FROM ${this.table.name} WHERE published_at IS NULL) AS some`,
    );
    return rows[0]?.some === false;
  }
}

/** Ascending rows without repeats: the parts of a read may overlap. */
function distinct(rows: readonly OutboxRow[]): readonly OutboxRow[] {
  for (let i = 1; i < rows.length; i++)
    if (rows[i]?.id === rows[i - 1]?.id) return rows.filter((row, at) => row.id !== rows[at - 1]?.id);
  return rows;
}
