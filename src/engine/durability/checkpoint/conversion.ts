/** Converts a restored state to rows of another form: to that of a job with more aggregates.
 *
 *  The rows leave the state and enter one of the other form, in memory or as pieces on disk. No
 *  record of the changelog describes this: until the next checkpoint is durable, a restart finds
 *  the state as it was and converts it again. */
import type { RowRun } from '../../../addon/window-surface.ts';
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';
import { portionRows } from '../../../core/layout/row-form.ts';
import type { RowMapping } from '../../aggregate/row-mapping.ts';
import type { PieceStore, SpilledRun } from '../spill/pieces.ts';
import { Ledger } from './ledger.ts';
import type { LiveState } from './live.ts';

/** Rows that are converted in one turn of the event loop. */
const PAGE_ROWS = 4096;

/** Stores of a state on disk. */
interface PieceStores {
  readonly from: PieceStore;
  readonly to: PieceStore;
  readonly ledger: Ledger;
  /** Pieces that the kept checkpoints name. */
  readonly named: Iterable<number>;
}

export interface ConversionParts {
  /** Restored state, which has no rows afterwards; the caller closes it. */
  readonly state: LiveState;
  readonly mapping: RowMapping;
  /** Present for a state on disk. */
  readonly pieces?: PieceStores | undefined;
  /** Opens the empty state of the other form. @param greatest greatest time of an event in a row;
   *  -Infinity: there are no rows */
  readonly open: (greatest: number) => LiveState;
  readonly turn: () => Promise<void>;
}

/** Converts the state. Returns the ledger of a state on disk, whose rows are all in pieces. */
export async function convertState(parts: ConversionParts): Promise<Ledger | undefined> {
  const { state, pieces } = parts;
  const taken: { readonly part: number; readonly run: RowRun }[] = [];
  for (const part of [...state.parts()]) taken.push({ part, run: await state.detach(part) });
  const conversion = new Conversion(parts);
  if (pieces === undefined) {
    for (const { run } of taken) await conversion.visit(run);
    const into = parts.open(conversion.greatest);
    for (const { part, run } of taken) await conversion.load(run, part, into);
    return undefined;
  }
  // An interrupted conversion may have left pieces under the next ids.
  await pieces.to.dropOthers([...pieces.named, ...pieces.ledger.pieces.map(({ id }) => id)]);
  const written: SpilledRun[] = [];
  let { lastId } = pieces.ledger;
  for (const entry of pieces.ledger.pieces)
    written.push(await conversion.rewrite(pieces, entry.part, ++lastId, await pieces.from.rows(entry)));
  for (const { part, run } of taken)
    if (run.rowCount > 0) written.push(await conversion.rewrite(pieces, part, ++lastId, runRows(run)));
  const into = parts.open(conversion.greatest);
  for (const piece of written) into.adopt(piece);
  const entries = written.map(({ id, part, rows, crc32 }) => ({ id, part, rows, crc32 }));
  return new Ledger(entries, lastId);
}

interface Pages {
  next(into: Uint8Array): number | Promise<number>;
  close(): void;
}

function runRows(run: RowRun): Pages {
  let at = 0;
  return {
    next: (into) => {
      const rows = at < run.rowCount ? run.read(at, into) : 0;
      at += rows;
      return rows;
    },
    close: () => run.close(),
  };
}

class Conversion {
  greatest = Number.NEGATIVE_INFINITY;
  private readonly mapping: RowMapping;
  private readonly turn: () => Promise<void>;
  private readonly page: Uint8Array;
  private readonly mapped: Uint8Array;

  constructor({ mapping, turn }: ConversionParts) {
    this.mapping = mapping;
    this.turn = turn;
    const rows = portionRows(PAGE_ROWS, Math.max(mapping.from.bytes, mapping.to.bytes));
    this.page = new Uint8Array(rows * mapping.from.bytes);
    this.mapped = new Uint8Array(rows * mapping.to.bytes);
  }

  /** Finds the greatest time of the rows. */
  async visit(run: RowRun): Promise<void> {
    for (let at = 0; at < run.rowCount; ) {
      const rows = run.read(at, this.page);
      this.note(rows);
      at += rows;
      await this.turn();
    }
  }

  async load(run: RowRun, part: number, into: LiveState): Promise<void> {
    for (let at = 0; at < run.rowCount; ) {
      const rows = run.read(at, this.page);
      this.mapping.map(this.page, rows, this.mapped);
      into.load(part, this.mapped, rows);
      at += rows;
      await this.turn();
    }
    run.close();
  }

  /** Writes rows as a piece of the other form. */
  async rewrite({ to }: PieceStores, part: number, id: number, pages: Pages): Promise<SpilledRun> {
    const writer = to.writer(id, part);
    try {
      for (let rows = await pages.next(this.page); rows > 0; rows = await pages.next(this.page)) {
        this.note(rows);
        this.mapping.map(this.page, rows, this.mapped);
        await writer.append(this.mapped.subarray(0, rows * this.mapping.to.bytes));
        await this.turn();
      }
      return await writer.finish();
    } finally {
      writer.close();
      pages.close();
    }
  }

  private note(rows: number): void {
    const { bytes } = this.mapping.from;
    const view = new DataView(this.page.buffer);
    for (let row = 0; row < rows; row++) {
      const time = Number(view.getBigInt64(row * bytes + ACCUMULATOR.LAST_UPDATE_TS, true));
      if (time > this.greatest) this.greatest = time;
    }
  }
}
