/** The kill in the middle of a run of the windows slice. The generator is held (SIGSTOP) at a part
 *  of the stream until the engine has been killed: the topic itself then bounds what the dead
 *  process can have consumed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TopicReader } from '../../../bench/peers/oracle/kafka.ts';
import { coreError } from '../../core/errors.ts';
import type { SliceProcess } from '../fact.ts';
import type { WindowCase } from './cases.ts';
import { consumedOf, isOnDisk, isTimely, type Kill, newestManifest, piecesOf, sum } from './judge.ts';

/** Part of the stream that the topic holds until there is a checkpoint, and until the engine has
 *  been killed. */
const HOLD_FIRST = 0.5;
const HOLD_LAST = 0.7;
const KILL_FROM = 0.22;
const POLL_MS = 10;
/** How long a run may wait for its kill before the slice gives up. */
const WAIT_MS = 240_000;

export interface Hunt {
  readonly plan: WindowCase;
  readonly brokers: string;
  readonly topic: string;
  readonly stateDir: string;
  readonly gen: SliceProcess;
  readonly engine: SliceProcess;
  readonly startEngine: () => SliceProcess;
  readonly pastCheckpoint: number;
}

/** Kills the engine once it is far enough past a checkpoint; the generator goes on afterwards.
 *  undefined: the moment was missed, and the engine is dead all the same. */
export async function killInTheMiddle(hunt: Hunt): Promise<Kill | undefined> {
  const { plan, pastCheckpoint } = hunt;
  const { events } = plan;
  const reader = await TopicReader.open(hunt.brokers, hunt.topic);
  const tap = new Tap(hunt.gen, await TopicReader.open(hunt.brokers, hunt.topic), HOLD_FIRST * events);
  try {
    for (let engine = hunt.engine; ; engine = hunt.startEngine()) {
      const kill = await killOnce(hunt, engine, tap, reader);
      if (kill === undefined) return undefined;
      const isTaken = !isOnDisk(plan.state) || kill.pieces > 0;
      if (isTaken && isTimely({ kill, events, pastCheckpoint })) return kill;
      // A checkpoint may have completed between the last look and the kill; then there is another
      // try if there is room.
      if (kill.held >= HOLD_LAST * events) return undefined;
    }
  } finally {
    reader.close();
    await tap.end();
  }
}

async function heldIn(reader: TopicReader): Promise<number> {
  const ends: number[] = [];
  for (const partition of reader.partitions) ends.push(Number(await reader.end(partition)));
  return sum(ends);
}

/** The generator as a tap that closes by itself once the topic holds enough. It looks apart from
 *  whoever asks the engine, whose answers may take seconds. */
class Tap {
  private readonly gen: SliceProcess;
  private readonly reader: TopicReader;
  private limit: number;
  private seen = 0;
  private isClosed = false;
  private isOver = false;
  private failure: unknown;
  private readonly watching: Promise<void>;

  constructor(gen: SliceProcess, reader: TopicReader, limit: number) {
    this.gen = gen;
    this.reader = reader;
    this.limit = limit;
    this.watching = this.watch().catch((thrown) => {
      this.failure = thrown;
    });
  }

  /** Events that the topic holds, about. */
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

  /** Open for good. */
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

  /** Each signal is sent once. */
  private turn(closes: boolean): void {
    if (closes !== this.isClosed) this.gen.kill(closes ? 'SIGSTOP' : 'SIGCONT');
    this.isClosed = closes;
  }
}

/** engine_events_total as /metrics shows it, what has been consumed in all lives together; 0 where
 *  nobody answers. */
export async function consumedNow(address: string): Promise<number> {
  try {
    const text = await (await fetch(`http://${address}/metrics`)).text();
    return Number(/^engine_events_total (\S+)$/m.exec(text)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

async function killOnce(
  hunt: Hunt,
  engine: SliceProcess,
  tap: Tap,
  reader: TopicReader,
): Promise<Kill | undefined> {
  const { plan, stateDir, pastCheckpoint } = hunt;
  const { events } = plan;
  const address = await engine.address();
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const { held } = tap;
    const consumed = await consumedNow(address);
    const newest = await newestManifest(stateDir);
    const checkpointed = newest === undefined ? 0 : consumedOf(newest.recorded);
    const past = consumed - checkpointed;
    // State on disk is to be there to be taken up.
    const hasState = !isOnDisk(plan.state) || piecesOf(newest?.recorded) > 0;
    const mayKill = checkpointed > 0 && hasState;
    tap.hold((mayKill ? HOLD_LAST : HOLD_FIRST) * events);
    const isMissed = held >= HOLD_LAST * events && consumed >= held && past < pastCheckpoint;
    if (isMissed || (mayKill && consumed >= KILL_FROM * events && past >= pastCheckpoint)) {
      // Closed first, so that the topic's ends after the kill still bound what was consumed before
      // it.
      tap.close();
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
      throw coreError('timeout', `${plan.name}: no moment to kill the engine came`, {
        next: `see ${engine.logPath}`,
      });
    }
    await sleep(POLL_MS);
  }
}
