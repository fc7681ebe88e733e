/** Child of an effects benchmark that is killed under load and starts again at its address. */
import { freePort, LOOPBACK } from '../../src/devstack/ports.ts';
import type { Child, Metered, World } from './world.ts';

export class Restartable implements Metered {
  readonly name: string;
  private readonly open: () => Promise<Child>;
  private child: Child;
  /** CPU seconds of the processes that were killed. */
  private spentSeconds = 0;

  private constructor(name: string, open: () => Promise<Child>, child: Child) {
    this.name = name;
    this.open = open;
    this.child = child;
  }

  /** Starts a command at a port of its own, which it keeps over its restarts.
   *  @param args the flags of the command, without its address */
  static async start(world: World, name: string, args: readonly string[]): Promise<Restartable> {
    const listen = `-listen=${LOOPBACK}:${await freePort()}`;
    const open = (): Promise<Child> => world.start(name, [name, ...args, listen]);
    return new Restartable(name, open, await open());
  }

  /** Process that runs now. */
  current(): Child {
    return this.child;
  }

  cpuSeconds(): number {
    return this.spentSeconds + this.child.cpuSeconds();
  }

  /** Ends the process by SIGKILL and starts the next, which is ready when this resolves. */
  async restart(): Promise<void> {
    const { child } = this;
    const seconds = child.cpuSeconds();
    child.process.kill('SIGKILL');
    await child.process.ended;
    this.spentSeconds += seconds;
    this.child = await this.open();
  }

  stop(): Promise<void> {
    return this.child.stop();
  }
}
