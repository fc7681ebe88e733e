/** Facts: the statements that the demo prints and its tests falsify. Each comes from SQL, the
 *  topics or an oracle, never from a counter of the process under test. */

import type { StartedCommand } from '../shell/children/started-command.ts';

export interface Fact {
  readonly slice: 'windows' | 'effects' | 'contracts';
  /** Claim, in the user's words. */
  readonly claim: string;
  /** Evidence, with numbers. */
  readonly seen: string;
  readonly holds: boolean;
}

export interface DemoAddresses {
  /** `host:port` list of the Kafka brokers. */
  readonly brokers: string;
  readonly postgres: string;
}

export type DemoEnvironment = Readonly<Record<string, string>>;

export interface SliceContext {
  readonly stack: DemoAddresses;
  /** Private folder of this run for state, ledgers and files. */
  readonly dir: string;
  /** Starts `bin/millrace ARGS` as a child that dies with this process; stderr goes to a file under
   *  `dir`.
   *  @param env further variables; other users can see the arguments of a process */
  spawn(name: string, args: readonly string[], env?: DemoEnvironment): StartedCommand;
  /** Prints a line that describes the current step. */
  say(line: string): void;
  readonly seed: number;
  /** Scale of the work, 1 for the full demo, smaller in tests. */
  readonly scale: number;
}

/** A slice runs its product in real processes and then judges it. `judge` is separate: a test runs
 *  the slice once, falsifies a fact in the real stores, judges again and expects the cross. */
export interface Slice<Run> {
  readonly name: Fact['slice'];
  run(context: SliceContext): Promise<Run>;
  judge(context: SliceContext, run: Run): Promise<readonly Fact[]>;
  /** Long-lived processes of the slice, which `millrace demo -keep` starts again. */
  services?(context: SliceContext, run: Run): readonly DemoService[];
}

export interface DemoService {
  readonly name: string;
  readonly args: readonly string[];
  readonly env?: DemoEnvironment;
}
