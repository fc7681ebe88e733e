/** Spiller: moves state from memory to disk beside the loop, one table at a time, before the memory
 *  budget is exhausted.
 *
 *  The loop calls `advance` between two batches, which detaches a table that is due, and waits for
 *  `room` before the next read. A table is due when memory is short. The oldest table is also due
 *  when it needs a changelog that is longer than the state in memory. Rows are copied in pages;
 *  sorting and writing run off the main thread. Invariants: (1) one table is detached at a time;
 *  (2) its rows count as memory until their piece is durable.
 */
import type { RowRun } from '../../../addon/window-surface.ts';
import type { Stages } from '../../stages.ts';
import type { HeldRun } from '../../state/run.ts';
import type { StepHook } from '../checkpoint/steps.ts';
import type { PieceStore } from './pieces.ts';
import type { Spillable, SpillLog } from './port.ts';

/** Share of the state's memory for live tables; above it, the next table is moved to disk. */
const TABLES_SHARE = 1 / 4;
/** Share of the state's memory for all rows; above it, the next table is moved to disk. */
const SPILL_SHARE = 1 / 2;
/** Free bytes for each byte of a table: a growing table exists twice for a while, the second copy
 *  doubled. */
const GROWTH = 1;
/** Poll interval of `room`: a firing that releases its rows sends no signal. */
const POLL_MS = 5;

export interface SpillerParts {
  readonly state: Spillable;
  readonly log: SpillLog;
  readonly pieces: PieceStore;
  /** Memory for tables, runs and the dictionary of keys, in bytes. */
  readonly bytesMax: number;
  /** Returns the bytes that the dictionary uses. */
  readonly keyBytes?: () => number;
  readonly hook: StepHook;
  readonly sleep: (ms: number) => Promise<void>;
  readonly stages: Pick<Stages, 'during'>;
  /** Called when a piece is durable, with the length of its rows in bytes. */
  readonly onSpilled: (bytes: number) => void;
}

export class Spiller {
  private readonly parts: SpillerParts;
  private working: Promise<void> | undefined;
  private failure: unknown;
  private isStopped = false;

  constructor(parts: SpillerParts) {
    this.parts = parts;
  }

  /** True while a table is detached. */
  get isBusy(): boolean {
    return this.working !== undefined;
  }

  /** Detaches a table that is due. Call it between two batches. @throws the error of the store or
   *  the log */
  advance(): void {
    this.rethrow();
    if (this.working !== undefined || this.isStopped) return;
    const { state, log, pieces } = this.parts;
    if (this.isShort()) state.trim();
    const isShort = this.isShort();
    const overdue = (): readonly number[] => log.overdue(state.memory().rows * pieces.rowBytes);
    this.detachFirst(isShort ? state.spillOrder() : [...state.mustSpill, ...overdue()]);
  }

  /** Moves all tables to disk. No batch may arrive meanwhile. @throws as advance */
  async moveAll(): Promise<void> {
    const { state } = this.parts;
    do await this.settled();
    while (this.detachFirst(state.spillOrder()));
  }

  /** Settles when there is memory for another batch, or nothing that could free some, and no sweep
   *  lags too far; or when the signal aborts.
   *  @param isHeld true while firings hold rows that they will release; an error from it ends the
   *  wait
   *  @throws as advance
   */
  async room(signal: AbortSignal, isHeld: () => boolean): Promise<void> {
    while ((this.isFull() || this.parts.state.isBehind) && !signal.aborted) {
      this.advance();
      if (!isHeld() && this.working === undefined) return;
      await (this.working === undefined
        ? this.parts.sleep(POLL_MS)
        : Promise.race([this.working, this.parts.sleep(POLL_MS)]));
    }
    this.rethrow();
  }

  /** Settles when no table is detached. @throws as advance */
  async settled(): Promise<void> {
    await this.working;
    this.rethrow();
  }

  /** Abandons the detached table: the changelog has its rows. */
  async stop(): Promise<void> {
    this.isStopped = true;
    await this.working;
  }

  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Detaches the first part that has rows in memory. Returns false if none has any. */
  private detachFirst(due: readonly number[]): boolean {
    const { state, log, stages } = this.parts;
    for (const part of due) {
      const run = state.detach(part);
      if (run === undefined) continue;
      // In the same turn, because the next records belong to the table that follows.
      const id = log.detached(part);
      this.working = stages
        .during('spill', () => this.spill(id, part, run))
        .finally(() => {
          this.working = undefined;
        });
      return true;
    }
    return false;
  }

  /** Memory for tables and runs. */
  private get bytesMax(): number {
    return this.parts.bytesMax - (this.parts.keyBytes?.() ?? 0);
  }

  private isShort(): boolean {
    const { state } = this.parts;
    const { bytesMax } = this;
    const { tables, runs } = state.memory();
    return tables > TABLES_SHARE * bytesMax || tables + runs > SPILL_SHARE * bytesMax;
  }

  private isFull(): boolean {
    const { state } = this.parts;
    const { bytesMax } = this;
    const { tables, runs } = state.memory();
    return runs + (1 + GROWTH) * tables > bytesMax;
  }

  private async spill(id: number, part: number, held: HeldRun<RowRun>): Promise<void> {
    const { state, log, pieces, hook, onSpilled, sleep } = this.parts;
    try {
      const piece = await pieces.write(id, part, await held.run, hook, () => this.isStopped);
      while (!log.maySpill() && !this.isStopped) await sleep(POLL_MS);
      if (piece === undefined || this.isStopped) return;
      if (log.spilled(piece)) state.replace(part, held, piece);
      else await pieces.drop(id);
      onSpilled(piece.rows * pieces.rowBytes);
    } catch (thrown) {
      this.failure ??= thrown;
    } finally {
      held.release();
    }
  }
}
