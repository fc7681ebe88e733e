/** GET /windows/{key} and GET /windows: windows of one key, of all keys in a range of time, the
 *  greatest by a column, and the windows that fire from now on. */
import type { Timers } from '../../core/clock.ts';
import { DURATION_MS_MAX, EVENT_TS_LIMIT } from '../../core/time.ts';
import type { HttpRequest, HttpResponse } from '../../io/http/port.ts';
import { ERROR_SUFFIX } from '../aggregate/definition.ts';
import { engineError } from '../errors.ts';
import { isRanked, type ResultColumn } from '../output/columns.ts';
import type { FiredFeed } from '../output/feed.ts';
import type { WindowBounds, WindowPage, WindowQuery } from '../output/fired/lookup.ts';
import { type RangePage, type RangeQuery, TOP_LIMIT_MAX, type TopQuery } from '../output/fired/range.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { CSV_TYPE, formOf, windowJson, windowsCsv, withKey } from './forms.ts';
import { type AskedKey, readKey, type ShownKeys } from './keys.ts';
import { WINDOWS_LIMIT, WINDOWS_LIMIT_MAX } from './openapi.ts';
import { badCursor, nextLink, quoted, readFlag, readLimit, readTimes } from './parameters.ts';
import { streamAnswer } from './stream.ts';

/** Lower bound of every window start. */
const START_MIN = -(EVENT_TS_LIMIT + DURATION_MS_MAX);
/** Longest cursor of a page of all keys: a key of 1 KiB with its bounds, in base64. */
const CURSOR_CHARS_MAX = 1_500;

export interface OpenWindows {
  readonly rows: readonly WindowResult[];
  readonly isCut: boolean;
}

/** Queries for windows that the routes send to an engine. */
export interface WindowQueries extends ShownKeys {
  /** Columns of the results. */
  readonly columns: readonly ResultColumn[];
  /** Every window that ends at or before this time has fired; -Infinity before the first. */
  readonly firedTo: number;
  windows(query: WindowQuery): Promise<WindowPage>;
  /** Windows of the key that `windows` does not return yet and that end after `after`,
   *  ascending by end. `isCut`: there are more than were returned. */
  openWindows(key: bigint | Uint8Array, after: number): Promise<OpenWindows>;
  /** @throws range_too_wide */
  windowRange(query: RangeQuery): Promise<RangePage>;
  /** @throws range_too_wide */
  topWindows(query: TopQuery): Promise<readonly WindowResult[]>;
  /** Windows that become durable. */
  readonly feed: FiredFeed;
  /** Differs from that of every other process of the job. */
  readonly epoch: string;
}

const cursorOf = ({ windowStart, windowEnd }: WindowBounds): string => `${windowStart}_${windowEnd}`;

function readCursor(text: string | null): WindowBounds | undefined {
  if (text === null) return undefined;
  const [, start, end] = /^(-?\d{1,16})_(-?\d{1,16})$/.exec(text) ?? [];
  const bounds = { windowStart: Number(start), windowEnd: Number(end) };
  const isTime = (ms: number): boolean => Math.abs(ms) <= EVENT_TS_LIMIT + DURATION_MS_MAX;
  if (isTime(bounds.windowStart) && isTime(bounds.windowEnd)) return bounds;
  throw badCursor(text);
}

/** Windows of an answer; `finals` has an entry for each row where open windows were asked for. */
interface Found {
  readonly rows: readonly WindowResult[];
  readonly finals?: readonly boolean[];
}

/** Windows whose own column says whether they are final. */
const marked = ({ rows, finals }: Found): Found =>
  finals === undefined
    ? { rows }
    : {
        rows: rows.map(({ isEarly, ...row }, at) => (finals[at] === true ? row : { ...row, isEarly: true })),
      };

/** Answer in the form that the client prefers; its body depends on Accept. */
function answer(
  engine: WindowQueries,
  request: HttpRequest,
  found: Found,
  headers: Readonly<Record<string, string>> = {},
): HttpResponse {
  const { rows, finals } = engine.columns.some(({ name }) => name === 'final') ? marked(found) : found;
  if (formOf(request.header('accept')) === 'csv') {
    const extra = finals && { name: 'final', cells: finals.map(String) };
    const body = windowsCsv(rows, engine.columns, extra);
    return { status: 200, headers: { 'content-type': CSV_TYPE, vary: 'accept', ...headers }, body };
  }
  const items = rows.map((row, at) =>
    windowJson(row, engine, finals === undefined ? {} : { final: finals[at] }),
  );
  return {
    status: 200,
    headers: { 'content-type': 'application/json', vary: 'accept', ...headers },
    body: JSON.stringify(items),
  };
}

/** Fired windows, then open windows; every open window ends after every fired window. */
async function withOpen(engine: WindowQueries, query: WindowQuery) {
  const { from, to, limit, after } = query;
  // Open windows are read first: a window that is stored between the two reads is then found as
  // fired, and a window that has fired but is not stored yet is found as open.
  const { firedTo } = engine;
  const open = await engine.openWindows(
    query.key ?? query.accountId,
    after?.windowEnd ?? Number.NEGATIVE_INFINITY,
  );
  const page = await engine.windows(query);
  // Rows that end later are early results, or were stored by an earlier run that fired open windows
  // at its end; they are open. An early result up to it has fired, and is not stored yet.
  const fired = page.rows.findIndex((row) => row.windowEnd > firedTo || row.isEarly === true);
  const { rows, next } = fired < 0 ? page : { rows: page.rows.slice(0, fired), next: undefined };
  const finals = rows.map(() => true);
  if (next !== undefined) return { rows, finals, next };
  const known = new Set(rows.map(cursorOf));
  const wanted = open.rows.filter(
    (row) => row.windowStart >= from && row.windowStart < to && !known.has(cursorOf(row)),
  );
  const included = wanted.slice(0, limit - rows.length);
  const found = { rows: [...rows, ...included], finals: [...finals, ...included.map(() => false)] };
  if (included.length < wanted.length) return { ...found, next: included.at(-1) ?? rows.at(-1) };
  return { ...found, next: open.isCut ? open.rows.at(-1) : undefined };
}

/** Answers GET /windows/{key}. @throws bad_account, bad_range, too_many_streams */
export async function windowsOfKey(
  engine: WindowQueries,
  request: HttpRequest,
  timers: Pick<Timers, 'every'>,
): Promise<HttpResponse> {
  const params = request.query;
  const text = request.params['key'] ?? '';
  const asked = readKey(text, engine);
  if (formOf(request.header('accept')) === 'events') return follow(engine, request, timers, asked);
  const { from, to } = readTimes(params, START_MIN);
  const limit = readLimit(params.get('limit'), WINDOWS_LIMIT, WINDOWS_LIMIT_MAX);
  const after = readCursor(params.get('cursor'));
  const isOpen = readFlag('open', params.get('open'));
  const query = { ...asked, from, to, limit, ...(after === undefined ? {} : { after }) };
  const page = isOpen ? await withOpen(engine, query) : await engine.windows(query);
  const found = { ...page, rows: page.rows.map((row) => withKey(row, asked)) };
  if (page.next === undefined) return answer(engine, request, found);
  const path = `/windows/${encodeURIComponent(text)}`;
  return answer(engine, request, found, nextLink(path, params, cursorOf(page.next)));
}

/** Answers GET /windows. @throws bad_range, range_too_wide, too_many_streams */
export async function windowsOfAll(
  engine: WindowQueries,
  request: HttpRequest,
  timers: Pick<Timers, 'every'>,
): Promise<HttpResponse> {
  const params = request.query;
  if (formOf(request.header('accept')) === 'events') return follow(engine, request, timers);
  const range = readTimes(params, START_MIN);
  const top = readTop(engine, params);
  if (top !== undefined)
    return answer(engine, request, { rows: await engine.topWindows({ ...range, ...top }) });
  const limit = readLimit(params.get('limit'), WINDOWS_LIMIT, WINDOWS_LIMIT_MAX);
  const after = readRangeCursor(params.get('cursor'));
  const page = await engine.windowRange({ ...range, limit, after });
  if (page.next === undefined) return answer(engine, request, page);
  const cursor = Buffer.from(page.next).toString('base64url');
  return answer(engine, request, page, nextLink('/windows', params, cursor));
}

function readTop(
  engine: WindowQueries,
  params: URLSearchParams,
): { readonly top: number; readonly by: ResultColumn } | undefined {
  const [top, by] = [params.get('top'), params.get('by')];
  if (top === null) {
    if (by !== null) throw engineError('bad_range', 'by has no meaning without top');
    return undefined;
  }
  for (const name of ['limit', 'cursor'])
    if (params.get(name) !== null)
      throw engineError('bad_range', `${name} has no meaning with top: its answer is one page`);
  const ranked = engine.columns.filter(isRanked);
  const column = by === null ? defaultRank(engine.columns) : ranked.find(({ name }) => name === by);
  if (column === undefined) {
    const names = ranked.map(({ name }) => name).join(', ');
    throw engineError('bad_range', `by is none of ${names}: ${quoted(by ?? 'count')}`);
  }
  return { top: readLimit(top, 1, TOP_LIMIT_MAX, 'top'), by: column };
}

/** Column by which windows are ranked without `by`: count, else the job's first aggregate that has
 *  an order. The error of an estimate is none. */
function defaultRank(columns: readonly ResultColumn[]): ResultColumn | undefined {
  const errors = new Set(columns.map(({ name }) => name + ERROR_SUFFIX));
  const ranked = columns.filter(
    (column) => isRanked(column) && column.role === 'aggregate' && !errors.has(column.name),
  );
  return ranked.find(({ name }) => name === 'count') ?? ranked[0];
}

function readRangeCursor(text: string | null): Uint8Array | undefined {
  if (text === null) return undefined;
  const isShort = text.length >= 1 && text.length <= CURSOR_CHARS_MAX;
  if (!isShort || !/^[A-Za-z0-9_-]+$/.test(text)) throw badCursor(text);
  return new Uint8Array(Buffer.from(text, 'base64url'));
}

/** Answers with the windows that fire from now on. */
function follow(
  engine: WindowQueries,
  request: HttpRequest,
  timers: Pick<Timers, 'every'>,
  asked?: AskedKey,
): HttpResponse {
  for (const name of request.query.keys()) {
    if (name === 'window') continue;
    throw engineError('bad_range', `${quoted(name)} has no meaning for a stream of windows`, {
      next: 'leave it out, or ask for application/json or text/csv with Accept',
    });
  }
  const isWanted = ({ accountId, key }: WindowResult): boolean =>
    asked === undefined ||
    (asked.key === undefined
      ? accountId === asked.accountId
      : key !== undefined && Buffer.compare(key, asked.key) === 0);
  return streamAnswer({
    ...{ feed: engine.feed, epoch: engine.epoch, timers, isWanted },
    lastEventId: request.header('last-event-id')[0],
    toJson: (result) => windowJson(result, engine),
  });
}
