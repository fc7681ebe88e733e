/** CPU of each stage of the load, and what it implies for other machines. */
import type { CodecSeconds } from './codec.ts';
import { type Measured, STAGES, type Stage } from './load.ts';

export interface StageCosts {
  /** CPU seconds for a million events through producer, broker and all groups; NaN: not measured.
   */
  readonly process: Readonly<Record<Stage, number>>;
  readonly total: number;
  /** Cores that the load keeps busy. */
  readonly busyCores: number;
}

/** Costs of a measured run. In JSON a stage that was not measured is null. */
export function stageCosts({ cpu, flatness }: Pick<Measured, 'cpu' | 'flatness'>): StageCosts {
  const millions = (flatness.writtenPerSecond * flatness.seconds) / 1e6;
  const process = Object.fromEntries(STAGES.map((stage) => [stage, (cpu[stage] ?? Number.NaN) / millions]));
  const total = STAGES.reduce((sum, stage) => sum + (process[stage] as number), 0);
  return {
    process: process as StageCosts['process'],
    total,
    busyCores: (total * flatness.writtenPerSecond) / 1e6,
  };
}

/** Rate that a machine carries by arithmetic: the same CPU an event, and the same share of each
 *  core busy with it. Every stage runs on several threads, and no partition is shared by two
 *  members, so no stage is bound to one core.
 *  @param cores cores of the measured machine */
export const carriedBy = (rate: number, cores: number, others: number): number => (rate * others) / cores;

/** Cores that carry a rate, by the same arithmetic. */
export const coresFor = (wanted: number, rate: number, cores: number): number => (wanted * cores) / rate;

/** Codec within the stages, CPU seconds for a million events. The decoder runs once a group. */
export const codecShares = (
  { generate, encode, decode }: CodecSeconds,
  groups: number,
): Readonly<Record<'generate' | 'encode' | 'decode', number>> => ({
  generate,
  encode,
  decode: decode * groups,
});

/** Rate that fills a machine at the CPU an event of a low rate: a first guess, because larger
 *  batches cost less for an event.
 *  @param share share of the cores that the load may use */
export function guessedRate(costs: StageCosts, cores: number, share: number): number {
  return (cores * share * 1e6) / costs.total;
}
