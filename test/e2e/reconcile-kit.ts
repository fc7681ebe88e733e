/** Shared by the tests of reconcile on tables of a user: rows of an outbox and an inbox as values,
 *  and the classes that an oracle in plain JavaScript finds in them. */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { command } from '../../src/bin/reconcile.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { start } from '../unit/shell/fake-world.ts';

export interface Message {
  readonly id: string;
  /** Age of the row, ms. */
  readonly ageMs: number;
  readonly pending?: boolean;
  readonly value?: number;
}

export interface Tables {
  readonly outbox: readonly Message[];
  readonly inbox: readonly Message[];
}

/** Age of the rows of faultyTables. */
export const AGE_MS = 3_600_000;

/** UUIDv7 of a time. */
export function idAt(ms: number): string {
  const time = Math.floor(ms).toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/** Classes of the differences, from the meaning of each class. */
export function classesOf({ outbox, inbox }: Tables): Record<string, string[]> {
  const found = new Map<string, Set<string>>();
  const add = (name: string, id: string): void =>
    void found.set(name, (found.get(name) ?? new Set()).add(id));
  const count = (rows: readonly Message[], id: string): number => rows.filter((one) => one.id === id).length;
  for (const { id, pending } of outbox) {
    if (count(inbox, id) === 0) add('outbox_without_inbox', id);
    if (count(outbox, id) > 1) add('double_outbox', id);
    if (pending === true) add('pending_outbox', id);
  }
  for (const { id, value } of inbox) {
    const intent = outbox.find((one) => one.id === id);
    if (intent === undefined) add('inbox_without_outbox', id);
    else if (intent.value !== value) add('value_differs', id);
    if (count(inbox, id) > 1) add('double_inbox', id);
  }
  return Object.fromEntries([...found].sort().map(([name, ids]) => [name, [...ids].sort()]));
}

const FAULTS = ['lose', 'ghost', 'again', 'outboxAgain', 'pending', 'value'] as const;

/** Tables with up to eight faults. @param idOf id number `n` */
export const faultyTables = (idOf: (n: number) => string): fc.Arbitrary<Tables> =>
  fc.array(fc.tuple(fc.constantFrom(...FAULTS), fc.nat(19)), { maxLength: 8 }).map((faults) => {
    const message = (n: number): Message => ({ id: idOf(n), ageMs: AGE_MS, value: n });
    const outbox = Array.from({ length: 20 }, (_, n) => message(n));
    let inbox = outbox.map((one) => ({ ...one, ageMs: one.ageMs - 50 }));
    for (const [fault, n] of faults) {
      const id = idOf(n);
      const at = outbox.findIndex((one) => one.id === id);
      if (fault === 'lose') inbox = inbox.filter((one) => one.id !== id);
      if (fault === 'ghost') inbox.push(message(100 + n));
      if (fault === 'again') inbox.push(...inbox.filter((one) => one.id === id).slice(0, 1));
      if (fault === 'outboxAgain') outbox.push(outbox[at] as Message);
      if (fault === 'pending') outbox[at] = { ...(outbox[at] as Message), pending: true };
      if (fault === 'value') inbox = inbox.map((one) => (one.id === id ? { ...one, value: -1 } : one));
    }
    return { outbox, inbox };
  });

/** Replaces the rows of two tables. Their columns are `Msg Id`, `At`, `Sent` and `Cents`. */
export async function store(
  left: SqlPool,
  right: SqlPool,
  { outbox, inbox }: Tables,
  names: { readonly outbox: string; readonly inbox: string },
): Promise<void> {
  const rows = async (pool: SqlPool, table: string, messages: readonly Message[]): Promise<void> => {
    await pool.query(`TRUNCATE ${table}`);
    for (const { id, ageMs, pending, value } of messages)
      await pool.query(
        `INSERT INTO ${table} ("Msg Id", "At", "Sent", "Cents")
         SELECT $1::text::${table.includes('Text') ? 'text' : table.includes('Int') ? 'bigint' : 'uuid'},
           now() - $2::float8 * interval '1 millisecond', CASE WHEN $3::boolean THEN NULL ELSE now() END, $4::bigint`,
        [id, ageMs, pending === true, value ?? null],
      );
  };
  await rows(left, names.outbox, outbox);
  await rows(right, names.inbox, inbox);
}

export async function createTable(pool: SqlPool, table: string, type: string): Promise<void> {
  await pool.query(
    `CREATE TABLE ${table} ("Msg Id" ${type} NOT NULL, "At" timestamptz NOT NULL, "Sent" timestamptz, "Cents" bigint)`,
  );
}

/** Runs the command in this process. */
export async function reconciled(args: readonly string[]) {
  const one = start(command, [...args, '-log-level=warn']);
  const code = await one.code;
  const stderr = one.world.stderr();
  /** Lines of errors and warnings; the address of /metrics is none. */
  const errors = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('listening on '));
  return { code, stdout: one.world.stdout(), errors };
}

/** Classes of the first pair of a `-json` document, with their ids. */
export function found(stdout: string): Record<string, string[]> {
  const { pairs } = JSON.parse(stdout) as {
    readonly pairs: ReadonlyArray<{
      readonly deltas: ReadonlyArray<{ readonly class: string; readonly ids: string[] }>;
    }>;
  };
  const [first] = pairs;
  return Object.fromEntries(
    (first?.deltas ?? []).map((one) => [one.class, [...one.ids].sort()] as const).sort(),
  );
}
