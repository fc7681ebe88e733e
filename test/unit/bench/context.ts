/** Context of a bench in tests: small, one repetition, without a broker. */
import type { BenchContext } from '../../../bench/harness.ts';
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
