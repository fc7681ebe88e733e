/** Decorator of `Disk` that charges the time of writes and syncs to the stage `changelog`. */
import type { AppendFile, Disk } from '../io/disk/port.ts';
import type { Stages } from './stages.ts';

const timedFile = (file: AppendFile, stages: Stages): AppendFile => ({
  get size() {
    return file.size;
  },
  write: (chunks) => stages.during('changelog', () => file.write(chunks)),
  sync: () => stages.during('changelog', () => file.sync()),
  close: () => file.close(),
});

export const timedDisk = (disk: Disk, stages: Stages): Disk => ({
  where: disk.where,
  list: () => disk.list(),
  read: (name) => disk.read(name),
  write: (name, chunks) => stages.during('changelog', () => disk.write(name, chunks)),
  append: async (name) => timedFile(await stages.during('changelog', () => disk.append(name)), stages),
  edit: (name) => disk.edit(name),
  readPiece: (name, from, bytesMax) => disk.readPiece(name, from, bytesMax),
  truncate: (name, bytes) => disk.truncate(name, bytes),
  rename: (from, to) => stages.during('changelog', () => disk.rename(from, to)),
  remove: (name) => disk.remove(name),
});
