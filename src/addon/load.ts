/** Loads the addon: finds it, checks its identity, and selects between it and the TypeScript
 *  reference implementation.
 *
 *  There is no silent fallback. `on` requires the addon, `off` never loads it. Only `auto` without
 *  a built addon falls back to the reference implementation, with a reason for the log. */
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
  /** Reason of the choice, for the log. */
  readonly reason: string;
  /** True when the user should be warned: the reference implementation runs without a request. */
  readonly warn: boolean;
}

/** Nearest folder above this file that holds package.json: sources and compiled files have
 *  different depths. */
function packageRoot(): string {
  let at = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(at, 'package.json')) && at !== dirname(at)) at = dirname(at);
  return at;
}

/** Command that builds the addons, in the folder of this package: a project that depends on the
 *  package has no such script of its own. */
export const buildCommand = (): string => `cd ${packageRoot()} && npm run build:native`;

const buildHint = (): string =>
  `run \`${buildCommand()}\` with the packages of docs/how-to/install.md, or set MILLRACE_NATIVE=off to run on the TypeScript reference implementation`;

/** True where programs of musl can run. A machine of glibc may have the loader of musl too. */
const hasMuslLoader = (): boolean =>
  existsSync('/lib') && readdirSync('/lib').some((name) => name.startsWith('ld-musl-'));

/** C library of this process, as node-pre-gyp names it. */
function libc(): string {
  if (process.platform !== 'linux') return 'unknown';
  // A process report is slow, so it is made only where it can show another library than glibc.
  if (!hasMuslLoader()) return 'glibc';
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime === undefined ? 'musl' : 'glibc';
}

/** Installed build for this machine, for example `prebuilds/linux-x64-glibc/millrace.node`. */
function findInstalled(folder: string, file: string): string | undefined {
  if (!existsSync(folder)) return undefined;
  const path = join(folder, `${process.platform}-${process.arch}-${libc()}`, file);
  return existsSync(path) ? path : undefined;
}

/** Path of the addon: the installed build, or else the output of node-gyp. Null when it was not
 *  built. */
export function findAddon(root: string = packageRoot(), file = 'millrace.node'): string | null {
  const built = join(root, 'build', 'Release', file);
  return findInstalled(join(root, 'prebuilds'), file) ?? (existsSync(built) ? built : null);
}

/** Reads MILLRACE_NATIVE: `on`, `off`, or `auto` (also when empty). @throws bad_value */
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
        ? { mode: 'reference', reason: `the addon is not built; ${buildHint()}`, warn: true }
        : { mode: 'native', reason: 'the addon is built', warn: false };
    default:
      throw coreError('bad_value', `MILLRACE_NATIVE is on, off or auto, not ${JSON.stringify(setting)}`);
  }
}

const loaded = new Map<string, Addon>();

/** Loads the addon, once in each thread.
 *  @throws addon_missing when it was not built or does not load
 *  @throws addon_mismatch when it was built from other sources */
export function loadAddon(path: string | null = findAddon()): Addon {
  if (path === null) throw coreError('addon_missing', 'the native addon is not built', { next: buildHint() });
  const known = loaded.get(path);
  if (known !== undefined) return known;
  let addon: Partial<Addon>;
  try {
    addon = createRequire(import.meta.url)(path) as Partial<Addon>;
  } catch (cause) {
    const why = (cause as Error).message.split('\n')[0];
    throw coreError('addon_missing', `the native addon does not load: ${why}`, { next: buildHint(), cause });
  }
  if (addon.layoutFingerprint !== LAYOUT_FINGERPRINT || addon.abi !== ADDON_ABI) {
    const is = `layout=${hex(addon.layoutFingerprint)} abi=${addon.abi}`;
    const should = `layout=${hex(LAYOUT_FINGERPRINT)} abi=${ADDON_ABI}`;
    throw coreError('addon_mismatch', `the native addon was built from other sources: ${is}, not ${should}`, {
      next: buildHint(),
    });
  }
  loaded.set(path, addon as Addon);
  return addon as Addon;
}

const hex = (word: number | undefined): string => (word === undefined ? 'none' : `0x${word.toString(16)}`);

/** Runs a call of the addon and converts its coded errors to MillraceError. A TypeError is a bug of
 *  the caller and stays unchanged. */
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

/** Bytes of a batch, after a check that views and header agree. */
function checked(batch: Parameters<typeof demandHeader>[0], name: string): BatchBytes {
  demandHeader(batch, name);
  return batchBytes(batch);
}

function nativeKernels(addon: Addon, shards: number): Kernels {
  // The garbage collector and the end of the environment close it.
  const decoder = shards === 1 ? undefined : callAddon(() => addon.eventDecoderOpen(shards));
  const decode = (records: BatchBytes, into: BatchBytes): number =>
    decoder === undefined
      ? addon.decodeEvents(records, into)
      : addon.eventDecoderDecode(decoder, records, into);
  return {
    name: 'native',
    shardOf: (events, shards, out) => callAddon(() => addon.shardOf(checked(events, 'events'), shards, out)),
    decodeEvents: (records, into) =>
      callAddon(() => decode(checked(records, 'records'), checked(into, 'into'))),
    scanFrames: (records, protobuf, into) =>
      callAddon(() => addon.scanFrames(checked(records, 'records'), protobuf, checked(into, 'into'))),
    writeFrames: (payloads, start, length, count, schemaId, indexes, into) =>
      callAddon(() =>
        addon.writeFrames(payloads, start, length, count, schemaId, indexes, checked(into, 'into')),
      ),
  };
}

/** Selects the kernels: the addon or the reference implementation.
 *  @param shards the addon decodes events by as many threads, at most one a core
 *  @throws addon_missing, addon_mismatch as `loadAddon` does; out_of_range unless there are 1 to
 *  256 shards */
export function loadKernels(mode: NativeMode, shards = 1): Kernels {
  return mode === 'native' ? nativeKernels(loadAddon(), shards) : referenceKernels;
}
