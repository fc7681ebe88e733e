/** Early results of open windows (`-emit=updates`): at each interval the present result of every
 *  window that changed since the last one, marked, through the same outlet as final results.
 *
 *  Invariants: (1) an early result is offered while its window is open, so it precedes the final
 *  result in the order of the sinks, and after a restart every window whose final result may have
 *  left fires before anything else; (2) a result is the fold of the window's events at one moment;
 *  (3) the set of changes and the rows that wait are bounded; (4) one turn of the event loop reads
 *  at most CHUNK_FINDS rows. */
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { RowForm } from '../../core/layout/row-form.ts';
import type { StateBackend, StateFiring } from '../state/port.ts';
import { turn } from '../turn.ts';
import { markEarly } from '../window/accumulator.ts';
import { type WindowAssigner, windowsOver } from '../window/definition.ts';
import type { FiredBounds } from '../window/firing.ts';

/** Changes, as pairs of a key and a slice, at which a round begins before its interval is over. */
export const CHANGES_MAX = 131_072;
/** Rows that one turn of the event loop reads, over all keys and slices. */
const CHUNK_FINDS = 8_192;
const CHUNK_KEYS_MAX = 512;
/** Bytes of firings that may wait for the sinks when early results are added. */
const WAITING_BYTES_MAX = 4 * 1024 * 1024;
/** Time between two checks that the sinks have caught up. */
const ROOM_POLL_MS = 10;

type Changes = ReadonlyMap<number, ReadonlySet<bigint>>;

export interface EarlyParts {
  readonly state: Pick<StateBackend, 'current' | 'firedTo'>;
  readonly assigner: WindowAssigner;
  readonly form: RowForm;
  readonly intervalMs: number;
  readonly clock: { monotonicMs(): number };
  readonly sleep: (ms: number) => Promise<void>;
  /** Takes ownership of firings behind all firings so far. */
  readonly offer: (firings: readonly StateFiring[]) => void;
  /** Rows that wait for the sinks. */
  readonly waitingRows: () => number;
  /** Called with the number of early results of each firing. */
  readonly onEmitted: (results: number) => void;
}

export class EarlyResults {
  private readonly parts: EarlyParts;
  private readonly chunkKeys: number;
  private changes = new Map<number, Set<bigint>>();
  private changed = 0;
  private nextMs: number;
  private rounds = 0;
  private round: Promise<void> | undefined;
  private isStopped = false;
  private failure: unknown;

  constructor(parts: EarlyParts) {
    const { assigner, clock, intervalMs } = parts;
    this.parts = parts;
    const slices = Math.max(1, assigner.sizeMs / assigner.sliceMs);
    this.chunkKeys = Math.max(1, Math.min(CHUNK_KEYS_MAX, Math.floor(CHUNK_FINDS / slices)));
    this.nextMs = clock.monotonicMs() + intervalMs;
  }

  /** Notes the windows that accumulated events change. */
  note(events: EventBatch, admitted: AdmittedBatch): void {
    const { slice, row } = admitted.columns;
    const { accountId } = events.columns;
    let start = Number.NaN;
    let keys = new Set<bigint>();
    for (let i = 0; i < admitted.rowCount; i++) {
      const at = Number(slice[i]);
      if (at !== start) {
        start = at;
        keys = this.keysOf(start);
      }
      const before = keys.size;
      keys.add(accountId[row[i] as number] as bigint);
      this.changed += keys.size - before;
    }
  }

  /** Begins a round if one is due. `now`: monotonic ms. @throws the error of an earlier round */
  advance(now: number): void {
    if (this.failure !== undefined) throw this.failure;
    if (this.round !== undefined || this.changed === 0) return;
    if (now < this.nextMs && this.changed < CHANGES_MAX) return;
    this.nextMs = now + this.parts.intervalMs;
    this.begin();
  }

  /** Settles when there is room for the changes of another batch. */
  async room(signal: AbortSignal): Promise<void> {
    while (this.changed >= CHANGES_MAX && this.round !== undefined && !signal.aborted)
      await Promise.all([turn(), this.parts.sleep(ROOM_POLL_MS)]);
  }

  /** Emits what has changed, at the end of the input. @throws the error of a round */
  async finish(): Promise<void> {
    await this.round;
    if (this.changed > 0 && this.failure === undefined) this.begin();
    await this.round;
    if (this.failure !== undefined) throw this.failure;
  }

  /** Ends the round in progress at its next step. */
  stop(): void {
    this.isStopped = true;
  }

  private keysOf(slice: number): Set<bigint> {
    let keys = this.changes.get(slice);
    if (keys === undefined) {
      keys = new Set();
      this.changes.set(slice, keys);
    }
    return keys;
  }

  private begin(): void {
    const { changes } = this;
    this.changes = new Map();
    this.changed = 0;
    this.rounds++;
    this.round = this.emit(changes, this.rounds)
      .catch((thrown) => {
        this.failure ??= thrown;
      })
      .finally(() => {
        this.round = undefined;
      });
  }

  private async emit(changes: Changes, round: number): Promise<void> {
    const { state, assigner } = this.parts;
    const starts = Float64Array.from(changes.keys()).sort();
    for (const { end, from, to } of windowsOver(assigner, starts, state.firedTo)) {
      const keys = keysIn(changes, starts.subarray(from, to));
      for (let at = 0; at < keys.length; at += this.chunkKeys) {
        await this.pause();
        if (this.isStopped) return;
        if (end > state.firedTo) await this.emitKeys(end, keys.subarray(at, at + this.chunkKeys), round);
      }
    }
  }

  private async emitKeys(end: number, keys: BigUint64Array, round: number): Promise<void> {
    const { state, assigner, form, clock, offer, onEmitted } = this.parts;
    const rows = new Uint8Array(keys.length * form.bytes);
    const count = (await state.current?.(end, keys, rows)) ?? 0;
    // The window may have fired meanwhile: its final result is on its way.
    if (count === 0 || this.isStopped || end <= state.firedTo) return;
    const found = rows.subarray(0, count * form.bytes);
    for (let row = 0; row < count; row++) markEarly(found, row * form.bytes);
    const bounds = { kind: 'window', start: end - assigner.sizeMs, end } as const;
    offer([new EarlyFiring({ bounds, form, rows: found, round, firedAtMs: clock.monotonicMs() })]);
    onEmitted(count);
  }

  /** Lets other work run, and waits while the sinks are behind. */
  private async pause(): Promise<void> {
    const { waitingRows, form, sleep } = this.parts;
    await turn();
    while (waitingRows() * form.bytes > WAITING_BYTES_MAX && !this.isStopped)
      await Promise.all([turn(), sleep(ROOM_POLL_MS)]);
  }
}

/** Keys of slices, ascending. */
function keysIn(changes: Changes, starts: Float64Array): BigUint64Array {
  const [only] = starts;
  if (starts.length === 1) return BigUint64Array.from(changes.get(only as number) ?? []).sort();
  const all = new Set<bigint>();
  for (const start of starts) for (const key of changes.get(start) ?? []) all.add(key);
  return BigUint64Array.from(all).sort();
}

/** Early results of one window, ascending by key. */
class EarlyFiring implements StateFiring {
  readonly bounds: FiredBounds;
  readonly form: RowForm;
  readonly rowsMax: number;
  readonly firedAtMs: number;
  readonly round: number;
  isClosed = false;
  private rows: Uint8Array;

  constructor(parts: {
    readonly bounds: FiredBounds;
    readonly form: RowForm;
    readonly rows: Uint8Array;
    readonly firedAtMs: number;
    readonly round: number;
  }) {
    this.bounds = parts.bounds;
    this.form = parts.form;
    this.firedAtMs = parts.firedAtMs;
    this.round = parts.round;
    this.rows = parts.rows;
    this.rowsMax = parts.rows.length / parts.form.bytes;
  }

  async read(into: Uint8Array): Promise<number> {
    const { bytes } = this.form;
    const count = Math.min(Math.floor(into.length / bytes), this.rows.length / bytes);
    into.set(this.rows.subarray(0, count * bytes));
    this.rows = this.rows.subarray(count * bytes);
    return count;
  }

  /** None: the state has the window. */
  async find(): Promise<readonly []> {
    return [];
  }

  close(): void {
    this.isClosed = true;
    this.rows = new Uint8Array(0);
  }
}
