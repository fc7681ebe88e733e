/** POST /savepoints holds a checkpoint of now, GET reads its files piece by piece, DELETE releases
 *  it. `millrace engine savepoint -url` is the client. */
import type { HttpRequest, HttpResponse } from '../../io/http/port.ts';
import { PIECE_BYTES, type StateFile } from '../durability/savepoint/files.ts';
import { engineError } from '../errors.ts';

/** A checkpoint that is held for a reader. */
export interface SavepointHead {
  readonly id: string;
  readonly files: readonly StateFile[];
}

export interface SavepointQueries {
  /** Makes a checkpoint and holds its files. @throws savepoint_busy */
  create(): Promise<SavepointHead>;
  /** Reads bytes of the file with this number; none at its end. @throws savepoint_missing */
  read(id: string, number: number, from: number, bytesMax: number): Promise<Uint8Array>;
  /** @throws savepoint_missing */
  remove(id: string): Promise<void>;
}

/** Greatest number of a file or of a byte in it, 15 digits. */
export const OFFSET_MAX = 999_999_999_999_999;
const JSON_HEADERS = { 'content-type': 'application/json' };

function numberIn(name: string, text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw engineError('bad_range', `${name} ${JSON.stringify(text.slice(0, 32))} is not a number`, {
    next: `give ${name} in decimal digits`,
  });
}

export async function createSavepoint(savepoints: SavepointQueries): Promise<HttpResponse> {
  const { id, files } = await savepoints.create();
  const body = { id, files: files.map(({ path, bytes }) => ({ path, bytes })) };
  return { status: 201, headers: JSON_HEADERS, body: JSON.stringify(body) };
}

export async function readSavepoint(
  savepoints: SavepointQueries,
  { params, query }: HttpRequest,
): Promise<HttpResponse> {
  const number = numberIn('the number of a file', params['file'] ?? '');
  const from = numberIn('from', query.get('from') ?? '0');
  const body = await savepoints.read(params['id'] ?? '', number, from, PIECE_BYTES);
  return { status: 200, headers: { 'content-type': 'application/octet-stream' }, body };
}

export async function removeSavepoint(
  savepoints: SavepointQueries,
  { params }: HttpRequest,
): Promise<HttpResponse> {
  await savepoints.remove(params['id'] ?? '');
  return { status: 204 };
}
