/** One folder of files in our words: whole files, written so that a reader sees the old one, the new one or none. */

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
  /** @throws not_writable */
  rename(from: string, to: string): Promise<void>;
  /** A file that is gone already is fine. */
  remove(name: string): Promise<void>;
  /** Takes the folder for this process; undefined when a living process holds it, else a function that gives it back.
   *  `holder` says who has it. */
  lock(): Promise<{ readonly release?: () => Promise<void>; readonly holder: string }>;
}
