/** `millrace registry export` and `import`: a whole store as a file, and back. */
import { createReadStream, createWriteStream } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { finished } from 'node:stream/promises';
import { coreError, EXIT } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { exportStore, importStore, type RegistryLog } from '../../registry/index.ts';

/** Settings that the two have beside the store. */
export const TRANSFER_SETTINGS = {
  out: { type: 'string', default: '-', help: 'file that registry export writes; - is stdout' },
  in: { type: 'string', help: 'file that registry import reads; - is stdin' },
} as const;

export const TRANSFERS = ['export', 'import'] as const;
export type Transfer = (typeof TRANSFERS)[number];

export interface TransferOptions {
  readonly store: string;
  readonly out: string;
  readonly in: string | undefined;
  readonly log: Logger;
  /** The store of `store`, made anew with each call. */
  readonly openLog: () => RegistryLog;
}

/** @returns the exit code */
export async function transfer(action: Transfer, options: TransferOptions): Promise<number> {
  if (options.store === 'memory') {
    throw coreError('bad_value', `registry ${action} has nothing to work on with -store=memory`, {
      next: 'give -store=file:DIR or kafka:BROKERS',
    });
  }
  return action === 'export' ? exportTo(options) : importFrom(options);
}

async function exportTo({ store, out, log, openLog }: TransferOptions): Promise<number> {
  // A file under its own name is a whole export.
  const path = `${out}.unfinished`;
  const stream = out === '-' ? process.stdout : createWriteStream(path);
  const write = (line: string): Promise<void> =>
    new Promise((resolve, reject) => {
      stream.write(line, (error) => (error ? reject(error) : resolve()));
    });
  let records: number;
  try {
    records = await exportStore(openLog(), write);
    if (stream !== process.stdout) {
      stream.end();
      await finished(stream);
      await rename(path, out);
    }
  } catch (thrown) {
    if (stream !== process.stdout) {
      stream.destroy();
      await rm(path, { force: true });
    }
    const { code, syscall } = thrown as NodeJS.ErrnoException;
    if (code === undefined || syscall === undefined) throw thrown;
    throw coreError('not_writable', `cannot write ${out}: ${code}`, {
      next: 'give -out with a file that can be written',
      cause: thrown,
    });
  }
  log.info({ store, out, records }, 'registry store exported');
  return EXIT.done;
}

async function importFrom({ store, in: path, log, openLog }: TransferOptions): Promise<number> {
  if (path === undefined) throw coreError('usage', '-in is required', { next: 'give -in=FILE' });
  const input = path === '-' ? process.stdin : createReadStream(path);
  let imported: Awaited<ReturnType<typeof importStore>>;
  try {
    imported = await importStore(openLog, createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY }));
  } catch (thrown) {
    const { code, syscall } = thrown as NodeJS.ErrnoException;
    if (syscall === undefined) throw thrown;
    throw coreError('bad_file', `cannot read ${path}: ${code}`, {
      next: 'give -in with a file that registry export wrote',
      cause: thrown,
    });
  }
  log.info({ store, in: path, ...imported }, 'registry store imported and read again');
  return EXIT.done;
}
