/** Who led when, by the logs of the instances, and whether the machine ran meanwhile. */
import { setTimeout as sleep } from 'node:timers/promises';
import { batchOf } from '../contract/broker-world.ts';
import { driver, type Instance, type Refusal } from './registry-kafka-kit.ts';

/** How long an instance holds a write back while nobody leads. */
const LEADER_WAIT_MS = 20_000;
/** An instance hears of a new leader through the topic, and may stall before it does. */
const HEARD_WITHIN_MS = 6000;
/** Several times what a round takes on a machine that runs. */
const ROUND_MS = 500;
const PAUSE_MS = 100;
const STEP_MS = 60_000;

/** A client of the same broker that does what a candidate does, over and over. As long as one of its rounds is overdue the
 *  machine or the broker stands, and no instance could have been faster. */
export class Control {
  private readonly brokers: string;
  private readonly topic: string;
  private readonly rounds: Array<{ readonly from: number; readonly to: number }> = [];
  private stopped = false;
  private running: Promise<void> = Promise.resolve();

  private constructor(brokers: string, topic: string) {
    this.brokers = brokers;
    this.topic = topic;
  }

  /** @param topic of its own */
  static async start(brokers: string, topic: string): Promise<Control> {
    const control = new Control(brokers, topic);
    const admin = await driver.admin({ brokers, clientId: topic, connectTimeoutMs: 60_000 });
    await admin.createTopics([{ topic, partitions: 1 }]);
    await admin.close();
    control.running = control.run();
    return control;
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.running;
  }

  /** Milliseconds between two moments in which a round was overdue. */
  stoodMs(from: number, to: number): number {
    let sum = 0;
    for (const round of this.rounds)
      sum += Math.max(0, Math.min(to, round.to) - Math.max(from, round.from + ROUND_MS));
    return sum;
  }

  private async run(): Promise<void> {
    while (!this.stopped) {
      await this.round();
      await sleep(PAUSE_MS);
    }
  }

  private async round(): Promise<void> {
    const { brokers, topic } = this;
    const from = Date.now();
    const producer = await driver.transactional({
      brokers,
      clientId: topic,
      connectTimeoutMs: 60_000,
      transactionalId: topic,
    });
    try {
      // A step that fails took its time all the same.
      await producer.init(STEP_MS);
      await producer.begin();
      await producer.produce(batchOf([{ partition: 0, value: Buffer.from('round') }]), [topic]);
      await producer.commit(STEP_MS);
    } catch {
    } finally {
      this.rounds.push({ from, to: Date.now() });
      await producer.close();
    }
  }
}

/** Stretches in which this one led, by its own words; the last one lasts until `end`. */
function reignsOf(instance: Instance, end: number): Array<{ readonly from: number; readonly to: number }> {
  const found: Array<{ from: number; to: number }> = [];
  for (const { time, msg } of instance.lines()) {
    if (msg.startsWith('this instance leads:')) found.push({ from: time, to: end });
    else if (msg === 'this instance leads no more') Object.assign(found.at(-1) ?? {}, { to: time });
  }
  return found;
}

/** Writes that no machine excuses the refusal of. A write is refused rightly when it was held back as long as writes are,
 *  nobody led then, and the machine did not run for all of that time.
 *  @param ended when the ones that were killed were */
export function refusedWrongly(
  refusals: readonly Refusal[],
  instances: readonly Instance[],
  ended: ReadonlyMap<Instance, number>,
  control: Control,
): readonly Refusal[] {
  const reigns = instances.flatMap((one) => reignsOf(one, ended.get(one) ?? Number.POSITIVE_INFINITY));
  return refusals.filter(({ asked, answered, code }) => {
    const waited = answered - asked;
    const ran = waited - control.stoodMs(asked, answered);
    const isLed = reigns.some(({ from, to }) => from < answered - HEARD_WITHIN_MS && to > answered);
    const isExcused =
      (code === 50003 || code === 50004) && waited >= LEADER_WAIT_MS && ran < LEADER_WAIT_MS && !isLed;
    return !isExcused;
  });
}
