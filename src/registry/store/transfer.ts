/** Export and import of a whole store as lines of JSON: each surviving record, with its exact bytes
 *  and in log order.
 *
 *    {"millrace":"registry","format":1}
 *    {"key":"…","value":"…"|null,"ts":n}      keyBase64, valueBase64 where the bytes are not UTF-8
 *    {"records":n,"sha256":"…"}               over all lines before it
 *
 *  Only the last value of a key survives, as in a compacted topic; a removed key is left out. A
 *  deletion of a range of versions survives as survivors.ts decides. Records that have no effect
 *  here are copied like all others.
 */
import { createHash } from 'node:crypto';
import { sleep, type Timers } from '../../core/clock.ts';
import { registryError } from '../errors.ts';
import type { LogRecord, RegistryLog } from './log.ts';
import { contextOf } from './state/names.ts';
import { decodeRecord, encodeRecord, isForeign } from './state/records.ts';
import { Survivors } from './state/survivors.ts';

const FORMAT = 1;
/** Limits of one append to a store without `fill`. */
const APPEND_RECORDS_MAX = 500;
const APPEND_BYTES_MAX = 1 << 20;
const LEADER_WAIT_MS = 30_000;
const LEADER_POLL_MS = 100;

/** Records of a store that survive, in log order. */
class Contents {
  /** True when another registry wrote the log, or may have. */
  private foreign: boolean;
  private origin = false;
  private schemas = false;
  private readonly survivors = new Survivors();
  /** Records by their ordinal in the log. */
  private readonly held = new Map<number, LogRecord>();
  /** Greatest id that was ever written, by context. */
  private readonly seen = new Map<string, number>();

  constructor(shared: boolean) {
    this.foreign = shared;
  }

  add(records: readonly LogRecord[]): void {
    for (const { key, value, ts } of records) {
      const { ordinal, replaces } = this.survivors.add({ key, value });
      if (replaces !== undefined) this.held.delete(replaces);
      const record = { key: Buffer.from(key), value: value === null ? null : Buffer.from(value) };
      this.noteId(this.seen, record);
      if (record.value !== null)
        this.held.set(ordinal, { ...record, ...(ts === undefined || ts === 0 ? {} : { ts }) });
    }
  }

  private noteId(greatest: Map<string, number>, encoded: LogRecord): void {
    const decoded = decodeRecord(encoded);
    if (isForeign(decoded)) this.foreign = true;
    if (!('record' in decoded)) return;
    const { record } = decoded;
    if (record.kind === 'origin') this.origin = record.value !== null;
    if (record.kind === 'schema') this.schemas = true;
    if (record.kind !== 'schema' && record.kind !== 'maxId') return;
    const context = record.kind === 'schema' ? contextOf(record.subject) : record.context;
    const id = record.kind === 'schema' ? record.value?.id : record.value;
    if ((id ?? 0) > (greatest.get(context) ?? 0)) greatest.set(context, id as number);
  }

  async records(): Promise<LogRecord[]> {
    // The pause does nothing: no other work runs in the process of an export or import.
    const kept = await this.survivors.kept(async () => {});
    const records = [...this.held].filter(([ordinal]) => kept[ordinal] === 1).map(([, record]) => record);
    const told = new Map<string, number>();
    for (const record of records) this.noteId(told, record);
    // Records the greatest id of a removed schema, which no surviving record proves.
    for (const [context, value] of this.seen)
      if (value > (told.get(context) ?? 0)) records.push(encodeRecord({ kind: 'maxId', context, value }));
    return records;
  }

  /** Records to export, with the verdict policy of the log's origin, which a store of another kind
   *  cannot derive.
   */
  async told(): Promise<LogRecord[]> {
    const records = await this.records();
    if (this.schemas && !this.origin)
      records.push(encodeRecord({ kind: 'origin', value: this.foreign ? 'STRICT' : 'PROVEN' }));
    return records;
  }
}

async function contentsOf(log: RegistryLog): Promise<Contents> {
  const contents = new Contents(log.shared === true);
  await log.open({ apply: (records) => contents.add(records) });
  await log.catchUp();
  return contents;
}

function field(name: string, bytes: Uint8Array): Record<string, string> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = buffer.toString('utf8');
  return Buffer.from(text, 'utf8').equals(buffer)
    ? { [name]: text }
    : { [`${name}Base64`]: buffer.toString('base64') };
}

function lineOf({ key, value, ts }: LogRecord): string {
  return JSON.stringify({
    ...field('key', key),
    ...(value === null ? { value } : field('value', value)),
    ...(ts === undefined ? {} : { ts }),
  });
}

/** Exports a log: opens it, reads it and closes it. @returns the number of records */
export async function exportStore(log: RegistryLog, write: (line: string) => Promise<void>): Promise<number> {
  try {
    const records = await (await contentsOf(log)).told();
    const hash = createHash('sha256');
    const put = async (line: string): Promise<void> => {
      hash.update(line);
      await write(line);
    };
    await put(`${JSON.stringify({ millrace: 'registry', format: FORMAT })}\n`);
    for (const record of records) await put(`${lineOf(record)}\n`);
    await write(`${JSON.stringify({ records: records.length, sha256: hash.digest('hex') })}\n`);
    return records.length;
  } finally {
    await log.close();
  }
}

function malformed(line: number, why: string): Error {
  return registryError('malformed_export', `line ${line} of the export ${why}`, {
    next: 'export the store again; nothing was written',
  });
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function bytesOf(fields: Readonly<Record<string, unknown>>, name: string): Buffer | undefined {
  const text = fields[name];
  if (typeof text === 'string') return Buffer.from(text, 'utf8');
  const base64 = fields[`${name}Base64`];
  return typeof base64 === 'string' ? Buffer.from(base64, 'base64') : undefined;
}

/** Reads an export to its end and checks it before any record is used. @throws malformed_export */
async function readExport(lines: AsyncIterable<string>): Promise<LogRecord[]> {
  const records: LogRecord[] = [];
  const hash = createHash('sha256');
  let number = 0;
  let isWhole = false;
  for await (const line of lines) {
    number++;
    if (isWhole) throw malformed(number, 'follows its end');
    let fields: unknown;
    try {
      fields = JSON.parse(line);
    } catch {
      throw malformed(number, 'is not JSON');
    }
    if (!isObject(fields)) throw malformed(number, 'is not a JSON object');
    if (number === 1) {
      if (fields['millrace'] !== 'registry' || fields['format'] !== FORMAT)
        throw malformed(number, `is not the first line of an export of format ${FORMAT}`);
    } else if (typeof fields['sha256'] === 'string') {
      if (fields['records'] !== records.length || fields['sha256'] !== hash.copy().digest('hex'))
        throw malformed(number, 'does not match the count or checksum of the lines before it');
      isWhole = true;
    } else records.push(recordOf(fields, number));
    hash.update(`${line}\n`);
  }
  if (!isWhole) throw malformed(number + 1, 'is missing: the file was cut short');
  return records;
}

function recordOf(fields: Readonly<Record<string, unknown>>, line: number): LogRecord {
  const key = bytesOf(fields, 'key');
  const value = fields['value'] === null ? null : bytesOf(fields, 'value');
  const ts = fields['ts'];
  if (key === undefined || value === undefined) throw malformed(line, 'has no key or no value');
  return { key, value, ...(typeof ts === 'number' ? { ts } : {}) };
}

function isSame(a: LogRecord | undefined, b: LogRecord | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  const isValueSame =
    a.value === null || b.value === null ? a.value === b.value : Buffer.compare(a.value, b.value) === 0;
  return Buffer.compare(a.key, b.key) === 0 && isValueSame;
}

/** Number of leading records of `wanted` that the store holds, if it holds nothing else. */
function prefixOf(held: readonly LogRecord[], wanted: readonly LogRecord[]): number | undefined {
  return held.length <= wanted.length && held.every((record, i) => isSame(record, wanted[i]))
    ? held.length
    : undefined;
}

export interface Imported {
  readonly records: number;
  /** Records written by this import; fewer where the store held the first ones already. */
  readonly written: number;
}

/** Imports an export into a store, then reads the store again to verify it.
 *  @param openLog opens the store, anew for each reading
 *  @throws malformed_export, store_not_empty, store_failed, not_leader
 */
export async function importStore(
  openLog: () => RegistryLog,
  lines: AsyncIterable<string>,
  clock: Timers,
): Promise<Imported> {
  // A file made elsewhere may contain a key twice, or remove it again.
  const contents = new Contents(false);
  contents.add(await readExport(lines));
  const wanted = await contents.records();
  const log = openLog();
  let held: number | undefined;
  try {
    held = prefixOf(await (await contentsOf(log)).records(), wanted);
    if (held === undefined) {
      throw registryError('store_not_empty', `${log.name} holds other records than the export`, {
        next: 'import into an empty store',
      });
    }
    if (held < wanted.length) await put(log, wanted, held, clock);
  } finally {
    await log.close();
  }
  const again = openLog();
  try {
    const found = await (await contentsOf(again)).records();
    const at = wanted.findIndex((record, i) => !isSame(record, found[i]));
    if (at >= 0 || found.length !== wanted.length) {
      throw registryError(
        'store_corrupt',
        `${again.name} does not hold what was written: record ${at < 0 ? wanted.length + 1 : at + 1} differs`,
        { next: 'stop any other writer of the store, and import into an empty store' },
      );
    }
  } finally {
    await again.close();
  }
  return { records: wanted.length, written: wanted.length - held };
}

async function put(
  log: RegistryLog,
  wanted: readonly LogRecord[],
  held: number,
  clock: Timers,
): Promise<void> {
  if (held === 0 && log.fill !== undefined) return log.fill(wanted);
  await lead(log, clock);
  let batch: LogRecord[] = [];
  let bytes = 0;
  for (const [i, record] of wanted.entries()) {
    if (i < held) continue;
    batch.push(record);
    bytes += record.key.length + (record.value?.length ?? 0);
    if (batch.length < APPEND_RECORDS_MAX && bytes < APPEND_BYTES_MAX && i < wanted.length - 1) continue;
    await log.append(batch);
    batch = [];
    bytes = 0;
  }
}

/** Waits until this process is the leader: a store of several processes elects its writer. */
async function lead(log: RegistryLog, clock: Timers): Promise<void> {
  for (let waited = 0; !log.role().leader; waited += LEADER_POLL_MS) {
    if (waited >= LEADER_WAIT_MS) {
      throw registryError('not_leader', `${log.name} has another writer, so nothing can be imported`, {
        next: 'stop the registries that use it first',
      });
    }
    await sleep(clock, LEADER_POLL_MS);
  }
}
