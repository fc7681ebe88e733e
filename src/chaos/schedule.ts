/** Plan of a chaos run: a pure function of the seed and the settings.
 *
 *  Each lane has its own faults, one after the other. A deck has every kind of fault of the lane
 *  once (each crash point once); the lane deals shuffled decks until its time is used, and at
 *  least one deck, so that every chosen fault is planned whatever the duration. The faults of a
 *  lane share the time between a warm-up and a tail in equal slots.
 *
 *  Invariants: (1) equal seed and settings give an equal plan, byte for byte; (2) the draws of a
 *  lane do not depend on the faults of other lanes; (3) the faults of a lane do not overlap. */
import { coreError } from '../core/errors.ts';
import { RandomStream, seedOf } from '../core/random/threefry.ts';
import {
  brokerLinksOf,
  CRASH_POINT_NAMES,
  CRASH_POINTS,
  type CrashPoint,
  FAULT_KINDS,
  FAULTS,
  type FaultKind,
  FULL_TABLES,
  LONG_PAUSE_MS,
  lanesOf,
  MEMBERS,
  SERVICES,
} from './faults.ts';

export interface ScheduleSettings {
  readonly seed: number;
  readonly durationMs: number;
  /** Mean time between the beginnings of two faults of a lane, in ms. */
  readonly everyMs: number;
  readonly faults: readonly FaultKind[];
  /** Points of the fault `crash`. */
  readonly crashPoints: readonly CrashPoint[];
  readonly relay: 'poll' | 'wal';
  readonly brokerCount: number;
  /** Links with a proxy. */
  readonly links: readonly string[];
  /** Services of one process each; absent: those of the pipeline, with their members. */
  readonly services?: readonly string[];
  /** Those of them whose connections to the database can be terminated; absent: all. */
  readonly databaseClients?: readonly string[];
  /** Tables that a full disk refuses rows of; absent: those of the pipeline. */
  readonly tables?: readonly string[];
}

export interface PlannedFault {
  /** Number in the plan, from 1. */
  readonly id: number;
  /** Time after the start of the load, in ms. */
  readonly atMs: number;
  /** Component whose faults follow one another. Faults of different lanes overlap. */
  readonly lane: string;
  readonly kind: FaultKind;
  /** Process, server, link or table. */
  readonly target: string;
  readonly durationMs: number;
  /** crash: the point. */
  readonly point?: CrashPoint;
  /** crash: units of finished work before the point takes effect; net-delay and broker-delay: the
   *  delay in ms;
   *  clock-step: the step in ms, negative for a step back;
   *  backend-kill: which of the connections, as a number that is taken modulo their count. */
  readonly amount?: number;
}

/** Part of the duration before the first slot, and as much after the last one; at most
 *  EDGE_MS_MAX. */
const EDGE = 0.1;
const EDGE_MS_MAX = 5000;
/** Part of a slot in which its fault begins, and the most of it that the fault lasts. */
const JITTER = 0.3;
const LASTING = 0.6;
/** Shortest run with pauses that outlast a lease and a session. */
const LONG_PAUSE_RUN_MS = 30_000;
/** Part of the pauses of a service with several processes that do. */
const LONG_PAUSES = 0.5;
/** Third key word of the generator; outside the numbers of GEN_STREAM. */
const STREAM = 0x4348_4153;
const PART = { SHUFFLE: 0, TIME: 1, TARGET: 2 } as const;
const TWO_32 = 4_294_967_296;
const CRASH_AFTER_MAX = 20;
/** Payments counts batches, which are fewer than rows. */
const CRASH_AFTER_BATCHES_MAX = 3;
/** Delay of each direction. */
const DELAY_MS = { least: 5, most: 250 } as const;
/** Below the -clock-skew of payments, 5 min, beyond which a message may be too old to decide. */
const STEP_MS = { least: 10_000, most: 240_000 } as const;
/** Faults of a lane. */
const FAULTS_MAX = 10_000;

interface Card {
  readonly kind: FaultKind;
  /** Absent: those of the kind. */
  readonly targets?: readonly string[];
  readonly point?: CrashPoint;
}

/** Each fault of a lane that has a target, once. */
function deckOf(lane: string, settings: ScheduleSettings): readonly Card[] {
  const { faults, crashPoints, relay, services } = settings;
  const has = (kind: FaultKind): boolean => faults.includes(kind);
  const members: Readonly<Record<string, readonly string[]>> =
    services === undefined ? MEMBERS : Object.fromEntries(services.map((name) => [name, [name]]));
  const targets = members[lane];
  if (targets !== undefined) {
    // In the order of the table: the order of the flag must not change the plan.
    const points = CRASH_POINT_NAMES.filter(
      (point) => crashPoints.includes(point) && CRASH_POINTS[point] === lane,
    );
    return [
      ...(has('crash') ? points.map((point): Card => ({ kind: 'crash', targets: [lane], point })) : []),
      ...(['kill', 'pause', 'clock-step'] as const).filter(has).map((kind): Card => ({ kind, targets })),
    ];
  }
  const kinds: Readonly<Record<string, readonly FaultKind[]>> = {
    postgres: [
      'postgres-stop',
      'backend-kill',
      'idle-transaction',
      'disk-full',
      'postgres-disk-full',
      ...(relay === 'wal' ? (['slot-drop'] as const) : []),
    ],
    kafka: ['broker-kill', 'broker-disk-full', 'broker-cut', 'broker-delay', 'broker-half-open'],
    network: ['net-cut', 'net-delay', 'net-half-open'],
  };
  return (kinds[lane] ?? [])
    .filter((kind) => has(kind) && poolOf(kind, settings).length > 0)
    .map((kind) => ({ kind }));
}

/** Targets of a card without any. */
function poolOf(kind: FaultKind, settings: ScheduleSettings): readonly string[] {
  const {
    brokerCount,
    links,
    services = SERVICES,
    databaseClients = services,
    tables = FULL_TABLES,
  } = settings;
  if (kind === 'broker-kill' || kind === 'broker-disk-full')
    return Array.from({ length: brokerCount }, (_, i) => `kafka-${i + 1}`);
  if (FAULTS[kind].need === 'cluster') return brokerLinksOf(brokerCount);
  if (kind.startsWith('net-')) return links;
  if (kind === 'backend-kill') return databaseClients;
  if (kind === 'disk-full') return tables;
  return ['postgres'];
}

class LaneDraws {
  private readonly stream: RandomStream;
  private readonly lane: number;

  /** @param lane its number */
  constructor(seed: number, lane: number) {
    this.stream = new RandomStream(seedOf(seed), STREAM);
    this.lane = lane;
  }

  /** Uniform in [0, 1). */
  fraction(index: number, part: number, word: 0 | 1 | 2 | 3): number {
    return (this.stream.at(index, part, this.lane)[word] as number) / TWO_32;
  }

  /** Fisher-Yates shuffle of the deck with this number. */
  shuffled<T>(cards: readonly T[], deck: number): readonly T[] {
    const left = [...cards];
    for (let i = left.length - 1; i > 0; i--) {
      const j = Math.floor(this.fraction(deck * 64 + i, PART.SHUFFLE, 0) * (i + 1));
      [left[i], left[j]] = [left[j] as T, left[i] as T];
    }
    return left;
  }
}

const between = (least: number, most: number, fraction: number): number =>
  Math.round(least + (most - least) * fraction);

const isDelay = (kind: FaultKind): boolean => kind === 'net-delay' || kind === 'broker-delay';

function amountOf(card: Card, fraction: number): number | undefined {
  if (isDelay(card.kind)) return between(DELAY_MS.least, DELAY_MS.most, fraction);
  if (card.kind === 'backend-kill') return between(0, 1_000_000, fraction);
  if (card.kind === 'clock-step') {
    // The upper half steps forward.
    const size = between(STEP_MS.least, STEP_MS.most, Math.abs(2 * fraction - 1));
    return fraction < 0.5 ? -size : size;
  }
  if (card.point === undefined) return undefined;
  const most = CRASH_POINTS[card.point] === 'payments' ? CRASH_AFTER_BATCHES_MAX : CRASH_AFTER_MAX;
  return between(1, most, fraction);
}

type Unnumbered = Omit<PlannedFault, 'id'>;

function planLane(lane: string, number: number, settings: ScheduleSettings): readonly Unnumbered[] {
  const deck = deckOf(lane, settings);
  if (deck.length === 0) return [];
  const { seed, durationMs, everyMs } = settings;
  const draws = new LaneDraws(seed, number);
  const edgeMs = Math.min(EDGE_MS_MAX, durationMs * EDGE);
  const windowMs = durationMs - 2 * edgeMs;
  const count = Math.min(FAULTS_MAX, Math.max(deck.length, Math.round(windowMs / everyMs)));
  const slotMs = windowMs / count;
  const dealt = new Map<FaultKind, number>();
  const faults = Array.from({ length: count }, (_, index): Unnumbered => {
    const card = draws.shuffled(deck, Math.floor(index / deck.length))[index % deck.length] as Card;
    const jitter = draws.fraction(index, PART.TIME, 0);
    const amount = amountOf(card, draws.fraction(index, PART.TIME, 2));
    // Targets are dealt in turn from a drawn one on, so that each is met before any is met twice.
    const pool = card.targets ?? poolOf(card.kind, settings);
    const turn = dealt.get(card.kind) ?? 0;
    dealt.set(card.kind, turn + 1);
    const first = Math.floor(draws.fraction(FAULT_KINDS.indexOf(card.kind), PART.TARGET, 0) * pool.length);
    return {
      atMs: Math.round(edgeMs + slotMs * (index + JITTER * jitter)),
      lane,
      kind: card.kind,
      target: pool[(first + turn) % pool.length] as string,
      durationMs: lastingMs(card, settings, slotMs, (word) => draws.fraction(index, PART.TIME, word)),
      ...(card.point === undefined ? {} : { point: card.point }),
      ...(amount === undefined ? {} : { amount }),
    };
  });
  return inTurn(faults);
}

/** Duration of a fault: within its slot, except for a pause that outlasts a lease and a session. */
function lastingMs(
  { kind, targets = [] }: Card,
  { durationMs }: ScheduleSettings,
  slotMs: number,
  drawn: (word: 1 | 3) => number,
): number {
  const hasSuccessor = kind === 'pause' && targets.length > 1 && durationMs >= LONG_PAUSE_RUN_MS;
  if (hasSuccessor && drawn(3) < LONG_PAUSES)
    return between(LONG_PAUSE_MS.least, LONG_PAUSE_MS.most, drawn(1));
  const { leastMs, mostMs } = FAULTS[kind];
  return Math.round(Math.min(between(leastMs, mostMs, drawn(1)), slotMs * LASTING));
}

/** Delays the faults that a long pause before them would overlap. */
function inTurn(faults: readonly Unnumbered[]): readonly Unnumbered[] {
  let endMs = 0;
  return faults.map((fault) => {
    const atMs = Math.max(fault.atMs, endMs);
    endMs = atMs + fault.durationMs;
    return { ...fault, atMs };
  });
}

const NEXT_OF: Readonly<Record<string, string>> = {
  wal: 'give -relay=wal, or leave it out',
  cluster: 'give -broker-count=3, or leave it out',
};

/** Returns the faults in the order of their times.
 *  @throws bad_value where a chosen fault cannot be planned */
export function planChaos(settings: ScheduleSettings): readonly PlannedFault[] {
  const lanes = lanesOf(settings.services ?? SERVICES);
  const all = lanes.flatMap((lane, number) => planLane(lane, number, settings));
  const missing = settings.faults.find((kind) => !all.some((one) => one.kind === kind));
  if (missing !== undefined)
    throw coreError('bad_value', `the fault ${missing} cannot be planned with these settings`, {
      next: NEXT_OF[FAULTS[missing].need] ?? 'leave it out of -faults',
    });
  return all
    .sort((a, b) => a.atMs - b.atMs || lanes.indexOf(a.lane) - lanes.indexOf(b.lane))
    .map((fault, index) => ({ id: index + 1, ...fault }));
}

/** One line about a fault. */
export function faultText({ kind, target, point, durationMs, amount }: PlannedFault): string {
  const what = point === undefined ? kind : `${kind} at ${point}`;
  const by = isDelay(kind) || kind === 'clock-step' ? ` by ${amount} ms` : '';
  const lasting = durationMs === 0 ? '' : ` for ${(durationMs / 1000).toFixed(1)} s`;
  return `${what} of ${target}${by}${lasting}`;
}
