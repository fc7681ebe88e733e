/** Log line of a process that ends itself at a crash point. */

export interface CrashLine {
  readonly point: string;
  /** Rows, orders or charges that the crash interrupts. */
  readonly unfinished: number;
}

/** Finds the line in the log of a service; undefined: the process reached no crash point. */
export function crashLineOf(log: string): CrashLine | undefined {
  const line = log.split('\n').find((one) => one.includes('"crash point reached"'));
  if (line === undefined) return undefined;
  const { point, unfinished } = JSON.parse(line) as CrashLine;
  return { point, unfinished };
}
