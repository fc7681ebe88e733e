/** Benchmarks by name; each is loaded on demand. */
import type { Bench } from './harness.ts';

export const BENCHES: Readonly<Record<string, () => Promise<{ readonly bench: Bench }>>> = {
  unit: () => import('./unit.ts'),
  broker: () => import('./broker.ts'),
  frame: () => import('./frame.ts'),
  hash: () => import('./hash.ts'),
  decode: () => import('./decode.ts'),
  serde: () => import('./serde.ts'),
  gen: () => import('./gen.ts'),
  registry: () => import('./registry.ts'),
  window: () => import('./window.ts'),
  lateness: () => import('./lateness.ts'),
  engine: () => import('./engine.ts'),
  'engine-kernel': () => import('./engine-kernel.ts'),
  'engine-soak': () => import('./engine-soak.ts'),
  'engine-checkpoint': () => import('./engine-checkpoint.ts'),
  kv: () => import('./kv.ts'),
  results: () => import('./results.ts'),
  http: () => import('./http.ts'),
  orders: () => import('./orders.ts'),
  relay: () => import('./relay.ts'),
  inbox: () => import('./inbox.ts'),
  parsers: () => import('./parsers.ts'),
  compatibility: () => import('./compatibility.ts'),
  hostile: () => import('./hostile.ts'),
  columns: () => import('./columns.ts'),
};
