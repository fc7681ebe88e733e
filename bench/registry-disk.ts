/** Raw disk limit: writes records to one file, each made durable before the next. */
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

/** `grow`: each record extends the file; `overwrite`: the space is preallocated, as in a log that
 *  allocates ahead. */
export type DiskMode = 'grow' | 'overwrite';

/** Records of `bytes` a second over `durationMs`, each with an fdatasync, in a file in `dir`. */
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

/** Bytes of all files under `dir` without trailing zeros, which are preallocated space. */
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
