/** History of operations on registers, and a checker of linearizability. Each written value is
 *  unique, and the caller gives the order in which the writes of a register took effect, as the log
 *  shows it. The checker then needs no search: a history is linearizable in that order if no
 *  operation precedes another in time and follows it in the order.
 *
 *  Times are counts of events, not of ms. A write without an answer has no end: it may take effect
 *  at any time after its begin, or never. A refused write never takes effect.
 *  Source: Herlihy and Wing, Linearizability, 1990. */

export interface Operation {
  readonly kind: 'write' | 'read';
  readonly register: string;
  /** Value written or read; null: the register was empty. */
  value: string | null;
  readonly begin: number;
  /** Infinity without an answer. */
  end: number;
}

export class RegisterHistory {
  readonly operations: Operation[] = [];
  private now = 0;

  begin(kind: Operation['kind'], register: string, value: string | null = null): Operation {
    const operation = { kind, register, value, begin: ++this.now, end: Number.POSITIVE_INFINITY };
    this.operations.push(operation);
    return operation;
  }

  end(operation: Operation): void {
    operation.end = ++this.now;
  }
}

/** Returns what contradicts linearizability.
 *  @param orderOf values of a register in the order of their effect */
export function violationsOf(
  { operations }: RegisterHistory,
  orderOf: ReadonlyMap<string, readonly string[]>,
): string[] {
  const found: string[] = [];
  for (const register of new Set(operations.map((one) => one.register))) {
    const places = new Map((orderOf.get(register) ?? []).map((value, i) => [value, i]));
    // A read without an answer shows nothing, and a write without an effect has no place.
    const own = operations.filter(
      (one) =>
        one.register === register &&
        (one.kind === 'read' ? one.end < Number.POSITIVE_INFINITY : places.has(one.value as string)),
    );
    found.push(...contradictions(register, own, places));
  }
  return found;
}

/** Sweeps the operations in order of their begin: none may have a place below that of an operation
 *  which ended before. */
function contradictions(
  register: string,
  own: readonly Operation[],
  places: ReadonlyMap<string, number>,
): string[] {
  const found: string[] = [];
  const placeOf = ({ value }: Operation): number => (value === null ? -1 : (places.get(value) ?? Number.NaN));
  const byEnd = [...own].sort((a, b) => a.end - b.end);
  const begins = new Map(
    own.filter(({ kind }) => kind === 'write').map(({ value, begin }) => [value, begin]),
  );
  let ended = 0;
  let highest: Operation | undefined;
  for (const one of [...own].sort((a, b) => a.begin - b.begin)) {
    for (let next = byEnd[ended]; next !== undefined && next.end < one.begin; next = byEnd[++ended])
      if (highest === undefined || placeOf(next) > placeOf(highest)) highest = next;
    const place = placeOf(one);
    const what = `${register}: the ${one.kind} of ${one.value} at ${one.begin}`;
    if (Number.isNaN(place)) found.push(`${what} has no write that took effect`);
    else if (one.kind === 'read' && one.value !== null && (begins.get(one.value) ?? 0) > one.end)
      found.push(`${what} ends before the write begins`);
    else if (highest !== undefined && isAfter(highest, one, placeOf))
      found.push(`${what} is behind the ${highest.kind} of ${highest.value} that ended at ${highest.end}`);
  }
  return found;
}

/** True if the earlier operation excludes the later one: two reads, or a write and its read, may
 *  share a place. */
function isAfter(earlier: Operation, later: Operation, placeOf: (one: Operation) => number): boolean {
  const distance = placeOf(later) - placeOf(earlier);
  return distance < 0 || (distance === 0 && later.kind === 'write');
}
