/** One folder of files in our words: whole files, written so that a reader sees the old one, the new one or none, and files
 *  that only grow.
 */

/** A file that grows at its end. One write or sync at a time. */
export interface AppendFile {
  /** Bytes written. */
  readonly size: number;
  /** Borrows the chunks until it settles. After a failure the end of the file is unknown. @throws not_writable */
  write(chunks: readonly Uint8Array[]): Promise<void>;
  /** Settles when everything written is durable. After a failure nothing may be taken for durable. @throws not_writable */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** A file that is read and written at any place. One write, sync or truncation at a time. Its errors are those of the system,
 *  with a `code` such as ENOSPC; after one, what was being written is unknown. */
export interface RandomFile {
  /** Length of the file as far as this process wrote or found it. */
  readonly size: number;
  /** Fills `into` from `at` on; returns fewer bytes at the end of the file. */
  read(into: Uint8Array, at: number): Promise<number>;
  /** Borrows the bytes until it settles. A write behind the end makes the file longer. */
  write(bytes: Uint8Array, at: number): Promise<void>;
  /** Settles when everything written and the length are durable. A sync that is expected to be short may block the thread, unless
   *  it is `offThread`. */
  sync(options?: { readonly offThread: boolean }): Promise<void>;
  /** Cuts the file off behind so many bytes; durable after the next sync. */
  truncate(bytes: number): Promise<void>;
  close(): Promise<void>;
}

export interface Disk {
  /** Path for messages. */
  readonly where: string;
  /** Names of the files in the folder, in no order. */
  list(): Promise<readonly string[]>;
  /** Whole content; undefined when there is no such file. */
  read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** Writes the chunks, makes them durable, then makes them visible under the name by one rename, durable too.
   *  @throws not_writable */
  write(name: string, chunks: readonly Uint8Array[]): Promise<void>;
  /** A file that is not there yet, empty, and durable by name. @throws not_writable */
  append(name: string): Promise<AppendFile>;
  /** Bytes of a file from `from` on, at most `bytesMax`; fewer at its end, none behind it or without the file. */
  readPiece(name: string, from: number, bytesMax: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Opens a file, or makes it, empty and durable by name. @throws not_writable */
  edit(name: string): Promise<RandomFile>;
  /** Cuts a file off behind so many bytes, durable. @throws not_writable */
  truncate(name: string, bytes: number): Promise<void>;
  /** @throws not_writable */
  rename(from: string, to: string): Promise<void>;
  /** A file that is gone already is fine. */
  remove(name: string): Promise<void>;
}
