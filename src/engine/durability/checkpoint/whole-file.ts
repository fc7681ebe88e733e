/** File that exists completely or not at all: it is written under another name, synced, and
 *  renamed. */
import { crc32 } from 'node:zlib';
import type { AppendFile, Disk } from '../../../io/disk/port.ts';
import { type FileRole, type StepHook, stepped } from './steps.ts';

/** Suffix of unfinished files; they are never read, and the next checkpoint removes them. */
export const UNFINISHED = '.tmp';

/** Name, length and checksum of a file, as a manifest lists it; a reader checks the file against
 *  them. */
export interface FileEntry {
  readonly name: string;
  readonly bytes: number;
  readonly crc32: number;
}

export class WholeFile {
  private readonly disk: Disk;
  private readonly role: FileRole;
  private readonly name: string;
  private readonly hook: StepHook;
  private readonly file: AppendFile;
  private crc = 0;

  private constructor(disk: Disk, role: FileRole, name: string, hook: StepHook, file: AppendFile) {
    this.disk = disk;
    this.role = role;
    this.name = name;
    this.hook = hook;
    this.file = file;
  }

  /** @throws not_writable, as all methods */
  static async create(disk: Disk, role: FileRole, name: string, hook: StepHook): Promise<WholeFile> {
    return new WholeFile(disk, role, name, hook, await disk.append(name + UNFINISHED));
  }

  /** Writes a chunk, which is borrowed until this settles. */
  async write(chunk: Uint8Array): Promise<void> {
    this.crc = crc32(chunk, this.crc);
    await this.closingOnFailure(stepped(this.hook, `${this.role} write`, () => this.file.write([chunk])));
  }

  /** Makes the file durable and gives it its name. */
  async finish(): Promise<FileEntry> {
    const { disk, role, name, hook, file } = this;
    await this.closingOnFailure(stepped(hook, `${role} sync`, () => file.sync()));
    const bytes = file.size;
    await file.close();
    await stepped(hook, `${role} rename`, () => disk.rename(name + UNFINISHED, name));
    return { name, bytes, crc32: this.crc };
  }

  /** Waits for a write, and closes the file if it fails, so that the caller need not abandon it. */
  private async closingOnFailure(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (thrown) {
      await this.file.close().catch(() => {});
      throw thrown;
    }
  }

  /** Closes the file, which stays unfinished. */
  async abandon(): Promise<void> {
    await this.file.close();
    await this.disk.remove(this.name + UNFINISHED);
  }
}
