/** Port of one folder of files: files that are replaced atomically (a reader sees the old content,
 *  the new content or no file), and files that only grow. */

/** A file that grows at its end. One write or sync at a time. */
export interface AppendFile {
  /** Bytes written. */
  readonly size: number;
  /** Appends the chunks and borrows them until the promise settles. After a failure the end of the
   *  file is unknown. @throws not_writable */
  write(chunks: readonly Uint8Array[]): Promise<void>;
  /** Settles when everything written is durable. After a failure nothing may be treated as durable.
   *  @throws not_writable */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** File that is read and written at any position. One write, sync or truncation at a time. Its
 *  errors are those of the system, with a `code` such as ENOSPC; after an error the content being
 *  written is unknown. */
export interface RandomFile {
  /** Length of the file, from its opening and the writes of this process. */
  readonly size: number;
  /** Fills `into` from `at` on; returns fewer bytes at the end of the file. */
  read(into: Uint8Array, at: number): Promise<number>;
  /** Writes the bytes and borrows them until the promise settles. A write beyond the end extends
   *  the file. */
  write(bytes: Uint8Array, at: number): Promise<void>;
  /** Settles when everything written and the length are durable. A sync that is expected to be
   *  short may block the thread, unless `offThread` is set. */
  sync(options?: { readonly offThread: boolean }): Promise<void>;
  /** Truncates the file to this many bytes; durable after the next sync. */
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
  /** Writes the chunks, makes them durable, then makes them visible under the name by one rename,
   *  durable too.
   *  @throws not_writable */
  write(name: string, chunks: readonly Uint8Array[]): Promise<void>;
  /** Creates an empty file, durable by name. @throws not_writable, also when the file exists */
  append(name: string): Promise<AppendFile>;
  /** Reads at most `bytesMax` bytes from `from` on: fewer at the end of the file, none beyond it or
   *  without the file. */
  readPiece(name: string, from: number, bytesMax: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Opens a file, or creates it, empty and durable by name. @throws not_writable */
  edit(name: string): Promise<RandomFile>;
  /** Truncates a file to this many bytes, durably. @throws not_writable */
  truncate(name: string, bytes: number): Promise<void>;
  /** @throws not_writable */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file; a missing file is no error. */
  remove(name: string): Promise<void>;
}
