/** Coverage of a chaos run: duplicates, repeats and requests over gRPC. Zero deltas of a run
 *  without them show less than its settings claim. */

/** Number of each event of a run, as the report has it. */
export interface ChaosCoverage {
  /** Copies that payments injected, and recognised as duplicates. */
  readonly injected_duplicates: number;
  /** Messages that payments received again without an injection, mostly published again. */
  readonly redelivered: number;
  /** Requests that repeated a key on purpose. */
  readonly repeats: number;
  /** Answers that the server marked as the stored answer of an earlier request. */
  readonly replayed: number;
  /** Final answers over both transports. */
  readonly answers: number;
  readonly answers_over_grpc: number;
}

/** Shares that the settings ask for, each from 0 to 1. */
export interface CoverageShares {
  /** Records that are delivered twice. */
  readonly dupRate: number;
  /** Intents that are followed by repeats. */
  readonly retryRate: number;
  /** Requests over gRPC. */
  readonly grpcShare: number;
}

/** An event is required where its absence has a probability below exp(-21), about 10^-9. */
const CERTAINTY = 21;

/** True if an event that each of `trials` has with this probability must have occurred. */
function isRequired(probability: number, trials: number): boolean {
  return trials > 0 && probability > 0 && -trials * Math.log1p(-probability) >= CERTAINTY;
}

export function missingRepeats(retryRate: number, repeats: number, intents: number): readonly string[] {
  if (repeats > 0 || !isRequired(retryRate, intents)) return [];
  return [
    `no key was repeated by the client, although -retry-rate=${retryRate} and it had ${intents} intents`,
  ];
}

/** Names the events that the settings ask for and that did not occur, although the run was long
 *  enough. */
export function missingCoverage(
  { dupRate, retryRate, grpcShare }: CoverageShares,
  coverage: ChaosCoverage,
  { intents, charges }: { readonly intents: number; readonly charges: number },
): readonly string[] {
  const missing: string[] = [];
  // Half of the copies are for the batch of their record. A crash loses the others.
  if (coverage.injected_duplicates === 0 && isRequired(dupRate / 2, charges))
    missing.push(
      `no duplicate was injected at the consumer, although -dup-rate=${dupRate} and ${charges} orders were charged`,
    );
  missing.push(...missingRepeats(retryRate, coverage.repeats, intents));
  if (coverage.answers_over_grpc === 0 && isRequired(grpcShare, coverage.answers))
    missing.push(
      `no request was answered over gRPC, although ${coverage.answers} requests were answered and a share of ${grpcShare} goes over gRPC`,
    );
  return missing;
}

/** One line about the coverage of a run. */
export const coverageText = (one: ChaosCoverage): string =>
  `${one.injected_duplicates} injected duplicates and ${one.redelivered} other redeliveries recognised, ${one.repeats} repeats of a key (${one.replayed} answers replayed), ${one.answers_over_grpc} of ${one.answers} answers over gRPC`;
