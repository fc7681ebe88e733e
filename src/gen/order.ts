/** Generates logical orders, the events of a shop: pure functions of a seed and a number. An order
 *  is plain data with 64-bit numbers as bigint; a codec encodes it.
 *  Account ids exceed 2^53, so that a codec that loses precision in a double fails on every order.
 *  Most orders have three items and about 507 bytes in Avro; one in sixteen has 0 to 6 items. Text
 *  includes characters beyond ASCII. */
import { GEN_STREAM } from '../core/layout/layouts.gen.ts';
import { RandomStream, seedOf } from '../core/random/threefry.ts';
import { ZipfTable } from '../core/random/zipf.ts';
import { OrderIdentifiers } from './identifiers.ts';

export const ORDER_STATUSES = ['PLACED', 'PAID', 'SHIPPED'] as const;
type OrderStatus = (typeof ORDER_STATUSES)[number];

/** Schema versions of Order; src/gen/order-versions.ts has their fields. */
export type OrderVersion = 1 | 2 | 3 | 4 | 5 | 6;

/** Proposed next versions of Order, one for each class of change; src/gen/order-versions.ts
 *  describes them. */
export const ORDER_CANDIDATES = [
  'add-optional',
  'add-optional-no-default',
  'add-required',
  'remove',
  'rename',
  'retype-int-long',
  'retype-int-string',
  'reuse-number',
] as const;
export type OrderCandidate = (typeof ORDER_CANDIDATES)[number];

/** Schema that orders can be written with. */
export type OrderShape = OrderVersion | OrderCandidate;

interface OrderItem {
  readonly sku: string;
  readonly qty: number;
  readonly price_cents: bigint;
}

/** All fields of all schema versions and candidates; `orderAsWritten` selects those of one. */
export interface LogicalOrder {
  readonly order_id: string;
  readonly account_id: bigint;
  readonly status: OrderStatus;
  readonly amount_cents: bigint;
  readonly currency: string;
  /** Milliseconds since the epoch. */
  readonly ts: bigint;
  readonly items: readonly OrderItem[];
  readonly channel: string;
  readonly customer_ref: string;
  readonly ship_to: string;
  readonly note: string;
  readonly trace_id: string;
  readonly discount_cents: bigint;
  readonly coupon: string | null;
  readonly gift: boolean;
  readonly instructions: string;
  /** The value of `customer_ref` under its name from version 4 on. */
  readonly customer: string;
  readonly region: string;
  readonly loyalty: string | null;
  readonly tax_cents: bigint;
  /** The value of `channel` under another name. */
  readonly sales_channel: string;
}

export interface OrderOptions {
  readonly seed: bigint;
  readonly accounts: number;
  readonly zipf: number;
  /** account_id of the most frequent account. */
  readonly accountBase: bigint;
  /** ts of order 0; each order is 1 ms after the previous one. */
  readonly baseMs: number;
}

export const DEFAULT_ORDERS: Omit<OrderOptions, 'seed'> = {
  accounts: 1_000_000,
  zipf: 1.1,
  accountBase: 9_007_199_254_740_993n,
  baseMs: 1_750_000_000_000,
};

const CURRENCIES = ['EUR', 'USD', 'GBP', 'PLN', 'SEK', 'JPY', 'CHF', 'CZK'] as const;
const CHANNELS = ['web', 'app', 'store', 'phone', 'partner', 'market', 'kiosk', 'b2b'] as const;
const STREETS = [
  'Hauptstraße',
  'Rue de la Paix',
  'Via Garibaldi',
  'Ulica Świętojańska',
  'Calle Mayor',
  'Station Road',
  'Kungsgatan',
  '本町通り',
] as const;
const CITIES = [
  '10115 Berlin, Germany',
  '75002 Paris, France',
  '20121 Milano, Italy',
  '81-391 Gdynia, Poland',
  '28013 Madrid, Spain',
  'LS1 4DY Leeds, United Kingdom',
  '111 43 Stockholm, Sweden',
  '541-0053 大阪市, Japan',
] as const;
const NAMES = [
  'Anna Schmidt',
  'Zoë Dubois',
  'Marco Rossi',
  'Łukasz Nowak',
  'María José García',
  'Olivia Taylor',
  'Björn Åkesson',
  '山田 太郎',
] as const;
const NOTES = [
  'Please leave the parcel with the neighbour on the left.',
  'Ring twice; the bell on the ground floor is out of order.',
  'Deliver between nine and twelve, the shop closes at noon.',
  'Fragile: glass inside, this side up, do not stack.',
  'Gift wrapping in blue paper, no invoice in the parcel.',
  'Call the number on file before you deliver, thank you!',
  'Second attempt after a failed delivery 🚚 on Monday.',
  'Combine with the order of yesterday if that is possible.',
] as const;

const REGIONS = ['eu-central', 'eu-west', 'eu-north', 'us-east', 'us-west', 'ap-east', 'ap-south'] as const;
const TIERS = [null, 'bronze', 'silver', 'gold'] as const;

/** Parts of the random stream that an order uses. Items use ITEM, ITEM + 1, and so on. */
const PART = { ID: 0, CHOICE: 1, TEXT: 2, TRACE: 3, EXTRA: 4, REF: 5, ITEM: 16, PRICE: 64 } as const;
const USUAL_ITEMS = 3;
const TWO_32 = 4_294_967_296;

/** Parts of an address with the characters that follow them. */
const ADDRESSEES = NAMES.map((name) => `${name}, `);
const STREET_NUMBERS = Array.from({ length: 240 }, (_, number) => ` ${1 + number}, `);
const NOTES_SPACED = NOTES.map((note) => `${note} `);

const wide = new BigUint64Array(1);
const halves = new Uint32Array(wide.buffer);
const LOW = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1 ? 0 : 1;

/** The bigint of a whole number from 0 to 2^53: many times faster than the constructor. */
function bigOf(value: number): bigint {
  halves[LOW] = value;
  halves[1 - LOW] = value / TWO_32;
  return wide[0] as bigint;
}

const pick = <T>(choices: readonly T[], bits: number): T => choices[bits % choices.length] as T;

export class OrderGenerator {
  private readonly random: RandomStream;
  private readonly accounts: RandomStream;
  private readonly versions: RandomStream;
  private readonly zipf: ZipfTable;
  private readonly options: OrderOptions;
  private readonly identifiers = new OrderIdentifiers();

  /** @throws out_of_range */
  constructor(options: OrderOptions) {
    const seed = seedOf(options.seed);
    this.options = options;
    this.random = new RandomStream(seed, GEN_STREAM.ORDER);
    this.accounts = new RandomStream(seed, GEN_STREAM.ACCOUNT);
    this.versions = new RandomStream(seed, GEN_STREAM.VERSION);
    this.zipf = new ZipfTable(options.accounts, options.zipf);
  }

  order(index: number): LogicalOrder {
    const { random, identifiers } = this;
    const choices = random.at(index, PART.CHOICE);
    const choice = choices[0] as number;
    const itemBits = choices[1] as number;
    const count = (itemBits & 15) === 0 ? (itemBits >>> 4) % 7 : USUAL_ITEMS;
    const extra = random.at(index, PART.EXTRA);
    const couponWord = extra[0] as number;
    const discountWord = extra[1] as number;
    const giftWord = extra[2] as number;
    identifiers.setReference(extra[3] as number);
    identifiers.setCoupon(couponWord);
    identifiers.setId(random.at(index, PART.ID));
    identifiers.setTrace(random.at(index, PART.TRACE));
    identifiers.setSpan(random.at(index, PART.REF));
    for (let i = 0; i < count; i++) identifiers.setSku(i, random.at(index, PART.ITEM + i));
    identifiers.freeze(count);
    const items = new Array<OrderItem>(count);
    let amount = 0;
    for (let i = 0; i < count; i++) {
      const words = random.at(index, PART.PRICE + i);
      const qty = 1 + ((words[0] as number) % 9);
      const price = 100 + ((words[1] as number) % 99_900);
      amount += qty * price;
      items[i] = { sku: identifiers.sku(i), qty, price_cents: bigOf(price) };
    }
    const words = random.at(index, PART.TEXT);
    const name = words[0] as number;
    const street = words[1] as number;
    const city = words[2] as number;
    const notes = words[3] as number;
    const channel = pick(CHANNELS, choice >>> 8);
    const customer = identifiers.reference;
    return {
      order_id: identifiers.id,
      account_id: this.options.accountBase + bigOf(this.rank(index) - 1),
      status: pick(ORDER_STATUSES, choice),
      amount_cents: bigOf(amount),
      currency: pick(CURRENCIES, choice >>> 4),
      ts: bigOf(this.options.baseMs + index),
      items,
      channel,
      customer_ref: customer,
      ship_to:
        pick(ADDRESSEES, name) +
        pick(STREETS, street) +
        pick(STREET_NUMBERS, street >>> 8) +
        pick(CITIES, city),
      note: pick(NOTES_SPACED, notes) + pick(NOTES_SPACED, notes >>> 8) + pick(NOTES, notes >>> 16),
      trace_id: identifiers.trace,
      discount_cents: (discountWord & 3) === 0 ? bigOf(discountWord >>> 18) : 0n,
      coupon: (couponWord & 3) === 0 ? identifiers.coupon : null,
      gift: (giftWord & 7) === 0,
      instructions:
        pick(NOTES_SPACED, name >>> 8) + pick(NOTES_SPACED, name >>> 16) + pick(NOTES, name >>> 24),
      customer,
      region: pick(REGIONS, city >>> 8),
      loyalty: pick(TIERS, city >>> 16),
      tax_cents: bigOf(Math.floor(amount / 5)),
      sales_channel: channel,
    };
  }

  /** Returns the version that writes order `index`: fixed for a seed, evenly mixed. */
  versionOf<Shape extends OrderShape>(index: number, versions: readonly Shape[]): Shape {
    return pick(versions, this.versions.at(index)[0] as number);
  }

  private rank(index: number): number {
    for (let attempt = 0; ; attempt++) {
      const rank = this.zipf.rankOf(this.accounts.at(index, attempt));
      if (rank !== 0) return rank;
    }
  }
}

let last: { readonly seed: bigint; readonly generator: OrderGenerator } | undefined;

/** Returns order `index` of a seed with the default accounts. */
export function logicalOrder(seed: bigint | number, index: number): LogicalOrder {
  const wide = BigInt(seed);
  if (last?.seed !== wide)
    last = { seed: wide, generator: new OrderGenerator({ ...DEFAULT_ORDERS, seed: wide }) };
  return last.generator.order(index);
}
