/** Servers of a stack as the targets of faults: ends a server by a signal, and starts it again
 *  on its ports and data. The clients are not warned.
 *
 *  Invariants: (1) a signal goes only to a server that the stack's folder records, or that this
 *  object started; (2) servers started here end with this process, as those of an owned stack. */
import { coreError } from '../core/errors.ts';
import { Guard } from './guard.ts';
import { forgetPostmaster, POSTGRES_NAME } from './postgres/server.ts';
import { isAlive, type ProcessId, signalProcess, waitForEnd } from './process.ts';
import { brokerReady, postgresReady, waitReady } from './ready.ts';
import { readIdentity, readState, type StackIdentity, type StackState, writeState } from './state.ts';

/** Time limit until a server has ended by its signal, in ms. */
const END_MS_MAX = 60_000;

export interface StackServersOptions {
  readonly startTimeoutMs: number;
  /** Folder that is removed when the started servers are ended; that of an ephemeral stack. */
  readonly removeAtEnd?: string | undefined;
}

export class StackServers {
  private readonly folder: string;
  private readonly options: StackServersOptions;
  private readonly identity: StackIdentity;
  private state: StackState;
  private guard: Guard | undefined;

  /** @throws bad_value for a folder without a started stack */
  constructor(folder: string, options: StackServersOptions) {
    const [identity, state] = [readIdentity(folder), readState(folder)];
    if (identity === undefined || state === undefined)
      throw coreError('bad_value', `${folder} has no started stack`, { next: 'start it with millrace up' });
    this.folder = folder;
    this.options = options;
    this.identity = identity;
    this.state = state;
  }

  /** Names of the brokers, in the order of their ids. */
  get brokers(): readonly string[] {
    return this.state.brokers.map(({ name }) => name);
  }

  isAlive(name: string): boolean {
    return isAlive(this.processOf(name));
  }

  /** Ends the server and waits for its end: SIGKILL, or SIGQUIT, which PostgreSQL answers by an
   *  immediate stop without a checkpoint. */
  async kill(name: string, signal: 'SIGKILL' | 'SIGQUIT'): Promise<void> {
    const server = this.processOf(name);
    signalProcess(server, signal);
    if (await waitForEnd([server], END_MS_MAX)) return;
    throw coreError('timeout', `${name} did not end within ${END_MS_MAX} ms of ${signal}`);
  }

  /** Starts an ended server; does nothing where it runs.
   *  @param isReady resolves when the server answers, false: when its process runs
   *  @throws server_failed */
  async start(name: string, isReady = true): Promise<void> {
    if (!this.isAlive(name)) {
      const isPostgres = name === POSTGRES_NAME;
      if (isPostgres) forgetPostmaster(this.folder);
      const { removeAtEnd } = this.options;
      this.guard ??= new Guard({ folder: this.folder, removeAtEnd });
      const process = await this.guard.start(name, isPostgres ? 'QUIT' : 'KILL');
      const servers = this.state.servers.map((one) => (one.name === name ? { name, process } : one));
      this.state = { ...this.state, servers };
      writeState(this.folder, this.state);
    }
    if (isReady) await this.ready(name);
  }

  /** Ends the servers that were started here. */
  async end(): Promise<void> {
    await this.guard?.end();
    this.guard = undefined;
  }

  private ready(name: string): Promise<void> {
    const { folder, identity, state } = this;
    const node = state.brokers.find((one) => one.name === name);
    const answers = (): Promise<boolean> =>
      node === undefined
        ? postgresReady(folder, state.postgresPort, identity)
        : brokerReady(folder, node, identity);
    const options = { startTimeoutMs: this.options.startTimeoutMs, signal: undefined };
    return waitReady(options, folder, { name, process: this.processOf(name) }, answers);
  }

  private processOf(name: string): ProcessId {
    const server = this.state.servers.find((one) => one.name === name);
    if (server === undefined) throw coreError('bad_value', `the stack has no server ${name}`);
    return server.process;
  }
}
