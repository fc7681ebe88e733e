/** `millrace registry export` and `import`: a whole store as a file, and back. */
import { createReadStream, existsSync } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { coreError, EXIT, MillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { exportStore, importStore, REGISTRY_LOG_FILE, type RegistryLog } from '../../registry/server.ts';

/** Settings that the two have beside the store. */
export const TRANSFER_SETTINGS = {
  out: { type: 'string', default: '-', help: 'file that registry export writes; - is stdout' },
  in: { type: 'string', help: 'file that registry import reads; - is stdin' },
} as const;

/** Written at once. */
const WRITE_CHARS = 1 << 20;

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

/** A folder that holds no store is a wrong one, not an empty export. */
function checkThere(store: string): void {
  const dir = /^file:(.+)$/s.exec(store)?.[1];
  if (dir === undefined || existsSync(join(dir, REGISTRY_LOG_FILE))) return;
  throw coreError('bad_value', `-store=${store} holds no registry store`, {
    next: 'give the folder that a registry keeps its store in',
  });
}

/** What the system refuses is no bug of ours. */
function readable(thrown: unknown, code: 'not_writable' | 'bad_file', what: string, next: string): unknown {
  const { code: why, syscall } = thrown as NodeJS.ErrnoException;
  if (thrown instanceof MillraceError || syscall === undefined) return thrown;
  return coreError(code, `cannot ${what}: ${why}`, { next, cause: thrown });
}

const writeOut = (line: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(line, () => resolve()));

async function exportTo({ store, out, log, openLog }: TransferOptions): Promise<number> {
  checkThere(store);
  const records = out === '-' ? await exportStore(openLog(), writeOut) : await exportToFile(out, openLog());
  log.info({ store, out, records }, 'registry store exported');
  return EXIT.done;
}

async function exportToFile(out: string, from: RegistryLog): Promise<number> {
  // A file under its own name is a whole export.
  const path = `${out}.unfinished`;
  try {
    const file = await open(path, 'w');
    try {
      let held = '';
      const records = await exportStore(from, async (line) => {
        held += line;
        if (held.length < WRITE_CHARS) return;
        await file.appendFile(held);
        held = '';
      });
      await file.appendFile(held);
      await file.sync();
      await rename(path, out);
      return records;
    } catch (thrown) {
      await rm(path, { force: true });
      throw thrown;
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw readable(thrown, 'not_writable', `write ${out}`, 'give -out with a file that can be written');
  }
}

async function importFrom({ store, in: path, log, openLog }: TransferOptions): Promise<number> {
  if (path === undefined) throw coreError('usage', '-in is required', { next: 'give -in=FILE' });
  const input = path === '-' ? process.stdin : createReadStream(path);
  let imported: Awaited<ReturnType<typeof importStore>>;
  try {
    imported = await importStore(openLog, createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY }));
  } catch (thrown) {
    throw readable(thrown, 'bad_file', `read ${path}`, 'give -in with a file that registry export wrote');
  }
  log.info({ store, in: path, ...imported }, 'registry store imported and read again');
  return EXIT.done;
}
