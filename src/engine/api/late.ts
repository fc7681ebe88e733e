/** GET /late: the late events that the engine keeps, by event time and key, in bounded pages. */
import { decimalText } from '../../core/decimal/exact.ts';
import { EVENT_TS_LIMIT } from '../../core/time.ts';
import type { LateEvent } from '../output/late/events.ts';
import type { LatePage, LatePlace, LateQuery } from '../output/late/store.ts';
import { keyJson, readKey, type ShownKeys } from './keys.ts';
import { badCursor, nextLink, readLimit, readTimes } from './parameters.ts';

/** Late events in one response. */
export const LATE_LIMIT = 1_000;
export const LATE_LIMIT_MAX = 10_000;

/** Greatest offset of a partition. */
const OFFSET_MAX = 2n ** 63n - 1n;

export interface LateQueries extends ShownKeys {
  /** Decimal places of the value of an event; undefined: it is an integer. */
  readonly valueScale?: number | undefined;
  /** @throws late_not_kept */
  lateEvents(query: LateQuery): Promise<LatePage>;
}

function readPlace(text: string | null): LatePlace | undefined {
  if (text === null) return undefined;
  const [, partition, offset, element] = /^(\d{1,10})_(\d{1,19})(?:_(\d{1,9}))?$/.exec(text) ?? [];
  const place = {
    ...{ partition: Number(partition), offset: BigInt(offset ?? -1) },
    ...(element === undefined ? {} : { element: Number(element) }),
  };
  if (place.partition <= 0xffff_ffff && place.offset >= 0n && place.offset < OFFSET_MAX) return place;
  throw badCursor(text);
}

/** Answers a page of late events, and the headers of the answer.
 *  @throws bad_account, bad_range, late_not_kept */
export async function latePage(
  engine: LateQueries,
  params: URLSearchParams,
): Promise<{ readonly rows: readonly object[]; readonly headers: Record<string, string> }> {
  const key = params.get('key');
  const { rows, next } = await engine.lateEvents({
    ...readTimes(params, -EVENT_TS_LIMIT),
    key: key === null ? undefined : readKey(key, engine),
    limit: readLimit(params.get('limit'), LATE_LIMIT, LATE_LIMIT_MAX),
    after: readPlace(params.get('cursor')),
  });
  return {
    rows: rows.map((event) => toJson(event, engine)),
    headers: next === undefined ? {} : nextLink('/late', params, cursorOf(next)),
  };
}

const cursorOf = ({ partition, offset, element }: LatePlace): string =>
  [partition, offset, element].filter((part) => part !== undefined).join('_');

const toJson = (event: LateEvent, form: Pick<LateQueries, 'valueScale'> & ShownKeys) => ({
  ...keyJson(event, form),
  event_ts: String(event.eventTs),
  value: decimalText(event.value, form.valueScale ?? 0),
  reason: event.reason,
  watermark_ms: String(event.watermarkMs),
  partition: event.partition,
  offset: String(event.offset),
  ...(event.element === undefined ? {} : { element: event.element }),
  timestamp_ms: event.timestampMs === undefined ? null : String(event.timestampMs),
});
