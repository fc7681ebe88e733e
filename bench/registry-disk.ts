/** What the disk alone can do: records written to one file, each on the disk before the next. */
import {
  closeSync,
  fdatasyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';

const SPACE_BYTES = 16 << 20;

/** `grow`: the file gets longer with each record; `overwrite`: its space is there already, as a log
 *  that allocates ahead has it. */
export type DiskMode = 'grow' | 'overwrite';

/** Records of `bytes` a second over `durationMs`, one fdatasync each, in a file of `dir`. */
export function fdatasyncRate(dir: string, bytes: number, durationMs: number, mode: DiskMode): number {
  mkdirSync(dir, { recursive: true });
  const path = join(dir, 'raw');
  const record = Buffer.alloc(bytes, 0x5a);
  const file = openSync(path, 'w');
  try {
    if (mode === 'overwrite') {
      writeSync(file, Buffer.alloc(SPACE_BYTES), 0, SPACE_BYTES, 0);
      fdatasyncSync(file);
    }
    const started = performance.now();
    let count = 0;
    for (let at = 0; performance.now() - started < durationMs; at += bytes) {
      if (mode === 'overwrite' && at + bytes > SPACE_BYTES) at = 0;
      writeSync(file, record, 0, bytes, at);
      fdatasyncSync(file);
      count++;
    }
    return (count * 1000) / (performance.now() - started);
  } finally {
    closeSync(file);
    rmSync(path);
  }
}

/** Bytes of all files under `dir` without the zeros at their ends, which are space and not data. */
export function dataBytesUnder(dir: string): number {
  let sum = 0;
  for (const entry of readdirSync(dir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const bytes = readFileSync(join(entry.parentPath, entry.name));
    let end = bytes.length;
    while (end > 0 && bytes[end - 1] === 0) end--;
    sum += end;
  }
  return sum;
}
