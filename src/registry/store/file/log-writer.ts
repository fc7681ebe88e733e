/** Writes a registry file that replaces the current one: completely under another name, then by one
 *  rename.
 */
import type { Disk, RandomFile } from '../../../io/disk/port.ts';
import type { LogRecord } from '../log.ts';
import { CHAIN_START, type ChainPlace, encodeFrame, FRAMES } from './frames.ts';

/** Name of the unfinished file; a file that is left under this name is never read. */
export const UNFINISHED_LOG_FILE = 'registry.log.new';

export class LogWriter {
  readonly file: RandomFile;
  /** Byte after the last frame, and its position in the chain. */
  end = FRAMES.magic.length;
  place: ChainPlace = CHAIN_START;
  private readonly disk: Disk;

  private constructor(disk: Disk, file: RandomFile) {
    this.disk = disk;
    this.file = file;
  }

  static async create(disk: Disk): Promise<LogWriter> {
    await disk.remove(UNFINISHED_LOG_FILE);
    const writer = new LogWriter(disk, await disk.edit(UNFINISHED_LOG_FILE));
    try {
      await writer.file.write(FRAMES.magic, 0);
      return writer;
    } catch (thrown) {
      await writer.abandon();
      throw thrown;
    }
  }

  /** Writes the records as one frame. */
  async append(records: readonly LogRecord[]): Promise<void> {
    const { frame, after } = encodeFrame(records, this.place);
    await this.file.write(frame, this.end);
    this.end += frame.length;
    this.place = after;
  }

  sync(): Promise<void> {
    return this.file.sync({ offThread: true });
  }

  /** Settles when the file durably has the name. After a failure it may have it or not. Sync the
   *  file before.
   */
  rename(name: string): Promise<void> {
    return this.disk.rename(UNFINISHED_LOG_FILE, name);
  }

  async abandon(): Promise<void> {
    await this.file.close().catch(() => {});
    await this.disk.remove(UNFINISHED_LOG_FILE).catch(() => {});
  }
}
