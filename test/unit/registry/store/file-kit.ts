/** The registry's file store on a folder of this machine and on a simulated disk, and files as
 *  damage leaves them. */
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

/** Locks of a simulated disk, whose processes end with its power. */
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

/** Where each frame of a file ends, after the end of the magic. */
export function frameEnds(bytes: Buffer): number[] {
  const ends = [FRAMES.magic.length];
  for (let at = FRAMES.magic.length; ; ends.push(at)) {
    const payload = FRAMES.payloadBytesAt(bytes, at);
    if (payload === undefined) return ends;
    at += FRAMES.headerBytes + payload;
  }
}

/** A file of format 2, as the release before wrote it; its header is spelled out here, apart from
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

/** Lets everything run that waits for a turn of the event loop. */
export async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** A log of plain keys and values, and what it holds. */
export class KeyedLog {
  readonly held = new Map<string, string>();
  readonly log: FileLog;

  constructor(log: FileLog) {
    this.log = log;
  }

  open(): Promise<OpenReport> {
    return this.log.open({
      apply: (records) => {
        for (const { key, value } of records) {
          if (value === null) this.held.delete(Buffer.from(key).toString());
          else this.held.set(Buffer.from(key).toString(), Buffer.from(value).toString());
        }
      },
      summary: () => [],
    });
  }

  async put(key: string, value: string | null): Promise<void> {
    await this.log.append([recordOf(key, value)]);
    if (value === null) this.held.delete(key);
    else this.held.set(key, value);
  }
}

export const recordOf = (key: string, value: string | null): LogRecord => ({
  key: Buffer.from(key),
  value: value === null ? null : Buffer.from(value),
});
