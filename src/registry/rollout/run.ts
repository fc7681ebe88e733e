/** Runs a rolling upgrade: starts a fleet on the old version, replaces one instance after the
 *  other, and stops at the first alarm.
 *
 *  Invariants: (1) at most one instance is being replaced; (2) between the two roles every record
 *  written so far has been read, so that the second role meets no record of before; (3) a rollback
 *  undoes the steps in reverse order, with the same wait between the roles; (4) when `run` settles,
 *  no instance runs; (5) time comes from the clock, and everything else from the world. */
import { sleep, type Timers, within } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import {
  type FleetInstance,
  type FleetRole,
  type FleetSample,
  type FleetSlot,
  type FleetSlotState,
  type FleetWorld,
  type InstanceCounts,
  NO_COUNTS,
  type RolloutOutcome,
  type RolloutVerdict,
  type Side,
  type TimelineEntry,
  type UpgradeOrder,
} from './model.ts';

export interface RolloutOptions {
  readonly world: FleetWorld;
  readonly clock: Timers;
  /** Ends the rollout early: the fleet is stopped. */
  readonly drain: AbortSignal;
  readonly slots: readonly FleetSlot[];
  readonly order: UpgradeOrder;
  /** Roll back at an alarm; otherwise continue to the end. */
  readonly rollback: boolean;
  /** Load on the old version before the first step, after each step and at the end, in ms. */
  readonly stepMs: number;
  readonly sampleMs: number;
  /** Lag in records above which a step is not followed by the next one. */
  readonly lagMax: number;
  /** Longest wait for a lag below `lagMax`, for a first record and for the groups to catch up. */
  readonly settleMs: number;
  /** True: the new instance is ready before the old one stops. */
  readonly surge: boolean;
  readonly onSample?: (sample: FleetSample, slots: readonly FleetSlotState[]) => void;
  readonly onEntry?: (entry: TimelineEntry) => void;
}

/** A slot and its instance. */
interface Place {
  readonly slot: FleetSlot;
  side: Side;
  state: FleetSlotState['state'];
  instance: FleetInstance | undefined;
  counts: InstanceCounts;
  perSecond: number;
}

const ROLES: Readonly<Record<UpgradeOrder, readonly [FleetRole, FleetRole]>> = {
  'consumers-first': ['consumer', 'producer'],
  'producers-first': ['producer', 'consumer'],
};

/** Samples kept for the plot; older ones are thinned out evenly. */
const SAMPLES_MAX = 20_000;

const add = (one: InstanceCounts, other: Partial<InstanceCounts>): InstanceCounts => ({
  errors: one.errors + (other.errors ?? 0),
  produced: one.produced + (other.produced ?? 0),
  consumed: one.consumed + (other.consumed ?? 0),
  lag: 0,
});

/** Counters never fall: a final report may be older or newer than the last scrape. */
const latest = (one: InstanceCounts, other: Partial<InstanceCounts>): InstanceCounts => ({
  errors: Math.max(one.errors, other.errors ?? 0),
  produced: Math.max(one.produced, other.produced ?? 0),
  consumed: Math.max(one.consumed, other.consumed ?? 0),
  lag: other.lag ?? one.lag,
});

export class Rollout {
  private readonly options: RolloutOptions;
  private readonly places: readonly Place[];
  private readonly timeline: TimelineEntry[] = [];
  private samples: FleetSample[] = [];
  private readonly upgraded: string[] = [];
  /** Counts of the instances that ended. */
  private retired: InstanceCounts = NO_COUNTS;
  private startMs = 0;
  /** First alarm; undefined: none. */
  private alarm: string | undefined;
  /** True: an instance did not start or ended by itself. */
  private isBroken = false;
  private sampling: Promise<void> = Promise.resolve();
  private readonly over = new AbortController();
  /** Aborted when no instance may start any more. */
  private readonly noStart = new AbortController();

  constructor(options: RolloutOptions) {
    this.options = options;
    this.places = options.slots.map((slot) => ({
      slot,
      side: 'old',
      state: 'stopped',
      instance: undefined,
      counts: NO_COUNTS,
      perSecond: 0,
    }));
  }

  /** Runs the upgrade to its end. Never rejects because of the fleet: a failure is a verdict. */
  async run(): Promise<RolloutOutcome> {
    const { clock, drain } = this.options;
    this.startMs = clock.monotonicMs();
    this.note('phase', 'start: every instance runs the old version');
    try {
      this.sampling = this.sampleLoop();
      await this.startFleet();
      this.note('phase', 'baseline');
      await this.load();
      await this.upgradeAll();
      if (this.alarm !== undefined && this.options.rollback && !this.stopsNow) await this.rollBack();
      if (!this.stopsNow) {
        this.note('phase', 'end: load on the final version');
        await this.load();
      }
    } catch (thrown) {
      this.fail(thrown);
    } finally {
      await this.finish();
    }
    this.note('phase', `done: ${this.verdict(drain.aborted)}`);
    return this.outcome(drain.aborted);
  }

  /** True: neither a further step nor a rollback makes sense. */
  private get stopsNow(): boolean {
    return this.options.drain.aborted || this.isBroken;
  }

  private verdict(interrupted: boolean): RolloutVerdict {
    if (this.isBroken) return 'failed';
    const isNew = this.places.every(({ side }) => side === 'new');
    if (interrupted && !isNew) return 'interrupted';
    if (isNew) return this.alarm === undefined && this.totals().errors === 0 ? 'upgraded' : 'errors';
    return 'rolled-back';
  }

  private outcome(interrupted: boolean): RolloutOutcome {
    const { errors, produced, consumed } = this.totals();
    return {
      verdict: this.verdict(interrupted),
      reason: this.alarm,
      upgraded: this.upgraded,
      timeline: this.timeline,
      samples: this.samples,
      errors,
      produced,
      consumed,
    };
  }

  private note(kind: TimelineEntry['kind'], text: string): void {
    const entry = { atMs: this.nowMs(), kind, text };
    this.timeline.push(entry);
    this.options.onEntry?.(entry);
  }

  private nowMs(): number {
    return this.options.clock.monotonicMs() - this.startMs;
  }

  private raise(reason: string): void {
    if (this.alarm !== undefined) return;
    this.alarm = reason;
    this.note('alarm', reason);
  }

  private fail(thrown: unknown): void {
    const known = findMillraceError(thrown);
    if (known === undefined) throw thrown;
    // A drain ends a start; that is no failure of the instance.
    if (this.options.drain.aborted) return;
    this.isBroken = true;
    this.raise(known.next === undefined ? known.message : `${known.message}; ${known.next}`);
  }

  /** Consumers start before producers, so that no record waits for its group. The first failure
   *  ends the other starts, and all have settled when it is thrown. */
  private async startFleet(): Promise<void> {
    for (const role of ['consumer', 'producer'] as const) {
      let failure: unknown;
      await Promise.all(
        this.placesOf(role).map((place) =>
          this.startIn(place, 'old').catch((thrown: unknown) => {
            failure ??= thrown;
            this.noStart.abort();
          }),
        ),
      );
      if (failure !== undefined) throw failure;
    }
  }

  private start(slot: FleetSlot, side: Side): Promise<FleetInstance> {
    return this.options.world.start(slot, side, AbortSignal.any([this.options.drain, this.noStart.signal]));
  }

  private placesOf(role: FleetRole): readonly Place[] {
    return this.places.filter(({ slot }) => slot.role === role);
  }

  private async startIn(place: Place, side: Side): Promise<void> {
    place.state = 'starting';
    const instance = await this.start(place.slot, side);
    this.assign(place, instance, side);
  }

  /** Makes an instance the current one of its slot. The counts of the one before are kept; an empty
   *  slot still shows them. */
  private assign(place: Place, instance: FleetInstance | undefined, side: Side): void {
    if (place.instance !== undefined) this.retired = add(this.retired, place.counts);
    if (instance !== undefined) place.counts = NO_COUNTS;
    place.perSecond = 0;
    place.instance = instance;
    place.side = side;
    place.state = instance === undefined ? 'stopped' : 'running';
  }

  /** Stops an instance and keeps what it counted beyond `known`, which is kept already. */
  private async retire(instance: FleetInstance, known: InstanceCounts): Promise<void> {
    const scraped = (await instance.scrape()) ?? {};
    const final = (await instance.stop()) ?? {};
    const { errors, produced, consumed } = latest(latest(known, scraped), final);
    this.retired = add(this.retired, {
      errors: errors - known.errors,
      produced: produced - known.produced,
      consumed: consumed - known.consumed,
    });
  }

  /** Removes the instance of a slot and stops it. */
  private async empty(place: Place): Promise<void> {
    const { instance, counts, side } = place;
    if (instance === undefined) return;
    this.assign(place, undefined, side);
    await this.retire(instance, counts);
  }

  private async upgradeAll(): Promise<void> {
    const [first, second] = ROLES[this.options.order];
    for (const role of [first, second]) {
      if (this.isStopped()) return;
      if (role === second) await this.catchUp(`the groups read all records before the ${second}s follow`);
      for (const place of this.placesOf(role)) {
        if (this.isStopped()) return;
        await this.replace(place, 'new');
        this.upgraded.push(place.slot.name);
        await this.settle(place);
      }
    }
  }

  /** True: no further step follows. Without a rollback, errors do not stop the upgrade. */
  private isStopped(): boolean {
    return this.stopsNow || (this.alarm !== undefined && this.options.rollback);
  }

  private async rollBack(): Promise<void> {
    this.note(
      'rollback',
      this.upgraded.length === 1 ? 'rollback of 1 instance' : `rollback of ${this.upgraded.length} instances`,
    );
    let role: FleetRole | undefined;
    for (const name of [...this.upgraded].reverse()) {
      if (this.stopsNow) return;
      const place = this.places.find(({ slot }) => slot.name === name);
      if (place === undefined) continue;
      if (role !== undefined && role !== place.slot.role)
        await this.catchUp(`the groups read all records before the ${place.slot.role}s are rolled back`);
      role = place.slot.role;
      await this.replace(place, 'old');
    }
  }

  private async replace(place: Place, side: Side): Promise<void> {
    place.state = 'replacing';
    if (this.options.surge) {
      const next = await this.start(place.slot, side);
      const { instance, counts } = place;
      this.assign(place, next, side);
      if (instance !== undefined) await this.retire(instance, counts);
    } else {
      await this.empty(place);
      await this.startIn(place, side);
    }
    this.note('step', `${place.slot.name} runs the ${side} version`);
  }

  /** Waits until the step shows its effect: the new instance has worked, and what it wrote is read.
   *  Then the fleet runs for the time of a step, and the lag must be low again. */
  private async settle(place: Place): Promise<void> {
    const { clock, settleMs, lagMax } = this.options;
    const worked = (): boolean =>
      place.instance?.countsWork === false || place.counts.produced + place.counts.consumed > 0;
    if (!(await this.waitFor(worked, settleMs)) && !this.isStopped())
      this.note('step', `${place.slot.name} has not processed a record yet`);
    if (!this.isStopped()) await this.options.world.drained?.(settleMs, this.options.drain);
    await this.sample();
    await this.load();
    if (this.isStopped()) return;
    const sinceMs = clock.monotonicMs();
    const isLow = (): boolean => (this.samples.at(-1)?.lag ?? 0) <= lagMax;
    if (await this.waitFor(isLow, settleMs)) return;
    if (this.isStopped()) return;
    const waited = Math.round((clock.monotonicMs() - sinceMs) / 1000);
    this.raise(`the lag is still ${this.samples.at(-1)?.lag} records after ${waited} s, above ${lagMax}`);
  }

  private async catchUp(why: string): Promise<void> {
    const { world, settleMs } = this.options;
    this.note('phase', why);
    if (world.drained === undefined) return;
    if (await world.drained(settleMs, this.options.drain)) return;
    if (!this.stopsNow) this.raise(`the groups have not read all records within ${settleMs} ms`);
  }

  /** Lets the fleet work for the time of a step, or until an alarm that stops the rollout. */
  private async load(): Promise<void> {
    await this.waitFor(() => false, this.options.stepMs);
  }

  /** Waits at most `ms` for a state that a sample shows. */
  private async waitFor(ask: () => boolean, ms: number): Promise<boolean> {
    const { clock, sampleMs, drain } = this.options;
    const endMs = clock.monotonicMs() + ms;
    const alarmed = this.alarm;
    for (;;) {
      if (ask()) return true;
      const restMs = endMs - clock.monotonicMs();
      const isAlarmed = this.alarm !== alarmed && this.options.rollback;
      if (restMs <= 0 || this.stopsNow || isAlarmed) return false;
      await sleep(clock, Math.min(restMs, sampleMs / 2), drain);
    }
  }

  private async sampleLoop(): Promise<void> {
    const { clock, sampleMs } = this.options;
    while (!this.over.signal.aborted) {
      await this.sample();
      await sleep(clock, sampleMs, this.over.signal);
    }
  }

  /** Scrapes every instance and checks for errors and for instances that ended. */
  private async sample(): Promise<void> {
    const before = this.samples.at(-1);
    await Promise.all(
      this.places.map(async (place) => {
        const { instance } = place;
        if (instance === undefined) return;
        const counts = await instance.scrape();
        // The slot may have got another instance meanwhile.
        if (counts === undefined || place.instance !== instance) return;
        const work = counts.produced + counts.consumed - place.counts.produced - place.counts.consumed;
        const seconds = before === undefined ? 0 : (this.nowMs() - before.atMs) / 1000;
        place.perSecond = seconds > 0 ? work / seconds : 0;
        place.counts = latest(place.counts, counts);
      }),
    );
    this.keep(before);
    for (const { slot, instance, state } of this.places) {
      const why = instance?.failure();
      if (why === undefined || state === 'stopped' || this.over.signal.aborted) continue;
      this.isBroken = true;
      this.raise(`${slot.name}: ${why}`);
    }
    const { errors } = this.totals();
    if (errors > 0) this.raise(`${errors} records could not be read`);
  }

  private keep(before: FleetSample | undefined): void {
    const { errors, produced, consumed } = this.totals();
    const lag = this.running().reduce((sum, { counts }) => sum + counts.lag, 0);
    const atMs = this.nowMs();
    const seconds = before === undefined ? 0 : (atMs - before.atMs) / 1000;
    const rate = (now: number, then: number | undefined): number =>
      seconds > 0 ? Math.max(0, (now - (then ?? 0)) / seconds) : 0;
    const sample = {
      atMs,
      errors,
      produced,
      consumed,
      lag,
      producedPerSecond: rate(produced, before?.produced),
      consumedPerSecond: rate(consumed, before?.consumed),
    };
    if (this.samples.length >= SAMPLES_MAX) this.samples = this.samples.filter((_, i) => i % 2 === 0);
    this.samples.push(sample);
    this.options.onSample?.(sample, this.places);
  }

  private totals(): InstanceCounts {
    return this.running().reduce((sum, { counts }) => add(sum, counts), this.retired);
  }

  private running(): readonly Place[] {
    return this.places.filter(({ instance }) => instance !== undefined);
  }

  /** Stops the producers, lets the groups read the rest, and stops the consumers. */
  private async finish(): Promise<void> {
    const { world, settleMs, clock, drain } = this.options;
    this.over.abort();
    await this.sampling;
    await this.stopAll('producer');
    if (!this.stopsNow && world.drained !== undefined)
      await within(clock, settleMs, world.drained(settleMs, drain));
    await this.stopAll('consumer');
    this.keep(this.samples.at(-1));
  }

  private async stopAll(role: FleetRole): Promise<void> {
    await Promise.all(this.placesOf(role).map((place) => this.empty(place)));
  }
}
