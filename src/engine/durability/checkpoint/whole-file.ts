/** A file that is there whole or not at all: written under another name, synced, renamed. */
import { crc32 } from 'node:zlib';
import type { AppendFile, Disk } from '../../../io/disk/port.ts';
import { type FileRole, type StepHook, stepped } from './steps.ts';

/** What is written under this ending is never read, and removed at the next checkpoint. */
export const UNFINISHED = '.tmp';

/** How a file is named elsewhere, so that whoever reads it can tell that it is the one. */
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

  /** @throws not_writable, as all of this */
  static async create(disk: Disk, role: FileRole, name: string, hook: StepHook): Promise<WholeFile> {
    return new WholeFile(disk, role, name, hook, await disk.append(name + UNFINISHED));
  }

  /** Borrows the chunk until it settles. */
  async write(chunk: Uint8Array): Promise<void> {
    this.crc = crc32(chunk, this.crc);
    await this.orClosed(stepped(this.hook, `${this.role} write`, () => this.file.write([chunk])));
  }

  /** Makes the file durable and gives it its name. */
  async finish(): Promise<FileEntry> {
    const { disk, role, name, hook, file } = this;
    await this.orClosed(stepped(hook, `${role} sync`, () => file.sync()));
    const bytes = file.size;
    await file.close();
    await stepped(hook, `${role} rename`, () => disk.rename(name + UNFINISHED, name));
    return { name, bytes, crc32: this.crc };
  }

  /** Who is told of a failure need not give the file up as well. */
  private async orClosed(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (thrown) {
      await this.file.close().catch(() => {});
      throw thrown;
    }
  }

  /** Gives it up. */
  async abandon(): Promise<void> {
    await this.file.close();
    await this.disk.remove(this.name + UNFINISHED);
  }
}
