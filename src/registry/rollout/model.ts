/** Model of a rolling upgrade: the instances of a fleet, their counters, and the port to the
 *  processes. */

/** Version that an instance runs. */
export type Side = 'old' | 'new';
export type FleetRole = 'consumer' | 'producer';

export const UPGRADE_ORDERS = ['consumers-first', 'producers-first'] as const;
export type UpgradeOrder = (typeof UPGRADE_ORDERS)[number];

/** Place in the fleet, which one instance at a time holds but for the moment of its replacement. */
export interface FleetSlot {
  /** Unique name: `consumer-g1-2`, `producer-3`. */
  readonly name: string;
  readonly role: FleetRole;
  /** Consumer group; absent for a producer. */
  readonly group?: string;
}

/** Counters of an instance since its start. */
export interface InstanceCounts {
  /** Records that could not be read. */
  readonly errors: number;
  /** Records acknowledged by the broker. */
  readonly produced: number;
  /** Records read. */
  readonly consumed: number;
  /** Records between the next one to read and the end. */
  readonly lag: number;
}

/** One running process. */
export interface FleetInstance {
  /** False: neither `produced` nor `consumed` is measured, so a step does not wait for its first
   *  record. Default true. */
  readonly countsWork?: boolean;
  /** Reads the instance's metrics. Undefined: they cannot be read now. */
  scrape(): Promise<InstanceCounts | undefined>;
  /** Reason why the rollout cannot continue with the instance: it ended by itself, or its metrics
   *  cannot be read for too long. Undefined: none. */
  failure(): string | undefined;
  /** Lets the instance finish its work and end. Returns its final counts if it reports them. */
  stop(): Promise<Partial<InstanceCounts> | undefined>;
}

/** The world of a rollout. src/bin/rollout implements it with processes. */
export interface FleetWorld {
  /** Starts an instance and resolves when it is ready. An aborted signal ends the start.
   *  @throws a MillraceError when the instance does not become ready; it has ended then */
  start(slot: FleetSlot, side: Side, signal: AbortSignal): Promise<FleetInstance>;
  /** Resolves with true when every group has read and committed each record that was written before
   *  the call; with false after `timeoutMs` or when the signal is aborted. Absent: unknown. */
  readonly drained?: (timeoutMs: number, signal: AbortSignal) => Promise<boolean>;
}

/** State of a slot, for display. */
export interface FleetSlotState {
  readonly slot: FleetSlot;
  readonly side: Side;
  readonly state: 'starting' | 'running' | 'replacing' | 'stopped';
  readonly counts: InstanceCounts;
  /** Records a second of the latest interval: produced or consumed. */
  readonly perSecond: number;
}

/** One measurement of the whole fleet. */
export interface FleetSample {
  /** Time since the start of the rollout. */
  readonly atMs: number;
  /** Totals since the start. Those of ended instances are included. */
  readonly errors: number;
  readonly produced: number;
  readonly consumed: number;
  /** Records not yet read, over all groups. */
  readonly lag: number;
  /** Rates since the sample before, in records a second. */
  readonly producedPerSecond: number;
  readonly consumedPerSecond: number;
}

export interface TimelineEntry {
  readonly atMs: number;
  /** phase: begin of a phase; step: an instance changed its version; alarm: reason of a stop. */
  readonly kind: 'phase' | 'step' | 'alarm' | 'rollback';
  readonly text: string;
}

/** Result of a rollout.
 *  upgraded: every instance runs the new version and no error was counted.
 *  errors: every instance runs the new version, but records could not be read.
 *  rolled-back: the rollout stopped at an alarm, and every instance runs the old version again.
 *  failed: an instance did not start or ended by itself, and the fleet was stopped.
 *  interrupted: the rollout was stopped from outside before its end. */
export type RolloutVerdict = 'upgraded' | 'errors' | 'rolled-back' | 'failed' | 'interrupted';

export interface RolloutOutcome {
  readonly verdict: RolloutVerdict;
  /** Why the rollout stopped, if it did. */
  readonly reason: string | undefined;
  /** Slots that were upgraded, in order, also those that were rolled back. */
  readonly upgraded: readonly string[];
  readonly timeline: readonly TimelineEntry[];
  readonly samples: readonly FleetSample[];
  /** Final totals. */
  readonly errors: number;
  readonly produced: number;
  readonly consumed: number;
}

export const NO_COUNTS: InstanceCounts = { errors: 0, produced: 0, consumed: 0, lag: 0 };
