/** Finds pending rows that their source should long have brought, and brings them: the row is the truth, whatever happened to
 *  the source's own position. In health it finds nothing. */
import { findMillraceError } from '../../core/errors.ts';
import type { SourceParts } from './source.ts';
import { type OutboxRow, type OutboxTable, readOverdue, readPending, stillPending } from './store.ts';

export interface SweepSettings {
  /** Age, by the database's clock, from which a pending row is overdue. */
  readonly afterMs: number;
  readonly everyMs: number;
  /** Rows a page. */
  readonly rowsMax: number;
  /** Whether the source should have brought this row by now; absent: age alone decides. */
  readonly isDue?: (row: OutboxRow) => boolean;
}

const END = (1n << 63n) - 1n;

type Parts = Pick<SourceParts, 'pool' | 'pipeline' | 'ownership' | 'metrics' | 'log' | 'sleep' | 'drain'>;

export class Sweeper {
  private readonly parts: Parts;
  private readonly table: OutboxTable;
  private readonly settings: SweepSettings;
  private readonly found;
  private readonly errors;

  constructor(parts: Parts, table: OutboxTable, settings: SweepSettings) {
    this.parts = parts;
    this.table = table;
    this.settings = settings;
    this.found = parts.metrics.counter(
      'sweeper_found_total',
      'Pending rows that only the sweep found; 0 in health.',
    );
    this.errors = parts.metrics.counter('sweeper_errors_total', 'Sweeps that ended with an error.');
  }

  /** Sweeps every `everyMs` until the drain. */
  async run(): Promise<void> {
    const { drain, sleep, log } = this.parts;
    while (!drain.aborted) {
      await sleep(this.settings.everyMs);
      if (drain.aborted) return;
      try {
        await this.sweep();
      } catch (thrown) {
        const error = findMillraceError(thrown);
        if (error === undefined) throw thrown;
        this.errors.add();
        log.warn({ code: error.code, error: error.message }, 'the sweep failed');
      }
    }
  }

  /** One sweep over all owned shards; returns how many rows it brought. */
  async sweep(): Promise<number> {
    const { pool, pipeline, ownership, log, drain } = this.parts;
    const { afterMs, rowsMax, isDue } = this.settings;
    let above = -1n;
    let total = 0;
    while (!drain.aborted) {
      const filter = { shards: ownership.shards, owned: ownership.owned() };
      if (filter.owned.length === 0) return total;
      const overdue = await readOverdue(pool, this.table, {
        above,
        olderThanMs: afterMs,
        filter,
        limit: rowsMax,
      });
      const last = overdue[overdue.length - 1]?.id;
      if (last === undefined) return total;
      const found = await this.notUnderWay(overdue.filter((row) => isDue?.(row) ?? true));
      if (found.length > 0) {
        total += found.length;
        this.found.add(found.length);
        log.warn(
          { rows: found.length, lowest: found[0]?.id.toString() },
          'pending rows that their source did not bring; the sweep brings them',
        );
        await this.bring(found[0]?.id as bigint, found[found.length - 1]?.id as bigint, filter);
      }
      if (overdue.length < rowsMax) return total;
      above = last;
      await pipeline.room();
    }
    return total;
  }

  /** Everything pending in the range goes out with what is overdue, so that no key's later rows pass its earlier ones. */
  private async bring(
    from: bigint,
    to: bigint,
    filter: { readonly shards: number; readonly owned: readonly number[] },
  ): Promise<void> {
    const { pool, pipeline } = this.parts;
    const { rowsMax } = this.settings;
    let cursor = from - 1n;
    while (cursor < to) {
      const page = await readPending(pool, this.table, {
        cursor,
        decided: END,
        except: [],
        stragglers: [],
        filter,
        limit: rowsMax,
      });
      const full = page.length === rowsMax;
      const reached = full ? (page[page.length - 1]?.id as bigint) : to;
      const end = reached < to ? reached : to;
      const rows = await this.notUnderWay(page.filter(({ id }) => id <= end));
      await pipeline.deliver(rows, { from: cursor + 1n, to: end });
      cursor = end;
    }
  }

  /** Rows that nobody has in hand: asked once more after they were seen, so that none is taken that was marked meanwhile. */
  private async notUnderWay(rows: readonly OutboxRow[]): Promise<readonly OutboxRow[]> {
    const { pool, pipeline } = this.parts;
    const candidates = rows.filter((row) => !pipeline.isUnderWay(row.id));
    if (candidates.length === 0) return [];
    const pending = await stillPending(
      pool,
      this.table,
      candidates.map(({ id }) => id),
    );
    return candidates.filter((row) => pending.has(row.id) && !pipeline.isUnderWay(row.id));
  }
}
