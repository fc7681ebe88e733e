/** Simulated disk in memory. A crash loses the same data as on a real disk: unsynced bytes, and
 *  removals that no later sync of the folder made durable. Each process has a view of the folder,
 *  which a crash invalidates. */
import { coreError } from '../core/errors.ts';
import type { AppendFile, Disk, RandomFile } from '../io/disk/port.ts';

interface File {
  bytes: Uint8Array<ArrayBuffer>;
  length: number;
  /** Length in bytes that survives a crash, except for overwritten sectors. */
  durable: number;
  /** Previous contents of the sectors overwritten since the last sync. A crash keeps either the old
   *  or the new content. */
  overwritten: Map<number, Uint8Array<ArrayBuffer>>;
}

const SECTOR_BYTES = 512;

const UNFINISHED_SUFFIX = '.tmp';

const fileOf = (bytes: Uint8Array): File => ({
  bytes: Uint8Array.from(bytes),
  length: bytes.length,
  durable: bytes.length,
  overwritten: new Map(),
});

/** Checks before a change by one process: the process is alive, the machine has power, the disk has
 *  space. Each throws if its condition does not hold. */
interface Checks {
  demandAlive(): void;
  demandPower(): void;
  demandRoom(name: string, bytes: number): void;
}

function widen(file: File, bytes: number): void {
  if (bytes <= file.bytes.length) return;
  const wider = new Uint8Array(2 * bytes);
  wider.set(file.bytes.subarray(0, file.length));
  file.bytes = wider;
}

function extend(file: File, chunk: Uint8Array): void {
  widen(file, file.length + chunk.length);
  file.bytes.set(chunk, file.length);
  file.length += chunk.length;
}

/** Overwrites bytes, and keeps the replaced sectors, which a crash may restore. */
function overwrite(file: File, chunk: Uint8Array, at: number): void {
  const end = at + chunk.length;
  const last = Math.ceil(end / SECTOR_BYTES) * SECTOR_BYTES;
  widen(file, last);
  // Bytes after the end, left by an earlier and longer file, are not content.
  if (end > file.length) file.bytes.fill(0, file.length, last);
  for (let sector = at - (at % SECTOR_BYTES); sector < end; sector += SECTOR_BYTES)
    if (!file.overwritten.has(sector))
      file.overwritten.set(sector, file.bytes.slice(sector, sector + SECTOR_BYTES));
  file.bytes.set(chunk, at);
  file.length = Math.max(file.length, end);
}

function randomFile({ demandPower, demandRoom }: Checks, name: string, file: File): RandomFile {
  return {
    get size() {
      return file.length;
    },
    read: async (into, at) => {
      const found = file.bytes.subarray(at, Math.max(at, Math.min(file.length, at + into.length)));
      into.set(found);
      return found.length;
    },
    write: async (bytes, at) => {
      demandPower();
      demandRoom(name, Math.max(0, at + bytes.length - file.length));
      overwrite(file, bytes, at);
    },
    sync: async () => {
      demandPower();
      file.durable = file.length;
      file.overwritten.clear();
    },
    truncate: async (bytes) => {
      demandPower();
      file.length = Math.min(file.length, bytes);
      file.durable = Math.min(file.durable, bytes);
    },
    close: async () => {},
  };
}

function appendFile({ demandPower, demandRoom }: Checks, name: string, file: File): AppendFile {
  return {
    get size() {
      return file.length;
    },
    write: async (chunks) => {
      demandPower();
      for (const chunk of chunks) {
        demandRoom(name, chunk.length);
        extend(file, chunk);
      }
    },
    sync: async () => {
      demandPower();
      file.durable = file.length;
    },
    close: async () => {},
  };
}

export class SimDisk {
  readonly where = 'memory';
  /** Free bytes on the disk. */
  bytesLeft = Number.POSITIVE_INFINITY;
  /** Changes until the machine loses power. Writing a whole file takes four changes (create, write,
   *  sync, rename), so that a crash can leave it unfinished. */
  changesLeft = Number.POSITIVE_INFINITY;
  private files = new Map<string, File>();
  /** Removed files whose removal is not durable: a crash may restore them. */
  private removed = new Map<string, File>();
  private generation = 0;

  names(): readonly string[] {
    return [...this.files.keys()].sort();
  }
  bytesOf(name: string): Uint8Array<ArrayBuffer> | undefined {
    const file = this.files.get(name);
    return file?.bytes.slice(0, file.length);
  }
  /** Stores a file durably. */
  put(name: string, bytes: Uint8Array): void {
    this.files.set(name, fileOf(bytes));
  }
  /** Flips one bit of a file in place; open handles see the change. */
  damage(name: string, at: number): void {
    const file = this.files.get(name);
    if (file !== undefined) file.bytes[at] = (file.bytes[at] as number) ^ 1;
  }
  drop(name: string): void {
    this.files.delete(name);
  }
  /** Returns another disk with the same files, all durable. */
  copy(): SimDisk {
    const other = new SimDisk();
    for (const [name, file] of this.files) other.put(name, file.bytes.subarray(0, file.length));
    return other;
  }

  /** Crashes the machine: invalidates all views. `draw(n)` returns an integer in [0, n). */
  crash(draw: (below: number) => number): void {
    this.generation++;
    for (const file of this.files.values()) {
      const { durable } = file;
      file.length = durable + draw(file.length - durable + 1);
      if (file.length > durable && draw(2) === 0) {
        const at = durable + draw(file.length - durable);
        file.bytes[at] = (file.bytes[at] as number) ^ (1 + draw(255));
      }
      for (const [at, before] of file.overwritten) if (draw(2) === 0) file.bytes.set(before, at);
      file.overwritten.clear();
      file.durable = file.length;
    }
    for (const [name, file] of this.removed) {
      if (draw(2) === 0 && !this.files.has(name)) this.files.set(name, file);
    }
    this.removed.clear();
  }

  /** Returns the checks for one process. */
  private checks(): Checks {
    const { generation } = this;
    const demandAlive = (): void => {
      if (generation !== this.generation) throw coreError('closed', 'the process is gone');
    };
    const demandPower = (): void => {
      demandAlive();
      if (this.changesLeft <= 0) throw coreError('closed', 'the machine is off');
      this.changesLeft--;
    };
    const demandRoom = (name: string, bytes: number): void => {
      if (bytes > this.bytesLeft)
        throw coreError('not_writable', `cannot write ${name}: the disk is full`, {
          next: 'check the folder, its owner and the free space',
        });
      this.bytesLeft -= bytes;
    };
    return { demandAlive, demandPower, demandRoom };
  }

  /** Returns the view of one process. */
  view(): Disk {
    const checks = this.checks();
    const { demandAlive, demandPower } = checks;
    const known = (name: string): File => {
      const file = this.files.get(name);
      if (file === undefined)
        throw coreError('not_writable', `cannot write ${name}: the file does not exist`);
      return file;
    };
    /** Marks the folder as synced: removals are durable. */
    const syncFolder = (): void => this.removed.clear();
    const append = async (name: string): Promise<AppendFile> => {
      demandPower();
      if (this.files.has(name))
        throw coreError('not_writable', `cannot write ${name}: the file already exists`);
      const file = fileOf(new Uint8Array(0));
      this.files.set(name, file);
      syncFolder();
      return appendFile(checks, name, file);
    };
    const rename = async (from: string, to: string): Promise<void> => {
      demandPower();
      this.files.set(to, known(from));
      this.files.delete(from);
      syncFolder();
    };
    return {
      where: this.where,
      list: async () => [...this.files.keys()],
      read: async (name) => this.bytesOf(name),
      write: async (name, chunks) => {
        if (this.files.has(name + UNFINISHED_SUFFIX)) {
          demandPower();
          this.files.delete(name + UNFINISHED_SUFFIX);
        }
        const file = await append(name + UNFINISHED_SUFFIX);
        await file.write(chunks);
        await file.sync();
        await rename(name + UNFINISHED_SUFFIX, name);
      },
      append,
      edit: async (name) => {
        const found = this.files.get(name);
        if (found !== undefined) demandAlive();
        else await append(name);
        return randomFile(checks, name, this.files.get(name) as File);
      },
      readPiece: async (name, from, bytesMax) => {
        const file = this.files.get(name);
        return file === undefined
          ? new Uint8Array(0)
          : file.bytes.slice(from, Math.min(file.length, from + bytesMax));
      },
      truncate: async (name, bytes) => {
        demandPower();
        const file = known(name);
        file.length = Math.min(file.length, bytes);
        file.durable = file.length;
      },
      rename,
      remove: async (name) => {
        demandPower();
        const file = this.files.get(name);
        if (file === undefined) return;
        this.files.delete(name);
        this.removed.set(name, file);
      },
    };
  }
}
