/** Context of a bench in tests: small, one repetition, without a broker; and its goals. */
import type { BenchContext, BenchResult } from '../../../bench/harness.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';

export function smokeContext(over: Partial<BenchContext> = {}): BenchContext {
  return {
    smoke: true,
    repeats: 1,
    log: silentLogger,
    metrics: new Metrics(),
    settings: { native: 'off' },
    brokers: undefined,
    drain: new AbortController().signal,
    say: () => {},
    onClose: () => {},
    ...over,
  };
}

/** Goal of a result without the factor of this machine. */
export const goalOf = ({ goal }: BenchResult): string | null =>
  goal?.replace(/ [x/] \d+\.\d\d$/, ', scaled') ?? null;
