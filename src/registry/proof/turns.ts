/** Round-robin over generators, so that a bounded number of values covers every source. */

/** Yields one value of each source in turn, until all are exhausted. */
export function* inTurns<T>(sources: readonly Generator<T>[]): Generator<T> {
  let open = [...sources];
  while (open.length > 0) {
    const rest: Generator<T>[] = [];
    for (const source of open) {
      const next = source.next();
      if (next.done === true) continue;
      yield next.value;
      rest.push(source);
    }
    open = rest;
  }
}

export function* mapped<T, U>(source: Generator<T>, make: (value: T) => U): Generator<U> {
  for (const value of source) yield make(value);
}
