/** Intents of the load client, each a pure function of the seed and its number, and their repeats.
 *  A share `retryRate` of the intents is followed by one to three repeats of one key. The key
 *  follows a Zipf law over a hot set of `keys` intents, which changes every `keys` intents. A rank
 *  that was not sent yet selects the intent itself. So repeats meet stored answers as well as
 *  requests in flight. */
import { GEN_STREAM } from '../core/layout/layouts.gen.ts';
import { RandomStream, seedOf, uuidOf } from '../core/random/threefry.ts';
import { ZipfTable } from '../core/random/zipf.ts';

export interface Intent {
  readonly index: number;
  /** Idempotency key, a UUID. */
  readonly key: string;
  readonly accountId: number;
  readonly amountCents: number;
}

/** Repeat of intent `index`, sent `afterMs` after the intent that it follows. */
export interface Repeat {
  readonly index: number;
  readonly afterMs: number;
}

export interface IntentOptions {
  readonly seed: bigint;
  readonly accounts: number;
  readonly zipf: number;
  /** Size of the hot set. */
  readonly keys: number;
  readonly retryRate: number;
  /** Longest time until a repeat, in ms. */
  readonly retryWithinMs: number;
}

const REPEATS_MAX = 3;
/** Mean number of repeats of an intent that is repeated. */
export const REPEATS_MEAN = 2;
const AMOUNT_CENTS_MAX = 1_000_000;
const TWO_32 = 4_294_967_296;
const PART = { KEY: 0, CHOICE: 1, REPEAT: 2, TRANSPORT: 3, HOT: 16 } as const;

export class Intents {
  private readonly options: IntentOptions;
  private readonly random: RandomStream;
  private readonly accounts: RandomStream;
  private readonly accountRanks: ZipfTable;
  private readonly hotRanks: ZipfTable;

  /** @throws out_of_range */
  constructor(options: IntentOptions) {
    this.options = options;
    const seed = seedOf(options.seed);
    this.random = new RandomStream(seed, GEN_STREAM.LOAD);
    this.accounts = new RandomStream(seed, GEN_STREAM.ACCOUNT);
    this.accountRanks = new ZipfTable(options.accounts, options.zipf);
    this.hotRanks = new ZipfTable(options.keys, options.zipf);
  }

  intent(index: number): Intent {
    const key = uuidOf(this.random.at(index, PART.KEY));
    const amountCents = 1 + ((this.random.at(index, PART.CHOICE)[0] as number) % AMOUNT_CENTS_MAX);
    let rank = 0;
    for (let attempt = 0; rank === 0; attempt++)
      rank = this.accountRanks.rankOf(this.accounts.at(index, attempt));
    return { index, key, accountId: rank, amountCents };
  }

  /** Returns the repeats that follow an intent, earliest first; most intents have none. */
  repeatsAfter(index: number): readonly Repeat[] {
    const words = this.random.at(index, PART.CHOICE);
    if ((words[1] as number) / TWO_32 >= this.options.retryRate) return [];
    const count = 1 + ((words[2] as number) % REPEATS_MAX);
    const target = this.hotKey(index);
    const delays = this.random.at(index, PART.REPEAT).slice(0, count);
    return Array.from(delays, (word) => ({
      index: target,
      afterMs: Math.floor((word / TWO_32) * this.options.retryWithinMs),
    })).sort((a, b) => a.afterMs - b.afterMs);
  }

  /** Uniform in [0, 1), for the transport of one attempt of an intent.
   *  @param attempt distinguishes the attempts of the intent */
  transportDraw(index: number, attempt: number): number {
    return (this.random.at(index, PART.TRANSPORT, attempt)[0] as number) / TWO_32;
  }

  private hotKey(index: number): number {
    let rank = 0;
    for (let attempt = 0; rank === 0; attempt++)
      rank = this.hotRanks.rankOf(this.random.at(index, PART.HOT + attempt));
    const hotSet = index - (index % this.options.keys);
    return Math.min(hotSet + rank - 1, index);
  }
}
