/** The guard: a small shell process that is the parent of a stack's servers and ends them when
 *  their owner dies.
 *
 *  Its stdin is a pipe that only the owner holds. The pipe closes when the owner ends, however it
 *  ends; then the guard ends the servers and removes an ephemeral folder. Invariants: (1) the guard
 *  starts every server, so that no server ever runs unguarded; (2) a released guard stays the
 *  servers' parent until they end, so that no zombie is left where process 1 reaps none; (3)
 *  servers have a parent-death signal where the system supports it, so that killing the guard kills
 *  them too.
 *
 *  Protocol on stdin: `start NAME SIGNAL` runs `run/NAME.sh` of the folder and answers `NAME PID`;
 *  SIGNAL ends that server immediately and cleanly. `release` answers `released`. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { stackError } from './errors.ts';
import { identify, type ProcessId, runs } from './process.ts';

const GRACE_SECONDS = '0.5';

// If the owner dies right after a command, no process reads the answer: the write must not end the
// guard. Hence the trap of PIPE.
export const GUARD_SCRIPT = `
trap : HUP INT TERM PIPE
remove=$1
servers=
while IFS=' ' read -r verb name signal; do
  case $verb in
    start)
      sh "run/$name.sh" </dev/null >>"logs/$name.log" 2>&1 &
      servers="$servers $signal:$!"
      echo "$name $!"
      ;;
    release)
      echo released
      exec >/dev/null 2>&1
      wait
      exit 0
      ;;
  esac
done
exec >/dev/null 2>&1
for server in $servers; do kill -"\${server%%:*}" "\${server#*:}"; done
[ -n "$servers" ] && sleep ${GRACE_SECONDS}
for server in $servers; do kill -KILL "\${server#*:}"; done
wait
[ -n "$remove" ] && cd / && rm -rf -- "$remove"
exit 0
`;

export interface GuardOptions {
  /** Contains `run` and `logs`; becomes the working folder of the servers. */
  readonly folder: string;
  /** Folder that is removed when the guard ends the servers. */
  readonly removeAtEnd: string | undefined;
}

/** Command prefix that makes a command die with its parent; empty where the system does not support
 *  it. */
export function deathSignalWords(): readonly string[] {
  const words = ['setpriv', '--pdeathsig', 'KILL'];
  return process.platform === 'linux' && runs('setpriv', ['--pdeathsig', 'KILL', 'true']) ? words : [];
}

export class Guard {
  readonly #child: ChildProcess;
  readonly #waiting: ((line: string | undefined) => void)[] = [];
  #ended = false;

  constructor(options: GuardOptions) {
    this.#child = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'millrace-guard', options.removeAtEnd ?? ''], {
      cwd: options.folder,
      stdio: ['pipe', 'pipe', 'ignore'],
      // In its own session: a terminal's interrupt reaches only the owner, which then decides.
      detached: true,
    });
    const end = () => {
      this.#ended = true;
      for (const settle of this.#waiting.splice(0)) settle(undefined);
    };
    this.#child.on('error', end);
    this.#child.on('exit', end);
    this.#child.stdin?.on('error', end);
    createInterface({ input: this.#child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      this.#waiting.shift()?.(line);
    });
    // The guard must not keep the owner's event loop alive.
    this.#child.unref();
    for (const stream of [this.#child.stdin, this.#child.stdout])
      (stream as { unref?(): void } | null)?.unref?.();
  }

  #ask(line: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const gone = () =>
        reject(
          stackError('server_failed', 'the guard process of the servers ended', { next: 'run it again' }),
        );
      if (this.#ended) return gone();
      const keepAlive = setInterval(() => {}, 1 << 30);
      this.#waiting.push((answer) => {
        clearInterval(keepAlive);
        if (answer === undefined) gone();
        else resolve(answer);
      });
      this.#child.stdin?.write(`${line}\n`);
    });
  }

  /** Runs `run/<name>.sh`. `endSignal` ends the server immediately and lets it release resources
   *  that the system would keep. */
  async start(name: string, endSignal: 'KILL' | 'QUIT'): Promise<ProcessId> {
    const answer = await this.#ask(`start ${name} ${endSignal}`);
    const id = identify(Number(answer.slice(name.length + 1)));
    if (id === undefined)
      throw stackError('server_failed', `${name} ended as it started`, { next: `see logs/${name}.log` });
    return id;
  }

  /** Gives up ownership: the servers then run until they are stopped, even if this process ends. */
  async release(): Promise<void> {
    await this.#ask('release');
    this.#child.stdin?.destroy();
    this.#child.stdout?.destroy();
  }

  /** Ends the running servers immediately, then the guard. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const exited = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.stdin?.end();
    await exited;
  }
}
