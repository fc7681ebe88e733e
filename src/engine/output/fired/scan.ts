/** Scan of fired rows, decoded page by page. */

import type { KvRange, KvScanShape, KvStore } from '../../../io/rocksdb/port.ts';
import type { RowEras } from '../../aggregate/eras.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import { keyedPage, keyedResults } from './keyed-rows.ts';
import { resultsOf, SESSION_KEY_BYTES, spanResults, WINDOW_KEY_BYTES } from './keys.ts';

export interface FiredScan {
  /** Next rows, at most a page; none at the end. */
  next(): Promise<readonly WindowResult[]>;
  close(): void;
}

export interface FiredScanOptions {
  readonly eras: RowEras;
  /** True for keys that are no integers. */
  readonly isKeyed: boolean;
  /** Most rows of a page. */
  readonly rows: number;
  readonly keepBlocks?: boolean;
}

/** Opens a scan of a family. The caller closes it. */
export async function openFiredScan(
  store: KvStore,
  family: 'windows' | 'sessions',
  range: KvRange,
  { eras, isKeyed, rows, keepBlocks = false }: FiredScanOptions,
): Promise<FiredScan> {
  const keyBytes = family === 'windows' ? WINDOW_KEY_BYTES : SESSION_KEY_BYTES;
  const valueBytes = eras.current.bytes;
  const isFixed = !isKeyed && eras.isOne;
  const shape: KvScanShape = isFixed ? { shape: 'fixed', keyBytes, valueBytes } : { shape: 'spans' };
  const page = isFixed
    ? { bytes: new Uint8Array(rows * (keyBytes + valueBytes)), ends: new Uint32Array(0) }
    : keyedPage(rows);
  const scan = await store.scan(family, range, shape, keepBlocks ? { keepBlocks } : undefined);
  return {
    next: async () => {
      const count = await scan.next(page);
      if (isKeyed) return keyedResults(page, count, family, eras);
      return isFixed
        ? resultsOf(page.bytes, count, keyBytes, eras)
        : spanResults(page, count, keyBytes, eras);
    },
    close: () => scan.close(),
  };
}
