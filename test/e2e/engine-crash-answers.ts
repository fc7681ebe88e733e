/** Compares the HTTP answers of an engine that has read the whole topic with the oracle: every
 *  window of every account, whether each is final, and the number of late events. */
import { rowText } from '../../bench/peers/oracle/difference.ts';
import type { Oracle } from '../../bench/peers/oracle/windows.ts';
import { until } from '../wait.ts';
import { type AcceptedEvent, type EventForm, linesOf } from './engine-crash-forms.ts';

const WITHIN_MS = 180_000;
const CONCURRENT_REQUESTS = 8;
/** Rows per page; small, so that most answers have several pages. */
const LIMIT = 25;

async function get(address: string, path: string): Promise<Response> {
  const answer = await fetch(`http://${address}${path}`);
  if (!answer.ok) throw new Error(`GET ${path} answered ${answer.status}: ${await answer.text()}`);
  return answer;
}

/** Windows of a key as lines of `linesOf`, each followed by whether it is final. */
async function windowsOf(address: string, key: string): Promise<string[]> {
  const lines: string[] = [];
  for (let path: string | undefined = `/windows/${key}?open=true&limit=${LIMIT}`; path !== undefined; ) {
    const answer = await get(address, path);
    lines.push(...((await answer.json()) as object[]).map((row) => Object.values(row).join(',')));
    path = /^<(.*)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
  }
  return lines.sort();
}

/** Describes the first key whose answer differs; an empty string if all agree. */
async function windowsText(
  address: string,
  expected: ReadonlyMap<string, readonly string[]>,
): Promise<string> {
  const keys = [...expected.keys()];
  const differences: string[] = [];
  const ask = async (): Promise<void> => {
    for (let key = keys.pop(); key !== undefined && differences.length === 0; key = keys.pop()) {
      const wanted = expected.get(key) ?? [];
      const found = await windowsOf(address, key);
      const at = found.findIndex((line, i) => line !== wanted[i]);
      if (at < 0 && found.length === wanted.length) continue;
      const place = at < 0 ? found.length : at;
      differences.push(
        `GET /windows/${key}: ${found.length} rows, ${wanted.length} expected; found ${found[place] ?? 'no more'}, expected ${wanted[place] ?? 'no more'}`,
      );
    }
  };
  await Promise.all(Array.from({ length: CONCURRENT_REQUESTS }, ask));
  return differences[0] ?? '';
}

/** Polls until the answers equal those of the oracle, which has read the whole topic. Returns an
 *  empty string, or a description of the difference after WITHIN_MS. */
export async function answersText(
  address: string,
  oracle: Oracle,
  form: EventForm | undefined,
  accepted: readonly AcceptedEvent[],
): Promise<string> {
  const finals = new Set([...oracle.rows(true)].map(rowText));
  const expected = new Map<string, string[]>();
  for (const [row, line] of linesOf(oracle.rows(), form, accepted)) {
    const key = form?.keyOf(row.accountId) ?? String(row.accountId);
    const lines = expected.get(key) ?? [];
    lines.push(`${line},${finals.has(rowText(row))}`);
    expected.set(key, lines);
  }
  for (const lines of expected.values()) lines.sort();
  const dropped = Number(oracle.droppedLate.reduce((a, b) => a + b, 0n));
  const consumed = oracle.consumed.map(Number);
  const check = async (): Promise<string> => {
    const answer = (await (await get(address, '/watermark?partitions=true')).json()) as {
      readonly dropped_late: number;
      readonly partitions: readonly { readonly consumed: number }[];
    };
    const read = answer.partitions.map((one) => one.consumed);
    if (read.join() !== consumed.join()) return `GET /watermark: read ${read}, expected ${consumed}`;
    if (answer.dropped_late !== dropped)
      return `GET /watermark: dropped_late ${answer.dropped_late}, expected ${dropped}`;
    return windowsText(address, expected);
  };
  let difference = '';
  const agrees = async (): Promise<boolean> => {
    difference = await check().catch(String);
    return difference === '';
  };
  await until('answers that agree with the oracle', agrees, WITHIN_MS).catch(() => {});
  return difference;
}
