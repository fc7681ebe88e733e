/** Library that is preloaded into a process to fill its disk or step its clock
 *  (native/chaos/fault_shim.c), and the page of memory through which this process commands it.
 *
 *  The library is compiled when it is needed: a machine that injects these faults has a C compiler,
 *  and no other machine needs one. */
import { spawnSync } from 'node:child_process';
import { chmodSync, closeSync, existsSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { stackError } from './errors.ts';
import { packageRoot } from './files.ts';

const sourcePath = (): string => join(packageRoot(), 'native', 'chaos', 'fault_shim.c');
/** Variable of a preloaded process with the path of its page. */
const CONTROL_VARIABLE = 'MILLRACE_CHAOS_CONTROL';
const PAGE_BYTES = 4096;
/** Offsets of `struct control`. */
const AT = { isFull: 0, refused: 8, clockNs: 16, clockReads: 24, folder: 32 } as const;
const NS_PER_MS = 1_000_000n;

/** Compiler of the shim; undefined: this machine has none, or is no Linux. */
export function shimCompiler(environment: NodeJS.ProcessEnv): string | undefined {
  if (process.platform !== 'linux') return undefined;
  const candidates = [environment['CC'], 'cc', 'gcc', 'clang'].filter((one) => one !== undefined);
  return candidates.find((one) => spawnSync(one, ['--version'], { stdio: 'ignore' }).status === 0);
}

/** Page of a preloaded process. */
export class ShimControl {
  /** Variables of the process. */
  readonly environment: Readonly<Record<string, string>>;
  private readonly file: number;

  /** @param path of the page, which is created
   *  @param folder absolute path without links; its files cannot grow while the disk is full */
  constructor(library: string, path: string, environment: NodeJS.ProcessEnv, folder = '') {
    this.file = openSync(path, 'w+', 0o600);
    // PostgreSQL may run as another user.
    chmodSync(path, 0o666);
    const page = Buffer.alloc(PAGE_BYTES);
    page.write(folder, AT.folder);
    writeSync(this.file, page, 0, PAGE_BYTES, 0);
    const others = environment['LD_PRELOAD'];
    this.environment = {
      LD_PRELOAD: others === undefined || others === '' ? library : `${library}:${others}`,
      [CONTROL_VARIABLE]: path,
    };
  }

  setFull(isFull: boolean): void {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(isFull ? 1 : 0);
    writeSync(this.file, bytes, 0, bytes.length, AT.isFull);
  }

  /** Shifts the wall clock of the process; 0: the clock of the machine. */
  stepClock(ms: number): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(Math.round(ms)) * NS_PER_MS);
    writeSync(this.file, bytes, 0, bytes.length, AT.clockNs);
  }

  /** Writes that were refused since the start of the process. */
  get refused(): number {
    return this.count(AT.refused);
  }

  /** Times that the process read a stepped clock. */
  get clockReads(): number {
    return this.count(AT.clockReads);
  }

  close(): void {
    closeSync(this.file);
  }

  private count(at: number): number {
    const bytes = Buffer.alloc(8);
    readSync(this.file, bytes, 0, bytes.length, at);
    return Number(bytes.readBigUInt64LE());
  }
}

/** Compiled library, and the pages of the processes that it is preloaded into. */
export class FaultShim {
  private readonly dir: string;
  private readonly library: string;
  private readonly environment: NodeJS.ProcessEnv;
  private readonly controls: ShimControl[] = [];

  /** Compiles the library. @param dir existing folder of this run
   *  @throws missing_tool */
  constructor(dir: string, environment: NodeJS.ProcessEnv) {
    this.dir = dir;
    this.environment = environment;
    this.library = join(dir, 'fault-shim.so');
    const compiler = shimCompiler(environment);
    const next = 'install gcc (Debian: apt-get install gcc libc6-dev), or leave these faults out of -faults';
    if (compiler === undefined)
      throw stackError('missing_tool', 'a full disk and a stepped clock need Linux and a C compiler', {
        next,
      });
    const flags = ['-O2', '-fPIC', '-shared', '-o', this.library, sourcePath(), '-ldl', '-pthread'];
    const built = spawnSync(compiler, flags, { encoding: 'utf8' });
    if (built.status !== 0 || !existsSync(this.library))
      throw stackError(
        'missing_tool',
        `${compiler} cannot compile ${sourcePath()}: ${built.stderr.split('\n')[0]}`,
        {
          next,
        },
      );
    // PostgreSQL may run as another user.
    chmodSync(this.library, 0o755);
  }

  /** Page of a process that will be started with its `environment`.
   *  @param folder see ShimControl */
  control(name: string, folder?: string): ShimControl {
    const control = new ShimControl(
      this.library,
      join(this.dir, `${name}.control`),
      this.environment,
      folder,
    );
    this.controls.push(control);
    return control;
  }

  close(): void {
    for (const control of this.controls) control.close();
  }
}
