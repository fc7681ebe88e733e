/** Objects of a checkpoint store: the lease of the job, and its head, which lists the files of the
 *  newest checkpoint. Both are replaced by their tag alone, so an owner that was replaced writes
 *  neither. */
import { crc32 } from 'node:zlib';
import type { FileEntry } from '../../../engine/durability/checkpoint/whole-file.ts';
import { placeOfPath } from '../../../engine/durability/savepoint/files.ts';
import type { StoredObject } from '../../../io/objects/port.ts';

export const LEASE = 'lease.json';
export const HEAD = 'head.json';
/** Prefix of the parts of files, by the epoch of their writer. */
export const FILES = 'files/';

const LEASE_FORMAT = 'millrace-engine-lease';
const HEAD_FORMAT = 'millrace-engine-store';
const VERSION = 1;
const FILES_MAX = 1_000_000;
/** Path in the state folder of a window. */
const PATH = /^(?:(?:spill|keys|fired)\/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}$/;
const PART = /^files\/\d{1,15}\/\d{1,15}$/;

export interface Lease {
  /** Rises by one with each owner. */
  readonly epoch: number;
  /** Process and machine, for messages. */
  readonly owner: string;
  /** Number of renewals by this owner. */
  readonly renewals: number;
  /** True: the owner has ended. */
  readonly released: boolean;
}

/** File of a checkpoint, in parts. `name` is its path in the state folder. */
export interface StoredFile extends FileEntry {
  readonly parts: readonly string[];
}

export interface Head {
  readonly epoch: number;
  readonly checkpointId: number;
  readonly ts: number;
  readonly files: readonly StoredFile[];
}

const encode = (format: string, fields: object): Uint8Array => {
  const body = JSON.stringify({ format, version: VERSION, ...fields });
  return new TextEncoder().encode(`${body}\ncrc32 ${crc32(body).toString(16).padStart(8, '0')}\n`);
};

type Fields = Readonly<Record<string, unknown>>;
const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Fields of an object; undefined: the bytes are none of this format. */
function decode(format: string, bytes: Uint8Array): Fields | undefined {
  const match = /^(.*)\ncrc32 ([0-9a-f]{8})\n$/s.exec(new TextDecoder().decode(bytes));
  if (match === null || crc32(match[1] as string) !== Number.parseInt(match[2] as string, 16))
    return undefined;
  try {
    const read: unknown = JSON.parse(match[1] as string);
    return isObject(read) && read['format'] === format && read['version'] === VERSION ? read : undefined;
  } catch {
    return undefined;
  }
}

export const encodeLease = (lease: Lease): Uint8Array => encode(LEASE_FORMAT, lease);

export function decodeLease({ bytes }: StoredObject): Lease | undefined {
  const { epoch, owner, renewals, released } = decode(LEASE_FORMAT, bytes) ?? {};
  if (!isCount(epoch) || typeof owner !== 'string' || !isCount(renewals) || typeof released !== 'boolean')
    return undefined;
  return { epoch, owner, renewals, released };
}

export const encodeHead = (head: Head): Uint8Array => encode(HEAD_FORMAT, head);

export function decodeHead({ bytes }: StoredObject): Head | undefined {
  const { epoch, checkpointId, ts, files } = decode(HEAD_FORMAT, bytes) ?? {};
  if (!isCount(epoch) || !isCount(checkpointId) || !isCount(ts)) return undefined;
  if (!Array.isArray(files) || files.length === 0 || files.length > FILES_MAX) return undefined;
  const isFile = (item: unknown): item is StoredFile => {
    const { name, bytes: size, crc32: crc, parts } = (isObject(item) ? item : {}) as Partial<StoredFile>;
    const isEntry =
      typeof name === 'string' && PATH.test(placeOfPath(name).path) && isCount(size) && isCount(crc);
    return (
      isEntry && Array.isArray(parts) && parts.every((part) => typeof part === 'string' && PART.test(part))
    );
  };
  return files.every(isFile) ? { epoch, checkpointId, ts, files } : undefined;
}
