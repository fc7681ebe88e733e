import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  isFinalStatus,
  LEDGER_FORMAT,
  type LedgerEntry,
  ledgerLine,
  readLedger,
  summarizeLedger,
} from '../../../src/outbox/reconcile/client-ledger.ts';
import { runs } from '../../tier.ts';

const sha = (n: number): string => n.toString(16).padStart(64, '0');
const ENTRIES: readonly LedgerEntry[] = [
  { type: 'start', format: LEDGER_FORMAT, target: 'http://x', seed: '1', started_ms: 5 },
  { type: 'intent', intent: 0, key: 'k0', account_id: 7, amount_cents: 100, due_ms: 0 },
  { type: 'intent', intent: 1, key: 'k1', account_id: 8, amount_cents: 200, due_ms: 1.5 },
  { type: 'failure', intent: 0, kind: 'first', error: 'ECONNRESET' },
  { type: 'reply', intent: 0, kind: 'resend', status: 201, sha256: sha(1), replayed: true, latency_ms: 3 },
  { type: 'reply', intent: 0, kind: 'repeat', status: 201, sha256: sha(1), replayed: true, latency_ms: 3 },
  { type: 'reply', intent: 0, kind: 'repeat', status: 201, sha256: sha(2), replayed: null, latency_ms: 3 },
  { type: 'reply', intent: 1, kind: 'first', status: 503, sha256: sha(3), replayed: null, latency_ms: 3 },
  { type: 'reply', intent: 1, kind: 'resend', status: 409, sha256: sha(4), replayed: null, latency_ms: 3 },
  { type: 'end', intents: 2, replies: 5, failures: 2, unknown: 1 },
];
const bytesOf = (entries: readonly LedgerEntry[]): Uint8Array =>
  new TextEncoder().encode(entries.map(ledgerLine).join(''));
async function read(chunks: Iterable<Uint8Array>): Promise<LedgerEntry[]> {
  const entries: LedgerEntry[] = [];
  for await (const entry of readLedger(chunks)) entries.push(entry);
  return entries;
}

describe('load ledger', () => {
  test('the ledger is read as it was written, in chunks of any size', async () => {
    const bytes = bytesOf(ENTRIES);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: bytes.length }), { maxLength: 6 }),
        async (cuts) => {
          const at = [0, ...cuts.sort((a, b) => a - b), bytes.length];
          expect(await read(at.slice(1).map((end, i) => bytes.subarray(at[i], end)))).toEqual(ENTRIES);
        },
      ),
      { numRuns: runs(30) },
    );
  });

  test('a ledger truncated at any byte gives the complete lines before it', async () => {
    const bytes = bytesOf(ENTRIES);
    let lines = 0;
    for (let end = 0; end <= bytes.length; end++) {
      if (end > 0 && bytes[end - 1] === 10) lines++;
      expect((await read([bytes.subarray(0, end)])).length).toBe(lines);
    }
  });

  test.each([
    ['not JSON', '{"type":\n'],
    ['not an entry', '5\n'],
    ['no known type', '{"type":"toString"}\n'],
    ['no valid format', '{"type":"start","format":"other","target":"","seed":"1","started_ms":1}\n'],
    [
      'no valid sha256',
      '{"type":"reply","intent":0,"kind":"first","status":201,"sha256":"xyz","replayed":null,"latency_ms":1}\n',
    ],
    ['no valid kind', '{"type":"failure","intent":0,"kind":"third","error":"e"}\n'],
    ['no valid intent', '{"type":"failure","intent":-1,"kind":"first","error":"e"}\n'],
    ['too long', 'x'.repeat(70_000)],
  ])('an invalid ledger is refused with its line: %s', async (why, text) => {
    await expect(read([bytesOf(ENTRIES.slice(0, 2)), new TextEncoder().encode(text)])).rejects.toThrow(
      new RegExp(`line 3 of the ledger.*${why}`),
    );
  });

  test('the ledger is reduced to the outcome that the client knows for each key', async () => {
    const { intents, end } = await summarizeLedger(ENTRIES);
    expect(end?.unknown).toBe(1);
    expect(intents.get('k0')).toMatchObject({
      index: 0,
      accountId: 7,
      amountCents: 100,
      acknowledged: 3,
      replayed: 2,
      different: 1,
      failures: 1,
      refused: 0,
      answer: `201 ${sha(1)}`,
    });
    expect(intents.get('k1')).toMatchObject({ acknowledged: 0, failures: 1, refused: 1, answer: undefined });
  });

  test('a ledger with a reply before its intent is refused', async () => {
    await expect(summarizeLedger([ENTRIES[4] as LedgerEntry])).rejects.toThrow('before the intent');
  });

  test('final statuses are distinguished from statuses that are retried', () => {
    expect([200, 201, 400, 404, 409, 422].every(isFinalStatus)).toBe(true);
    expect([408, 425, 429, 500, 502, 503, 504].some(isFinalStatus)).toBe(false);
  });
});
