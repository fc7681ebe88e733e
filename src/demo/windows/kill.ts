/** Kills the engine in the middle of a run of the windows slice. The generator is stopped (SIGSTOP)
 *  at a fraction of the stream until the engine is dead, so that the topic bounds what the dead
 *  process can have consumed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TopicReader } from '../../../bench/peers/oracle/kafka.ts';
import { coreError } from '../../core/errors.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import type { WindowCase } from './cases.ts';
import { consumedOf, isOnDisk, isTimely, type Kill, newestManifest, piecesOf, sum } from './judge.ts';

/** Fractions of the stream at which the generator is stopped: until there is a checkpoint, and
 *  until the engine is killed. */
const HOLD_FIRST = 0.5;
const HOLD_LAST = 0.7;
const KILL_FROM = 0.22;
const POLL_MS = 10;
/** Time limit of a run until its kill. */
const WAIT_MS = 240_000;

export interface KillPlan {
  readonly plan: WindowCase;
  readonly brokers: string;
  readonly topic: string;
  readonly stateDir: string;
  readonly gen: StartedCommand;
  readonly engine: StartedCommand;
  readonly startEngine: () => StartedCommand;
  readonly pastCheckpoint: number;
}

/** Kills the engine once it is far enough past a checkpoint; the generator continues afterwards.
 *  Undefined if the moment was missed; the engine is dead in that case, too. */
export async function killInTheMiddle(target: KillPlan): Promise<Kill | undefined> {
  const { plan, pastCheckpoint } = target;
  const { events } = plan;
  const reader = await TopicReader.open(target.brokers, target.topic);
  const valve = new GeneratorValve(
    target.gen,
    await TopicReader.open(target.brokers, target.topic),
    HOLD_FIRST * events,
  );
  try {
    for (let engine = target.engine; ; engine = target.startEngine()) {
      const kill = await killOnce(target, engine, valve, reader);
      if (kill === undefined) return undefined;
      const isTaken = !isOnDisk(plan.state) || kill.pieces > 0;
      if (isTaken && isTimely({ kill, events, pastCheckpoint })) return kill;
      // A checkpoint may have completed between the last check and the kill. Retry if enough of the
      // stream is left.
      if (kill.held >= HOLD_LAST * events) return undefined;
    }
  } finally {
    reader.close();
    await valve.end();
  }
}

async function heldIn(reader: TopicReader): Promise<number> {
  const ends: number[] = [];
  for (const partition of reader.partitions) ends.push(Number(await reader.end(partition)));
  return sum(ends);
}

/** Valve on the generator: stops it once the topic holds enough. It polls independently of the
 *  requests to the engine, whose answers may take seconds. */
class GeneratorValve {
  private readonly gen: StartedCommand;
  private readonly reader: TopicReader;
  private limit: number;
  private seen = 0;
  private isClosed = false;
  private isOver = false;
  private failure: unknown;
  private readonly watching: Promise<void>;

  constructor(gen: StartedCommand, reader: TopicReader, limit: number) {
    this.gen = gen;
    this.reader = reader;
    this.limit = limit;
    this.watching = this.watch().catch((thrown) => {
      this.failure = thrown;
    });
  }

  /** Approximate number of events in the topic. */
  get held(): number {
    if (this.failure !== undefined) throw this.failure;
    return this.seen;
  }

  hold(limit: number): void {
    this.limit = limit;
  }

  close(): void {
    this.limit = 0;
    this.turn(true);
  }

  /** Opens the valve for good. */
  async end(): Promise<void> {
    this.isOver = true;
    await this.watching;
    this.turn(false);
    this.reader.close();
  }

  private async watch(): Promise<void> {
    while (!this.isOver) {
      this.seen = await heldIn(this.reader);
      this.turn(this.seen >= this.limit);
      await sleep(POLL_MS);
    }
  }

  /** Sends a signal only on a change. */
  private turn(closes: boolean): void {
    if (closes !== this.isClosed) this.gen.kill(closes ? 'SIGSTOP' : 'SIGCONT');
    this.isClosed = closes;
  }
}

/** engine_events_total from /metrics, the events consumed over all restarts; 0 if there is no
 *  answer. */
export async function consumedNow(address: string): Promise<number> {
  try {
    const text = await (await fetch(`http://${address}/metrics`)).text();
    return Number(/^engine_events_total (\S+)$/m.exec(text)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

async function killOnce(
  target: KillPlan,
  engine: StartedCommand,
  valve: GeneratorValve,
  reader: TopicReader,
): Promise<Kill | undefined> {
  const { plan, stateDir, pastCheckpoint } = target;
  const { events } = plan;
  const address = await engine.address();
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const { held } = valve;
    const consumed = await consumedNow(address);
    const newest = await newestManifest(stateDir);
    const checkpointed = newest === undefined ? 0 : consumedOf(newest.recorded);
    const past = consumed - checkpointed;
    // Spilled state must exist, so that the restart restores it.
    const hasState = !isOnDisk(plan.state) || piecesOf(newest?.recorded) > 0;
    const mayKill = checkpointed > 0 && hasState;
    valve.hold((mayKill ? HOLD_LAST : HOLD_FIRST) * events);
    const isMissed = held >= HOLD_LAST * events && consumed >= held && past < pastCheckpoint;
    if (isMissed || (mayKill && consumed >= KILL_FROM * events && past >= pastCheckpoint)) {
      // Stop the generator first, so that the topic's ends after the kill still bound what was
      // consumed before it.
      valve.close();
      engine.kill('SIGKILL');
      const { signal } = await engine.ended;
      if (isMissed) return undefined;
      const left = await newestManifest(stateDir);
      return {
        consumed,
        held: await heldIn(reader),
        checkpointed: left === undefined ? 0 : consumedOf(left.recorded),
        pieces: piecesOf(left?.recorded),
        signal,
      };
    }
    if (Date.now() > deadline) {
      throw coreError('timeout', `${plan.name}: no moment to kill the engine occurred`, {
        next: `see ${engine.logPath}`,
      });
    }
    await sleep(POLL_MS);
  }
}
