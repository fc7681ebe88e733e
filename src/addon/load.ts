/** The only door to the addon: finds it, checks its identity, and gives the kernels a choice of two.
 *
 *  There is no silent fallback. `on` demands the addon, `off` never touches it, and only where nothing is said and no
 *  addon was built do the twins stand in, with a reason for the log.
 */
import { existsSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CORE_ERRORS, coreError, MillraceError } from '../core/errors.ts';
import { LAYOUT_FINGERPRINT } from '../core/layout/layouts.gen.ts';
import type { BatchBytes } from './bytes.ts';
import { ADDON_ABI, type Addon, batchBytes } from './raw.ts';
import { demandHeader } from './reference/check.ts';
import { referenceKernels } from './reference/kernels.ts';
import type { Kernels } from './surface.ts';

export type NativeMode = 'native' | 'reference';

export interface NativeChoice {
  readonly mode: NativeMode;
  /** Why, for the log. */
  readonly reason: string;
  /** Whether the user should be told: the twins run though nobody asked for them. */
  readonly warn: boolean;
}

const BUILD = 'run `npm run build:native`, or set MILLRACE_NATIVE=off to run on the TypeScript twins';

/** The nearest folder above this file that holds package.json: sources and compiled files lie at different depths. */
function packageRoot(): string {
  let at = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(at, 'package.json')) && at !== dirname(at)) at = dirname(at);
  return at;
}

/** The C library of this process, as node-pre-gyp names it. */
function libc(): string {
  if (process.platform !== 'linux') return 'unknown';
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime === undefined ? 'musl' : 'glibc';
}

/** The installed build of this machine, `prebuilds/linux-x64-glibc/millrace.node`. */
function findInstalled(folder: string, file: string): string | undefined {
  if (!existsSync(folder)) return undefined;
  const machine = `${process.platform}-${process.arch}-`;
  const names = readdirSync(folder).filter(
    (name) => name.startsWith(machine) && existsSync(join(folder, name, file)),
  );
  // A process report is slow, so it is asked only where there is a choice.
  const name = names.length > 1 ? names.find((one) => one === `${machine}${libc()}`) : names[0];
  return name === undefined ? undefined : join(folder, name, file);
}

/** Where the addon is: the installed build first, then what node-gyp left. Null when it was not built. */
export function findAddon(root: string = packageRoot(), file = 'millrace.node'): string | null {
  const built = join(root, 'build', 'Release', file);
  return findInstalled(join(root, 'prebuilds'), file) ?? (existsSync(built) ? built : null);
}

/** What MILLRACE_NATIVE means: `on`, `off`, or nothing (`auto`). @throws bad_value */
export function chooseNative(setting: string | undefined, found: string | null = findAddon()): NativeChoice {
  switch (setting) {
    case 'on':
      return { mode: 'native', reason: 'MILLRACE_NATIVE=on', warn: false };
    case 'off':
      return { mode: 'reference', reason: 'MILLRACE_NATIVE=off', warn: false };
    case undefined:
    case '':
    case 'auto':
      return found === null
        ? { mode: 'reference', reason: `the addon is not built; ${BUILD}`, warn: true }
        : { mode: 'native', reason: 'the addon is built', warn: false };
    default:
      throw coreError('bad_value', `MILLRACE_NATIVE is on, off or auto, not ${JSON.stringify(setting)}`);
  }
}

const loaded = new Map<string, Addon>();

/** The addon, loaded once a thread.
 *  @throws addon_missing when it was not built or does not load, addon_mismatch when built from other sources */
export function loadAddon(path: string | null = findAddon()): Addon {
  if (path === null) throw coreError('addon_missing', 'the native addon is not built', { next: BUILD });
  const known = loaded.get(path);
  if (known !== undefined) return known;
  let addon: Partial<Addon>;
  try {
    addon = createRequire(import.meta.url)(path) as Partial<Addon>;
  } catch (cause) {
    const why = (cause as Error).message.split('\n')[0];
    throw coreError('addon_missing', `the native addon does not load: ${why}`, { next: BUILD, cause });
  }
  if (addon.layoutFingerprint !== LAYOUT_FINGERPRINT || addon.abi !== ADDON_ABI) {
    const is = `layout=${hex(addon.layoutFingerprint)} abi=${addon.abi}`;
    const should = `layout=${hex(LAYOUT_FINGERPRINT)} abi=${ADDON_ABI}`;
    throw coreError('addon_mismatch', `the native addon was built from other sources: ${is}, not ${should}`, {
      next: BUILD,
    });
  }
  loaded.set(path, addon as Addon);
  return addon as Addon;
}

const hex = (word: number | undefined): string => (word === undefined ? 'none' : `0x${word.toString(16)}`);

/** Runs a call of the addon and turns its coded errors into ours; a TypeError is a bug of the caller and stays one. */
export function callAddon<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    const code = (thrown as { code?: unknown }).code;
    if (!(thrown instanceof MillraceError) && typeof code === 'string' && Object.hasOwn(CORE_ERRORS, code)) {
      throw coreError(code as keyof typeof CORE_ERRORS, (thrown as Error).message, { cause: thrown });
    }
    throw thrown;
  }
}

/** A batch as its bytes, once views and header agree. */
function checked(batch: Parameters<typeof demandHeader>[0], name: string): BatchBytes {
  demandHeader(batch, name);
  return batchBytes(batch);
}

function nativeKernels(addon: Addon): Kernels {
  return {
    name: 'native',
    shardOf: (events, shards, out) => callAddon(() => addon.shardOf(checked(events, 'events'), shards, out)),
    decodeEvents: (records, into) =>
      callAddon(() => addon.decodeEvents(checked(records, 'records'), checked(into, 'into'))),
    scanFrames: (records, protobuf, into) =>
      callAddon(() => addon.scanFrames(checked(records, 'records'), protobuf, checked(into, 'into'))),
    writeFrames: (payloads, start, length, count, schemaId, indexes, into) =>
      callAddon(() =>
        addon.writeFrames(payloads, start, length, count, schemaId, indexes, checked(into, 'into')),
      ),
  };
}

/** The kernels of the addon, or their twins. @throws addon_missing, addon_mismatch as `loadAddon` does */
export function loadKernels(mode: NativeMode): Kernels {
  return mode === 'native' ? nativeKernels(loadAddon()) : referenceKernels;
}
