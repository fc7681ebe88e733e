/** Ledger of the load client: the client's knowledge of its requests, as JSON lines that survive a
 *  crash.
 *
 *  Invariants: (1) an intent's line is written before its first request is sent; (2) every reply
 *  and every failure has a line; (3) a truncated last line is ignored, any other invalid line is an
 *  error. docs/reference/generator.md describes the format.
 */
import { coreError } from '../../core/errors.ts';

export const LEDGER_FORMAT = 'millrace-load-ledger-1';
/** Longest valid line. */
const LINE_CHARACTERS_MAX = 64 * 1024;

interface LedgerStart {
  readonly type: 'start';
  readonly format: typeof LEDGER_FORMAT;
  readonly target: string;
  readonly seed: string;
  /** Wall time of due time 0, ms since the epoch. */
  readonly started_ms: number;
}

export interface LedgerIntent {
  readonly type: 'intent';
  readonly intent: number;
  readonly key: string;
  readonly account_id: number;
  readonly amount_cents: number;
  /** Due time of its first request, ms after the start. */
  readonly due_ms: number;
}

interface LedgerReply {
  readonly type: 'reply';
  readonly intent: number;
  readonly kind: 'first' | 'repeat' | 'resend';
  readonly status: number;
  /** SHA-256 of the body's bytes, hexadecimal. */
  readonly sha256: string;
  /** Value of the header Idempotency-Replayed; null if it is absent. */
  readonly replayed: boolean | null;
  /** Time from the due time to the end of the reply. */
  readonly latency_ms: number;
}

interface LedgerFailure {
  readonly type: 'failure';
  readonly intent: number;
  readonly kind: 'first' | 'repeat' | 'resend';
  /** Reason that there is no reply, e.g. ECONNREFUSED. The server may have processed the request.
   */
  readonly error: string;
}

interface LedgerEnd {
  readonly type: 'end';
  readonly intents: number;
  readonly replies: number;
  readonly failures: number;
  /** Intents without a 2xx reply. */
  readonly unknown: number;
}

export type LedgerEntry = LedgerStart | LedgerIntent | LedgerReply | LedgerFailure | LedgerEnd;

/** Appends whole lines synchronously: they have left the process when `append` returns. */
export interface LedgerWriter {
  append(entries: readonly LedgerEntry[]): void;
}

export function ledgerLine(entry: LedgerEntry): string {
  return `${JSON.stringify(entry)}\n`;
}

const KINDS = ['first', 'repeat', 'resend'];
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isText = (value: unknown): boolean => typeof value === 'string';
const isTime = (value: unknown): boolean => typeof value === 'number' && Number.isFinite(value);
const isKind = (value: unknown): boolean => KINDS.includes(value as string);

type Check = (value: unknown) => boolean;
const FIELDS: Readonly<Record<LedgerEntry['type'], Readonly<Record<string, Check>>>> = {
  start: { format: (value) => value === LEDGER_FORMAT, target: isText, seed: isText, started_ms: isTime },
  intent: { intent: isCount, key: isText, account_id: isCount, amount_cents: isCount, due_ms: isTime },
  reply: {
    intent: isCount,
    kind: isKind,
    status: isCount,
    sha256: (value) => isText(value) && /^[0-9a-f]{64}$/.test(value as string),
    replayed: (value) => value === null || typeof value === 'boolean',
    latency_ms: isTime,
  },
  failure: { intent: isCount, kind: isKind, error: isText },
  end: { intents: isCount, replies: isCount, failures: isCount, unknown: isCount },
};

function parseLine(text: string, line: number): LedgerEntry {
  const bad = (why: string): Error =>
    coreError('bad_file', `line ${line} of the ledger ${why}`, {
      next: 'give a ledger that millrace load wrote',
      details: { line },
    });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw bad('is not JSON');
  }
  if (typeof value !== 'object' || value === null) throw bad('is not an entry');
  const entry = value as Record<string, unknown>;
  const type = entry['type'];
  const fields =
    typeof type === 'string' && Object.hasOwn(FIELDS, type) ? FIELDS[type as LedgerEntry['type']] : undefined;
  if (fields === undefined) throw bad('has no known type');
  for (const [name, holds] of Object.entries(fields))
    if (!holds(entry[name])) throw bad(`has no valid ${name}`);
  return entry as unknown as LedgerEntry;
}

/** Reads the entries of a ledger from chunks of any size, e.g. a file stream. A last line without a
 *  line feed is ignored: the client died while it wrote the line.
 *  @throws bad_file */
export async function* readLedger(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): AsyncGenerator<LedgerEntry> {
  const decoder = new TextDecoder('utf-8');
  let rest = '';
  let line = 0;
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() as string;
    for (const text of lines) yield parseLine(text, ++line);
    if (rest.length > LINE_CHARACTERS_MAX) {
      throw coreError('bad_file', `line ${line + 1} of the ledger is too long`, {
        next: 'give a ledger that millrace load wrote',
      });
    }
  }
}

/** Summary of one intent. */
interface IntentRecord {
  readonly index: number;
  readonly key: string;
  readonly accountId: number;
  readonly amountCents: number;
  /** Number of 2xx replies. */
  acknowledged: number;
  /** Number of final replies that are not 2xx. */
  refused: number;
  failures: number;
  replayed: number;
  /** `status sha256` of the first 2xx reply. */
  answer: string | undefined;
  /** Number of 2xx replies that differ from the first in status or body. */
  different: number;
}

export interface LedgerSummary {
  readonly intents: ReadonlyMap<string, IntentRecord>;
  /** Present if the client ended regularly. */
  readonly end: LedgerEnd | undefined;
}

/** Aggregates a ledger by key. Memory: O(intents).
 *  @throws bad_file if a reply precedes its intent */
export async function summarizeLedger(
  entries: AsyncIterable<LedgerEntry> | Iterable<LedgerEntry>,
): Promise<LedgerSummary> {
  const intents = new Map<string, IntentRecord>();
  const byIndex: IntentRecord[] = [];
  let end: LedgerEnd | undefined;
  for await (const entry of entries) {
    if (entry.type === 'end') end = entry;
    if (entry.type === 'intent') {
      const record: IntentRecord = {
        index: entry.intent,
        key: entry.key,
        accountId: entry.account_id,
        amountCents: entry.amount_cents,
        acknowledged: 0,
        refused: 0,
        failures: 0,
        replayed: 0,
        answer: undefined,
        different: 0,
      };
      intents.set(entry.key, record);
      byIndex[entry.intent] = record;
    }
    if (entry.type !== 'reply' && entry.type !== 'failure') continue;
    const record = byIndex[entry.intent];
    if (record === undefined)
      throw coreError(
        'bad_file',
        `the ledger has a ${entry.type} of intent ${entry.intent} before the intent`,
      );
    if (entry.type === 'failure') record.failures++;
    else foldReply(record, entry);
  }
  return { intents, end };
}

function foldReply(record: IntentRecord, reply: LedgerReply): void {
  if (reply.status < 200 || reply.status > 299) {
    if (isFinalStatus(reply.status)) record.refused++;
    else record.failures++;
    return;
  }
  record.acknowledged++;
  if (reply.replayed === true) record.replayed++;
  const answer = `${reply.status} ${reply.sha256}`;
  record.answer ??= answer;
  if (record.answer !== answer) record.different++;
}

/** True if a reply settles its intent; after any other reply, the client retries with the same key.
 */
export function isFinalStatus(status: number): boolean {
  return status < 500 && status !== 408 && status !== 425 && status !== 429;
}
