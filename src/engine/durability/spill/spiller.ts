/** Moves state out of memory beside the loop, one table at a time, before the budget is used up.
 *
 *  The loop calls `advance` between two batches, which sets a table aside when one is due, and
 *  waits for `room` before it reads on. A table is due when memory runs short, or when it is the
 *  oldest thing that needs a changelog which has grown longer than the state in memory. The rows
 *  are copied out in pages; sorting and writing are off the main thread. Invariants: (1) one table
 *  is aside at a time; (2) its rows count as memory until their piece is durable.
 */
import type { RowRun } from '../../../addon/window-surface.ts';
import type { Stages } from '../../stages.ts';
import type { HeldRun } from '../../state/run.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import type { StepHook } from '../checkpoint/steps.ts';
import type { PieceStore } from './pieces.ts';
import type { Spillable, SpillLog } from './port.ts';

/** Live tables may take this share of what the state may, before the next one goes … */
const TABLES_SHARE = 1 / 4;
/** … and all of it together this one. */
const SPILL_SHARE = 1 / 2;
/** A table that grows is there twice for a while, the second time doubled: so much is kept free for
 *  each byte of it. */
const GROWTH = 1;
/** How long `room` waits before it looks again: rows that a firing holds go without a word. */
const LOOK_MS = 5;

export interface SpillerParts {
  readonly state: Spillable;
  readonly log: SpillLog;
  readonly pieces: PieceStore;
  /** Memory for tables and runs. */
  readonly bytesMax: number;
  readonly hook: StepHook;
  readonly sleep: (ms: number) => Promise<void>;
  readonly stages: Pick<Stages, 'during'>;
  /** A piece is durable; bytes of its rows. */
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

  /** A table is aside. */
  get isBusy(): boolean {
    return this.working !== undefined;
  }

  /** Sets aside what is due. Call between two batches. @throws what the store or the log threw */
  advance(): void {
    this.rethrow();
    if (this.working !== undefined || this.isStopped) return;
    const { state, log } = this.parts;
    if (this.isShort()) state.trim();
    const isShort = this.isShort();
    const overdue = (): readonly number[] => log.overdue(state.memory().rows * ROW_BYTES);
    this.begin(isShort ? state.spillOrder() : [...state.wanted, ...overdue()]);
  }

  /** Moves everything out of memory. No batch may come meanwhile. @throws as advance */
  async moveAll(): Promise<void> {
    const { state } = this.parts;
    do await this.settled();
    while (this.begin(state.spillOrder()));
  }

  /** Settles when there is memory for another batch, or nothing that would give some, and what
   *  ended on disk is not left too far behind; or the signal is given. `isHeld`: whether firings
   *  hold rows that they will let go; what it throws ends the wait. @throws as advance */
  async room(signal: AbortSignal, isHeld: () => boolean): Promise<void> {
    while ((this.isFull() || this.parts.state.isBehind) && !signal.aborted) {
      this.advance();
      if (!isHeld() && this.working === undefined) return;
      await (this.working === undefined
        ? this.parts.sleep(LOOK_MS)
        : Promise.race([this.working, this.parts.sleep(LOOK_MS)]));
    }
    this.rethrow();
  }

  /** Settles when nothing is aside. @throws as advance */
  async settled(): Promise<void> {
    await this.working;
    this.rethrow();
  }

  /** Gives up what is aside: the changelog has it. */
  async stop(): Promise<void> {
    this.isStopped = true;
    await this.working;
  }

  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Sets the first of the parts aside that has rows in memory; false when none has. */
  private begin(due: readonly number[]): boolean {
    const { state, log, stages } = this.parts;
    for (const part of due) {
      const run = state.detach(part);
      if (run === undefined) continue;
      // In the same turn: records behind it are of the table that follows.
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

  private isShort(): boolean {
    const { state, bytesMax } = this.parts;
    const { tables, runs } = state.memory();
    return tables > TABLES_SHARE * bytesMax || tables + runs > SPILL_SHARE * bytesMax;
  }

  private isFull(): boolean {
    const { state, bytesMax } = this.parts;
    const { tables, runs } = state.memory();
    return runs + (1 + GROWTH) * tables > bytesMax;
  }

  private async spill(id: number, part: number, held: HeldRun<RowRun>): Promise<void> {
    const { state, log, pieces, hook, onSpilled, sleep } = this.parts;
    try {
      const piece = await pieces.write(id, part, await held.run, hook, () => this.isStopped);
      while (!log.maySpill() && !this.isStopped) await sleep(LOOK_MS);
      if (piece === undefined || this.isStopped) return;
      if (log.spilled(piece)) state.replace(part, held, piece);
      else await pieces.drop(id);
      onSpilled(piece.rows * ROW_BYTES);
    } catch (thrown) {
      this.failure ??= thrown;
    } finally {
      held.release();
    }
  }
}
