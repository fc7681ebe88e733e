/** `millrace engine savepoint`: saves the state of a running engine, read over HTTP, or of a
 *  stopped one, read from its folder. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { coreError, EXIT } from '../../../core/errors.ts';
import type { SettingTable } from '../../../core/settings.ts';
import type { SavepointHead } from '../../../engine/api/savepoints.ts';
import {
  newestCheckpoint,
  PIECE_BYTES,
  prefixOf,
  type StateFile,
  WINDOWS_FILE,
} from '../../../engine/durability/savepoint/files.ts';
import { isSavepointPath } from '../../../engine/durability/savepoint/manifest.ts';
import { engineError } from '../../../engine/errors.ts';
import { existingDisk } from '../../../io/disk/node.ts';
import { nodeHttpClientDriver } from '../../../io/http/client.ts';
import type { HttpClient, HttpClientReply } from '../../../io/http/client-port.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { credentialsAt } from '../../../shell/credentials.ts';
import { lockDriver } from '../../../shell/drivers.ts';
import { demandNoSetIn, namesInSet } from '../windows/state.ts';
import { foldersOf, type StateSource, sizeIn, storeFiles, writeSavepoint } from './folder.ts';
import type { SavepointSettings } from './settings.ts';

/** Time limit of one request: a checkpoint of a large state takes seconds. */
const REQUEST_TIMEOUT_MS = 120_000;
/** Largest reply: the list of files, 200 bytes each. */
const REPLY_BYTES_MAX = 64 * 1024 * 1024;
const CLIENT_FLAGS = { server: 'engine', address: 'url', user: 'url', tokenFile: 'url-token-file' } as const;

type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: SavepointSettings & { readonly 'state-dir': string; readonly native: string };
};

export async function saveState(context: Context): Promise<number> {
  const { settings, clock } = context;
  const { out, url } = settings;
  if (out === undefined)
    throw coreError('usage', 'engine savepoint needs -out', {
      next: 'give -out=DIR, a folder that does not exist',
    });
  const locks = await lockDriver(context);
  const { source, done } =
    url === undefined ? await sourceOfFolder(context) : await sourceOfEngine(context, url);
  try {
    const savepoint = await writeSavepoint(out, source, { locks, nowMs: clock.wallNowMs() });
    const bytes = savepoint.files.reduce((sum, file) => sum + file.bytes, 0);
    const { id, states, files } = savepoint;
    const [{ window, checkpointId, job }] = states;
    const what =
      window === undefined
        ? { text: `checkpoint ${checkpointId}`, fields: { checkpoint: checkpointId } }
        : {
            text: `the windows ${states.map((state) => state.window).join(', ')}`,
            fields: {
              windows: Object.fromEntries(states.map((state) => [state.window, state.checkpointId])),
            },
          };
    context.print(
      `saved ${what.text} of topic ${job.topic} in ${out}: ${files.length} files, ${bytes} bytes; start a new job with -savepoint=${out}`,
      { savepoint: id, ...what.fields, topic: job.topic, folder: out, files: files.length, bytes },
    );
    return EXIT.done;
  } finally {
    await done();
  }
}

interface OpenSource {
  readonly source: StateSource;
  readonly done: () => Promise<void>;
}

/** State of a stopped engine. @throws state_locked, state_corrupt, savepoint_missing */
async function sourceOfFolder(context: Context): Promise<OpenSource> {
  const folder = context.settings['state-dir'];
  if (!existsSync(folder))
    throw engineError('savepoint_missing', `there is no -state-dir ${folder}`, {
      next: 'give -state-dir=DIR of a stopped engine, or -url of a running one',
    });
  const disk = await existingDisk(folder);
  const above = join(folder, '..', '..');
  if (existsSync(join(above, WINDOWS_FILE))) await demandNoSetIn(await existingDisk(above));
  const outcome = await (await lockDriver(context)).tryLock(folder);
  if ('holder' in outcome)
    throw engineError('state_locked', `${folder} is in use by ${outcome.holder}`, {
      next: 'give -url=http://HOST:PORT of that engine (its -listen), or stop it',
    });
  const done = async (): Promise<void> => outcome.lock.release();
  try {
    const windows = await namesInSet(disk);
    const files: StateFile[] =
      windows === undefined ? [] : [{ path: WINDOWS_FILE, bytes: await sizeIn(folder)(WINDOWS_FILE) }];
    for (const prefix of windows?.map(prefixOf) ?? [''])
      for (const { path, bytes } of await filesOfState(context, join(folder, prefix)))
        files.push({ path: `${prefix}${path}`, bytes });
    const placeOf = await foldersOf(
      folder,
      files.map(({ path }) => path),
      existingDisk,
    );
    const read: StateSource['read'] = (path, from, bytesMax) => {
      const { disk: place, name } = placeOf(path);
      return place.readPiece(name, from, bytesMax);
    };
    return { source: { files, read }, done };
  } catch (thrown) {
    await done();
    throw thrown;
  }
}

/** Files of the newest checkpoint in the folder of a window, and of its stores.
 *  @throws state_corrupt, savepoint_missing */
async function filesOfState({ log }: Context, folder: string): Promise<readonly StateFile[]> {
  const missing = (): Error =>
    engineError('savepoint_missing', `${folder} has no checkpoint`, {
      next: 'start the engine once, or give its -state-dir',
    });
  if (!existsSync(folder)) throw missing();
  const faults: string[] = [];
  const found = await newestCheckpoint(await existingDisk(folder), sizeIn(folder), (fault) => {
    faults.push(fault);
    log.warn({ fault }, 'checkpoint refused');
  });
  if (found === undefined && faults.length === 0) throw missing();
  if (found === undefined)
    throw engineError('state_corrupt', `no checkpoint in ${folder} can be saved: ${faults.join('; ')}`, {
      next: 'put the files back from a copy',
    });
  return [...found.files, ...(await storeFiles(folder))];
}

/** State of a running engine. @throws unreachable, savepoint_failed */
async function sourceOfEngine({ settings, log }: Context, address: string): Promise<OpenSource> {
  const tokenFile = settings['url-token-file'];
  if (!URL.canParse(address))
    throw coreError('bad_value', '-url is not an address', { next: 'give -url=http://HOST:PORT' });
  const { url, authorization } = credentialsAt(CLIENT_FLAGS, { address, user: undefined, tokenFile });
  const ca = settings['url-ca'];
  const client = nodeHttpClientDriver.open({
    target: url.replace(/\/$/, ''),
    ...(ca === undefined ? {} : { ca: readCa(ca) }),
    connectionsMax: 1,
    timeoutMs: REQUEST_TIMEOUT_MS,
    bodyBytesMax: REPLY_BYTES_MAX,
  });
  const send = async (method: string, path: string): Promise<HttpClientReply> => {
    const token = authorization();
    const headers = token === undefined ? {} : { authorization: token };
    return client.send({ method, path, headers, body: '' });
  };
  try {
    const head = headOf(demand(await send('POST', '/savepoints'), 201, 'makes no savepoint'));
    log.info({ savepoint: head.id, files: head.files.length }, 'the engine holds a checkpoint');
    const numbers = new Map(head.files.map(({ path }, number) => [path, number]));
    const read: StateSource['read'] = async (path, from, bytesMax) => {
      const reply = await send('GET', `/savepoints/${head.id}/${numbers.get(path)}?from=${from}`);
      return demand(reply, 200, `does not send ${path}`).subarray(0, Math.min(bytesMax, PIECE_BYTES));
    };
    return { source: { files: head.files, read }, done: () => release(client, send, head.id) };
  } catch (thrown) {
    client.close();
    throw thrown;
  }
}

async function release(
  client: HttpClient,
  send: (method: string, path: string) => Promise<unknown>,
  id: string,
): Promise<void> {
  // The engine releases it by itself after 10 minutes.
  await send('DELETE', `/savepoints/${id}`).catch(() => {});
  client.close();
}

function readCa(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw coreError('bad_file', `-url-ca=${path} cannot be read (${(cause as NodeJS.ErrnoException).code})`, {
      next: 'give a PEM file',
      cause,
    });
  }
}

function demand({ status, body }: HttpClientReply, wanted: number, what: string): Uint8Array {
  if (status === wanted) return body;
  throw engineError(
    'savepoint_failed',
    `the engine ${what}: it answers ${status} ${new TextDecoder().decode(body.subarray(0, 500))}`,
    {
      next:
        status === 401 || status === 403
          ? 'give credentials with the right to admin windows: user:password@ in -url, or -url-token-file'
          : 'check -url, and that the engine is restored (GET /ready)',
    },
  );
}

/** @throws savepoint_failed for an answer that is none of an engine */
function headOf(body: Uint8Array): SavepointHead {
  const fail = (): Error =>
    engineError('savepoint_failed', '-url is not the address of an engine of this version', {
      next: 'give the address of -listen of the engine',
    });
  let read: unknown;
  try {
    read = JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw fail();
  }
  const { id, files } = (read ?? {}) as { readonly id?: unknown; readonly files?: unknown };
  if (typeof id !== 'string' || !/^[\w-]{1,64}$/.test(id) || !Array.isArray(files) || files.length === 0)
    throw fail();
  const isFile = (item: unknown): item is SavepointHead['files'][number] => {
    const { path, bytes } = (item ?? {}) as { readonly path?: unknown; readonly bytes?: unknown };
    return (
      typeof path === 'string' &&
      isSavepointPath(path) &&
      Number.isSafeInteger(bytes) &&
      (bytes as number) >= 0
    );
  };
  if (!files.every(isFile)) throw fail();
  return { id, files };
}
