/** Opens the registry's file store on a folder of this machine and on a simulated disk, and builds
 *  damaged files. */
import { crc32 } from 'node:zlib';
import { type Logger, silentLogger } from '../../../../src/core/log.ts';
import { openDisk } from '../../../../src/io/disk/node.ts';
import type { Disk } from '../../../../src/io/disk/port.ts';
import type { LockDriver } from '../../../../src/io/lock/port.ts';
import { CHAIN_START, encodeFrame, FRAMES } from '../../../../src/registry/store/file/frames.ts';
import { FileLog } from '../../../../src/registry/store/file/log.ts';
import type { LogRecord, OpenReport } from '../../../../src/registry/store/log.ts';
import { locks } from '../../../locks.ts';

export const fileLog = (dir: string, log: Logger = silentLogger): FileLog =>
  new FileLog({ dir, openDisk, locks, log });

/** Locks of a simulated disk: always free, because its processes end with its power. */
const freeLocks: LockDriver = { tryLock: async () => ({ lock: { release: () => {} } }) };

export const simulatedLog = (
  disk: { view(): Disk },
  compactBytesMin?: number,
  log: Logger = silentLogger,
): FileLog =>
  new FileLog({
    dir: 'sim',
    openDisk: async () => disk.view(),
    locks: freeLocks,
    log,
    ...(compactBytesMin === undefined ? {} : { compactBytesMin }),
  });

/** Offsets at which the frames of a file end, after the end of the magic. */
export function frameEnds(bytes: Buffer): number[] {
  const ends = [FRAMES.magic.length];
  for (let at = FRAMES.magic.length; ; ends.push(at)) {
    const payload = FRAMES.payloadBytesAt(bytes, at);
    if (payload === undefined) return ends;
    at += FRAMES.headerBytes + payload;
  }
}

/** File of format 2, as the previous release wrote it. Its header is written here independently of
 *  the code that reads it. */
export function oldFile(batches: readonly (readonly LogRecord[])[]): Buffer {
  const frames = batches.map((records) => {
    const payload = encodeFrame(records, CHAIN_START).frame.subarray(FRAMES.headerBytes);
    const header = Buffer.alloc(12);
    header.writeUInt32LE(payload.length, 0);
    header.writeUInt32LE(crc32(payload), 4);
    header.writeUInt32LE(crc32(header.subarray(0, 8)), 8);
    return Buffer.concat([header, payload]);
  });
  return Buffer.concat([Buffer.from('MRREGLG2', 'latin1'), ...frames]);
}

/** Waits for `count` turns of the event loop. */
export async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** Log of plain keys and values, with the values that it contains. */
export class KeyedLog {
  readonly values = new Map<string, string>();
  readonly log: FileLog;

  constructor(log: FileLog) {
    this.log = log;
  }

  open(): Promise<OpenReport> {
    return this.log.open({
      apply: (records) => {
        for (const { key, value } of records) {
          if (value === null) this.values.delete(Buffer.from(key).toString());
          else this.values.set(Buffer.from(key).toString(), Buffer.from(value).toString());
        }
      },
      summary: () => [],
    });
  }

  async put(key: string, value: string | null): Promise<void> {
    await this.log.append([recordOf(key, value)]);
    if (value === null) this.values.delete(key);
    else this.values.set(key, value);
  }
}

export const recordOf = (key: string, value: string | null): LogRecord => ({
  key: Buffer.from(key),
  value: value === null ? null : Buffer.from(value),
});
