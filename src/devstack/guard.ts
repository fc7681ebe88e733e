/** The guard: a small shell process that is the parent of a stack's servers and outlives nobody it
 *  should not.
 *
 *  Its stdin is a pipe that only the owner holds. The pipe ends with the owner, however that dies,
 *  and then the guard ends the servers and removes an ephemeral folder. Invariants: (1) a server is
 *  started by the guard, so that there is no moment in which a server runs unguarded; (2) a
 *  released guard stays as the servers' parent until they end, so that no zombie is left where
 *  process 1 reaps none; (3) servers carry a parent-death signal where the system has one, so that
 *  killing the guard kills them too.
 *
 *  Lines it reads: `start NAME SIGNAL` runs `run/NAME.sh` of its folder and answers `NAME PID`;
 *  SIGNAL ends that server at once and cleanly. `release` answers `released`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { stackError } from './errors.ts';
import { identify, type ProcessId, runs } from './process.ts';

const GRACE_SECONDS = '0.5';

// An owner that dies right after its order leaves a pipe that nobody reads: the answer into it must
// not end the guard.
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
  /** Holds `run` and `logs`; becomes the working folder of the servers. */
  readonly folder: string;
  /** Removed when the guard ends the servers. */
  readonly removeAtEnd: string | undefined;
}

/** Words that make the next command die with its parent, or none where the system cannot. */
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
      // A session of its own: a terminal's interrupt reaches the owner, which then decides.
      detached: true,
    });
    const end = () => {
      this.#ended = true;
      for (const take of this.#waiting.splice(0)) take(undefined);
    };
    this.#child.on('error', end);
    this.#child.on('exit', end);
    this.#child.stdin?.on('error', end);
    createInterface({ input: this.#child.stdout as NodeJS.ReadableStream }).on('line', (line) => {
      this.#waiting.shift()?.(line);
    });
    // The owner's work keeps it alive, not its guard.
    this.#child.unref();
    for (const stream of [this.#child.stdin, this.#child.stdout])
      (stream as { unref?(): void } | null)?.unref?.();
  }

  #ask(line: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const gone = () =>
        reject(
          stackError('server_failed', 'the process that guards the servers ended', { next: 'run it again' }),
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

  /** Runs `run/<name>.sh`. `endSignal` ends the server at once and lets it clean up what the system
   *  would keep. */
  async start(name: string, endSignal: 'KILL' | 'QUIT'): Promise<ProcessId> {
    const answer = await this.#ask(`start ${name} ${endSignal}`);
    const id = identify(Number(answer.slice(name.length + 1)));
    if (id === undefined)
      throw stackError('server_failed', `${name} ended as it started`, { next: `see logs/${name}.log` });
    return id;
  }

  /** From here on the servers live until they are stopped, whatever happens to this process. */
  async release(): Promise<void> {
    await this.#ask('release');
    this.#child.stdin?.destroy();
    this.#child.stdout?.destroy();
  }

  /** Ends the servers that still run, at once, and the guard. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.ref();
    const exited = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.stdin?.end();
    await exited;
  }
}
