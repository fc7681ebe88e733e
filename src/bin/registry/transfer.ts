/** `millrace registry export` and `import`: transfer a whole store to and from a file. */
import { createReadStream, existsSync } from 'node:fs';
import { type FileHandle, lstat, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Writable } from 'node:stream';
import type { Timers } from '../../core/clock.ts';
import { coreError, EXIT, MillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import { REGISTRY_LOG_FILE } from '../../registry/store/file/log.ts';
import type { RegistryLog } from '../../registry/store/log.ts';
import { exportStore, importStore } from '../../registry/store/transfer.ts';

/** Settings of the two commands in addition to the store. */
export const TRANSFER_SETTINGS = {
  out: { type: 'string', default: '-', help: 'file that registry export writes; - is stdout' },
  in: { type: 'string', help: 'file that registry import reads; - is stdin' },
} as const;

/** Characters collected before a write. */
const WRITE_CHARS = 1 << 20;

export const TRANSFERS = ['export', 'import'] as const;
export type Transfer = (typeof TRANSFERS)[number];

export interface TransferOptions {
  readonly store: string;
  readonly out: string;
  readonly in: string | undefined;
  readonly log: Logger;
  readonly clock: Timers;
  /** Opens a new log of the store with each call. */
  readonly openLog: () => RegistryLog;
}

/** @returns the exit code */
export async function transfer(action: Transfer, options: TransferOptions): Promise<number> {
  if (options.store === 'memory') {
    throw coreError('bad_value', `registry ${action} does not work with -store=memory`, {
      next: 'give -store=file:DIR or kafka:BROKERS',
    });
  }
  return action === 'export' ? exportTo(options) : importFrom(options);
}

/** A folder without a store is a mistake, not an empty export. */
function checkExists(store: string): void {
  const dir = /^file:(.+)$/s.exec(store)?.[1];
  if (dir === undefined || existsSync(join(dir, REGISTRY_LOG_FILE))) return;
  throw coreError('bad_value', `-store=${store} holds no registry store`, {
    next: 'give the folder that a registry keeps its store in',
  });
}

/** Turns an error of the operating system into a user error. */
function readable(thrown: unknown, code: 'not_writable' | 'bad_file', what: string, next: string): unknown {
  const { code: why, syscall } = thrown as NodeJS.ErrnoException;
  if (thrown instanceof MillraceError || syscall === undefined) return thrown;
  return coreError(code, `cannot ${what}: ${why}`, { next, cause: thrown });
}

const cannotWrite = (thrown: unknown, out: string): unknown =>
  readable(thrown, 'not_writable', `write ${out}`, 'give -out with a file that can be written');

/** Collects lines, so that a line is not a write of its own. */
async function exportWith(from: RegistryLog, write: (text: string) => Promise<void>): Promise<number> {
  let held = '';
  const records = await exportStore(from, async (line) => {
    held += line;
    if (held.length < WRITE_CHARS) return;
    const text = held;
    held = '';
    await write(text);
  });
  await write(held);
  return records;
}

/** @param stdout stream that reports a failed write both as an event and to its callback */
export async function exportToStream(stdout: Writable, from: RegistryLog): Promise<number> {
  // An 'error' event without a listener would end the process without a message.
  const ignoreError = (): void => {};
  stdout.on('error', ignoreError);
  try {
    return await exportWith(
      from,
      (text) =>
        new Promise((resolve, reject) => {
          stdout.write(text, (failed) => (failed ? reject(failed) : resolve()));
        }),
    );
  } catch (thrown) {
    throw cannotWrite(thrown, 'stdout');
  } finally {
    stdout.off('error', ignoreError);
  }
}

async function exportTo({ store, out, log, openLog }: TransferOptions): Promise<number> {
  checkExists(store);
  const records =
    out === '-' ? await exportToStream(process.stdout, openLog()) : await exportToFile(out, openLog());
  log.info({ store, out, records }, 'registry store exported');
  return EXIT.done;
}

/** Path, with links resolved, of a regular or new file that the finished export can replace.
 *  Undefined for a pipe, a device or a dangling link, which is written in place. */
async function replaceable(out: string): Promise<string | undefined> {
  const found = await stat(out).catch((thrown: NodeJS.ErrnoException) => {
    if (thrown.code === 'ENOENT') return undefined;
    throw thrown;
  });
  if (found !== undefined) return found.isFile() ? realpath(out) : undefined;
  return (await lstat(out).catch(() => undefined)) === undefined ? out : undefined;
}

async function exportToFile(out: string, from: RegistryLog): Promise<number> {
  try {
    const target = await replaceable(out);
    if (target === undefined) {
      const file = await open(out, 'w');
      return await exportInto(file, from);
    }
    // Write to a temporary name: a file under the final name is always a complete export.
    const path = `${target}.unfinished`;
    const file = await open(path, 'w');
    try {
      return await exportInto(file, from, async () => {
        await file.sync();
        await rename(path, target);
      });
    } catch (thrown) {
      await rm(path, { force: true });
      throw thrown;
    }
  } catch (thrown) {
    throw cannotWrite(thrown, out);
  }
}

async function exportInto(
  file: FileHandle,
  from: RegistryLog,
  keep: () => Promise<void> = async () => {},
): Promise<number> {
  try {
    const records = await exportWith(from, (text) => file.appendFile(text));
    await keep();
    return records;
  } finally {
    await file.close();
  }
}

async function importFrom({ store, in: path, log, clock, openLog }: TransferOptions): Promise<number> {
  if (path === undefined) throw coreError('usage', '-in is required', { next: 'give -in=FILE' });
  const input = path === '-' ? process.stdin : createReadStream(path);
  let imported: Awaited<ReturnType<typeof importStore>>;
  try {
    const lines = createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY });
    imported = await importStore(openLog, lines, clock);
  } catch (thrown) {
    throw readable(thrown, 'bad_file', `read ${path}`, 'give -in with a file that registry export wrote');
  }
  log.info({ store, in: path, ...imported }, 'registry store imported and read again');
  return EXIT.done;
}
