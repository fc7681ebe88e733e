/** Literal oracle: a third implementation of the rules, event by event and firing by firing. It
 *  keeps every open window as the list of its events and computes everything from scratch, so it
 *  suits only small streams. It is pure: each step makes a new state, and streams with a common
 *  prefix share it.
 *
 *  It asserts what the engine relies on: (1) an accepted event never belongs to a fired window; (2)
 *  a window fires once, and no two sessions of a key overlap. Two mutations of the rules make these
 *  assertions fail, to prove that they can. */
import {
  type LogEntry,
  noCounts,
  type OracleRow,
  type OracleRules,
  type PartitionCounters,
  TS_LIMIT,
} from '../../bench/peers/oracle/rules.ts';

export type LiteralRules = OracleRules & {
  /** Mutation: sessions also merge at a distance equal to the gap. */
  readonly touchMerges?: boolean;
  /** Mutation: windows fire when the frontier is still this far before their end. */
  readonly firesEarlyMs?: bigint;
};

export class TheoremViolation extends Error {}

interface WindowEvent {
  readonly ts: bigint;
  readonly value: bigint;
}

interface Window {
  readonly accountId: bigint;
  readonly start: bigint;
  readonly end: bigint;
  readonly events: readonly WindowEvent[];
}

interface Partition {
  /** New greatest timestamp after each valid event of the partition. */
  readonly moves: readonly bigint[];
  readonly idle: boolean;
  readonly counters: Readonly<PartitionCounters>;
}

export interface LiteralState {
  readonly partitions: readonly Partition[];
  readonly frontier: bigint | undefined;
  readonly open: readonly Window[];
  /** Fired windows in firing order. */
  readonly fired: readonly Window[];
}

const greatest = (of: readonly bigint[]): bigint => of.reduce((a, b) => (a > b ? a : b));
const least = (of: readonly bigint[]): bigint => of.reduce((a, b) => (a < b ? a : b));
const compare = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);

const newPartition = (moves: readonly bigint[]): Partition => ({ moves, idle: false, counters: noCounts() });

export const literalStart = (partitions: number): LiteralState => ({
  partitions: Array.from({ length: partitions }, () => newPartition([])),
  frontier: undefined,
  open: [],
  fired: [],
});

const replacePartition = (state: LiteralState, number: number, one: Partition): LiteralState => ({
  ...state,
  partitions: state.partitions.map((before, p) => (p === number ? one : before)),
});

const count = (one: Partition, ...names: readonly (keyof PartitionCounters)[]): Partition => {
  const counters = { ...one.counters };
  for (const name of names) counters[name] += 1n;
  return { ...one, counters };
};

/** Frontier after all events so far; it never decreases. */
function frontierOf(rules: LiteralRules, state: LiteralState): bigint | undefined {
  const watching =
    rules.watermark === 'global' ? state.partitions : state.partitions.filter((one) => !one.idle);
  const all = watching.flatMap((one) => one.moves);
  let seen: bigint | undefined;
  if (rules.watermark === 'global') seen = all.length === 0 ? undefined : greatest(all);
  else if (watching.length > 0 && watching.every((one) => one.moves.length > 0))
    seen = least(watching.map((one) => greatest(one.moves)));
  if (seen === undefined) return state.frontier;
  const frontier = seen - rules.skewMs - rules.latenessMs;
  return state.frontier === undefined ? frontier : greatest([frontier, state.frontier]);
}

/** Windows of fixed length that contain the timestamp, found by trying every possible k. */
function fixedWindows(rules: LiteralRules, ts: bigint): { start: bigint; end: bigint }[] {
  if (rules.window === 'session') return [];
  const size = rules.sizeMs;
  const slide = rules.window === 'sliding' ? rules.slideMs : size;
  const found: { start: bigint; end: bigint }[] = [];
  for (let k = (ts - size) / slide - 2n; k <= ts / slide + 2n; k++) {
    if (k * slide <= ts && ts < k * slide + size) found.push({ start: k * slide, end: k * slide + size });
  }
  return found;
}

/** True if the timestamp extends the session. */
function joins(rules: LiteralRules & { readonly gapMs: bigint }, session: Window, ts: bigint): boolean {
  const first = least(session.events.map((one) => one.ts));
  const last = greatest(session.events.map((one) => one.ts));
  const distance = ts < first ? first - ts : ts > last ? ts - last : 0n;
  return rules.touchMerges === true ? distance <= rules.gapMs : distance < rules.gapMs;
}

function meets(rules: LiteralRules, fired: Window, accountId: bigint, ts: bigint): boolean {
  if (rules.window === 'session') return fired.accountId === accountId && joins(rules, fired, ts);
  return fired.start <= ts && ts < fired.end;
}

function accept(
  rules: LiteralRules,
  state: LiteralState,
  accountId: bigint,
  event: WindowEvent,
): LiteralState {
  const met = state.fired.find((window) => meets(rules, window, accountId, event.ts));
  if (met !== undefined)
    throw new TheoremViolation(
      `${event.ts} is accepted and meets [${met.start}, ${met.end}), which has fired`,
    );
  if (rules.window === 'session') {
    const merged = state.open.filter(
      (window) => window.accountId === accountId && joins(rules, window, event.ts),
    );
    const events = [...merged.flatMap((window) => window.events), event];
    const times = events.map((one) => one.ts);
    const session = { accountId, start: least(times), end: greatest(times) + rules.gapMs, events };
    return { ...state, open: [...state.open.filter((window) => !merged.includes(window)), session] };
  }
  let open = state.open;
  for (const { start, end } of fixedWindows(rules, event.ts)) {
    const before = open.find((window) => window.accountId === accountId && window.start === start);
    const events = [...(before?.events ?? []), event];
    open = [...open.filter((window) => window !== before), { accountId, start, end, events }];
  }
  return { ...state, open };
}

function fire(rules: OracleRules, state: LiteralState, which: (window: Window) => boolean): LiteralState {
  const firing = state.open
    .filter(which)
    .sort((a, b) => compare(a.end, b.end) || compare(a.accountId, b.accountId) || compare(a.start, b.start));
  if (firing.length === 0) return state;
  for (const [i, window] of firing.entries()) {
    for (const before of [...state.fired, ...firing.slice(0, i)]) {
      if (before.accountId !== window.accountId) continue;
      const same =
        rules.window === 'session'
          ? before.start < window.end && window.start < before.end
          : before.start === window.start;
      if (same) throw new TheoremViolation(`[${window.start}, ${window.end}) fires though it has fired`);
    }
  }
  return {
    ...state,
    open: state.open.filter((window) => !firing.includes(window)),
    fired: [...state.fired, ...firing],
  };
}

function fireReached(rules: LiteralRules, state: LiteralState): LiteralState {
  const { frontier } = state;
  if (frontier === undefined) return state;
  return fire(rules, state, (window) => window.end - (rules.firesEarlyMs ?? 0n) <= frontier);
}

/** Applies one log entry: validate, move the greatest timestamp, move the frontier, drop or add the
 *  event, fire. */
export function literalStep(rules: LiteralRules, state: LiteralState, entry: LogEntry): LiteralState {
  if (entry.kind === 'added') {
    const { frontier } = state;
    const moves = frontier === undefined ? [] : [frontier + rules.skewMs + rules.latenessMs];
    return { ...state, partitions: [...state.partitions, newPartition(moves)] };
  }
  const one = state.partitions[entry.partition];
  if (one === undefined) throw new Error(`there is no partition ${entry.partition}`);
  if (entry.kind === 'idle') {
    const idle = replacePartition(state, entry.partition, { ...one, idle: true });
    return fireReached(rules, { ...idle, frontier: frontierOf(rules, idle) });
  }
  if (entry.kind === 'broken' || entry.eventTs < -TS_LIMIT || entry.eventTs > TS_LIMIT - 1n)
    return replacePartition(state, entry.partition, count(one, 'consumed', 'invalid'));

  const ts = entry.eventTs;
  const limit =
    rules.maxFutureMs === undefined || entry.appendTs === undefined
      ? undefined
      : entry.appendTs + rules.maxFutureMs;
  const isClamped = limit !== undefined && ts > limit;
  const moved: Partition = { ...one, moves: [...one.moves, isClamped ? limit : ts], idle: false };
  const seen = replacePartition(state, entry.partition, moved);
  const after = { ...seen, frontier: frontierOf(rules, seen) };

  const judges = rules.watermark === 'global' ? after.partitions.flatMap((p) => p.moves) : moved.moves;
  const isLateHere = ts < greatest(judges) - rules.skewMs - rules.latenessMs;
  const isLate = isLateHere || (after.frontier !== undefined && ts < after.frontier);
  const counted = count(
    moved,
    'consumed',
    ...(isClamped ? (['futureClamped'] as const) : []),
    ...(isLate ? (['droppedLate'] as const) : (['accepted'] as const)),
    ...(isLate && !isLateHere ? (['droppedAfterIdle'] as const) : []),
  );
  const judged = replacePartition(after, entry.partition, counted);
  const stored = isLate ? judged : accept(rules, judged, entry.accountId, { ts, value: entry.value });
  return fireReached(rules, stored);
}

/** Ends a bounded input: all open windows fire. */
export const literalEnd = (rules: OracleRules, state: LiteralState): LiteralState =>
  fire(rules, state, () => true);

function rowOf({ accountId, start, end, events }: Window): OracleRow {
  const values = events.map((one) => one.value);
  const sum = values.reduce((a, b) => a + b);
  return {
    accountId,
    windowStart: start,
    windowEnd: end,
    count: BigInt(events.length),
    sum: BigInt.asIntN(64, sum),
    min: least(values),
    max: greatest(values),
    lastUpdateTs: greatest(events.map((one) => one.ts)),
    overflow: sum < -(1n << 63n) || sum >= 1n << 63n,
  };
}

/** Rows of the fired windows, in firing order. */
export const literalRows = (state: LiteralState): OracleRow[] => state.fired.map(rowOf);

export const literalCounters = (state: LiteralState): PartitionCounters[] =>
  state.partitions.map((one) => ({ ...one.counters }));

export function literalOf(rules: LiteralRules, partitions: number, log: readonly LogEntry[]): LiteralState {
  return log.reduce((state, entry) => literalStep(rules, state, entry), literalStart(partitions));
}
