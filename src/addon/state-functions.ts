/** Functions of the state addon, in the order of native/binding/state. Only its driver calls them.
 *
 *  Results are promises of an error or null, and a payload; an invalid call throws. Memory is
 *  borrowed until the promise settles. */

/** [code, message] or null; payload. Codes are those of native/state/status.h. */
export type StateAnswer<T> = readonly [readonly [number, string] | null, T];

/** Handles have a type tag; closing one again has no effect. */
export type StoreHandle = object & { readonly __store?: never };
export type RunHandle = object & { readonly __run?: never };
export type ScanHandle = object & { readonly __scan?: never };

export type RowsArguments = readonly [
  bytes: Uint8Array,
  ends: Uint32Array | null,
  prefix: Uint8Array | null,
  keys: Uint8Array | null,
  count: number,
  keyBytes: number,
  valueBytes: number,
  /** The zeroBytes of rows with `keys`. */
  wordAt: number,
  perValue: number,
];

export interface StateAddon {
  /** STATE_ABI of the sources that the addon was built from. */
  readonly stateAbi: number;
  stateOpen(
    folder: string,
    budgetBytes: number,
    families: readonly string[],
    uses: Uint8Array,
    make: boolean,
  ): StoreHandle;
  stateStart(store: StoreHandle): Promise<StateAnswer<null>>;
  /** `log`: 0 off, 1 on, 2 sync. */
  statePut(
    store: StoreHandle,
    family: number,
    log: number,
    ...rows: RowsArguments
  ): Promise<StateAnswer<null>>;
  stateGet(
    store: StoreHandle,
    family: number,
    bytes: Uint8Array,
    ends: Uint32Array | null,
    count: number,
    keyBytes: number,
  ): Promise<StateAnswer<readonly [Uint8Array, Uint32Array, Int32Array]>>;
  stateDeleteRange(
    store: StoreHandle,
    family: number,
    from: Uint8Array | null,
    to: Uint8Array | null,
    log: number,
  ): Promise<StateAnswer<null>>;
  stateFlush(store: StoreHandle): Promise<StateAnswer<null>>;
  stateCheckpoint(store: StoreHandle, folder: string): Promise<StateAnswer<null>>;
  stateStats(store: StoreHandle): Promise<StateAnswer<Float64Array>>;
  /** Flushes the memtables and releases the folder; only close may follow. */
  stateLeave(store: StoreHandle): Promise<StateAnswer<null>>;
  stateClose(store: StoreHandle): void;

  stateRunOpen(store: StoreHandle, family: number): RunHandle;
  /** Rows that are not sorted are spans, or have `keys`. */
  stateRunAppend(run: RunHandle, isSorted: boolean, ...rows: RowsArguments): Promise<StateAnswer<null>>;
  stateRunFinish(run: RunHandle): Promise<StateAnswer<readonly [rows: number, bytes: number, files: number]>>;
  stateRunClose(run: RunHandle): void;

  /** `shape`: 0 spans, 1 fixed, 2 records. */
  stateScanOpen(
    store: StoreHandle,
    family: number,
    from: Uint8Array | null,
    to: Uint8Array | null,
    shape: number,
    keyBytes: number,
    valueBytes: number,
    keepBlocks: boolean,
  ): ScanHandle;
  stateScanStart(scan: ScanHandle): Promise<StateAnswer<null>>;
  stateScanNext(scan: ScanHandle, page: Uint8Array, ends: Uint32Array | null): Promise<StateAnswer<number>>;
  stateScanClose(scan: ScanHandle): void;
}

/** ABI number. It grows when a function changes its meaning; native/binding/state/addon.cc has the
 *  same number. */
export const STATE_ABI = 2;
