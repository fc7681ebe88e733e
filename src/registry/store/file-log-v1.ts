/** The first form of the registry's file: the same frames, each with one event as JSON. It is read once and written
 *  anew in the present form.
 *
 *    {"kind":"schema","subject":s,"version":n,"id":n,"format":f,"text":t}    {"kind":"level","subject":s|null,"level":l}
 */
import { registryError } from '../errors.ts';
import { FRAME_HEADER_BYTES, judgeTail, payloadAt } from './frames.ts';
import type { LogRecord } from './log.ts';
import { decodeRecord, encodeRecord, type StoreRecord } from './records.ts';

export const MAGIC_V1 = Buffer.from('MRREGLG1', 'latin1');

function recordOf(payload: Buffer): StoreRecord | undefined {
  let event: Readonly<Record<string, unknown>>;
  try {
    event = JSON.parse(payload.toString('utf8')) as Readonly<Record<string, unknown>>;
  } catch {
    return undefined;
  }
  const { kind, subject, version, id, format, text, level } = event;
  if (kind === 'schema') {
    const value = { id, format, text, references: [], deleted: false };
    return { kind, subject, version, value } as unknown as StoreRecord;
  }
  if (kind === 'level') {
    return { kind: 'config', subject, value: { compatibilityLevel: level } } as unknown as StoreRecord;
  }
  return undefined;
}

/** @param bytes the whole file @throws store_corrupt */
export function readVersion1(bytes: Buffer, path: string): { records: LogRecord[]; tornBytes: number } {
  const records: LogRecord[] = [];
  let at = MAGIC_V1.length;
  const corrupt = (): Error =>
    registryError('store_corrupt', `${path} is damaged at byte ${at}`, {
      next: 'restore the file from a backup; nothing was changed',
    });
  for (let payload = payloadAt(bytes, at); payload !== undefined; payload = payloadAt(bytes, at)) {
    const record = recordOf(payload);
    const encoded = record === undefined ? undefined : encodeRecord(record);
    // What the events said is checked where all records are.
    if (encoded === undefined || !('record' in decodeRecord(encoded))) throw corrupt();
    records.push(encoded);
    at += FRAME_HEADER_BYTES + payload.length;
  }
  const tail = bytes.subarray(at);
  if (judgeTail(tail, at) === 'damaged') throw corrupt();
  return { records, tornBytes: tail.length };
}
