/** What the disk alone can do: records appended to one file, each on the disk before the next. */
import { closeSync, fdatasyncSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

/** Appends of `bytes` a second over `durationMs`, one fdatasync each, in a file of `dir`. */
export function fdatasyncRate(dir: string, bytes: number, durationMs: number): number {
  mkdirSync(dir, { recursive: true });
  const path = join(dir, 'raw');
  const record = Buffer.alloc(bytes, 0x5a);
  const file = openSync(path, 'a');
  try {
    const started = performance.now();
    let count = 0;
    while (performance.now() - started < durationMs) {
      writeSync(file, record);
      fdatasyncSync(file);
      count++;
    }
    return (count * 1000) / (performance.now() - started);
  } finally {
    closeSync(file);
    rmSync(path);
  }
}
