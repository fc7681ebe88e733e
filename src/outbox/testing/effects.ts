/** Cases about the library through an adapter: outbox rows are exact, an effect happens once, and
 *  keys of requests and calls to third parties commit with the transaction of the caller. */
import { deepEqual, equal } from 'node:assert/strict';
import { findMillraceError } from '../../core/errors.ts';
import { append } from '../append/events.ts';
import { derivedAggregateId } from '../append/record-columns.ts';
import type { OpenTransaction } from '../database/transaction.ts';
import { effect } from '../effects/add.ts';
import { type Idempotent, idempotent } from '../idempotency/record.ts';
import { Inbox } from '../inbox/once.ts';
import { systemIds } from '../system.ts';
import { type AdapterCase, type ContractTables, rejection } from './harness.ts';

const EVENTS = 1000;
const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

async function appendsExactly(tables: ContractTables): Promise<void> {
  const aggregateId = systemIds.next();
  const events = Array.from({ length: EVENTS }, (_, place) => ({
    aggregateId,
    eventType: 'contract.exact.v1',
    payload: Buffer.from(`{"place": ${place}, "text":"\\"q\\" \\\\ ? $1 é 🚚"}`),
    ...(place % 2 === 0 ? { traceparent: TRACE } : {}),
  }));
  const ids = await tables.harness.transaction((tx) => append(tx, tables.outbox, events));
  const rows = await tables.observed(
    `SELECT msg_id::text AS id, encode(payload, 'hex') AS payload, traceparent AS trace, aggregate_id::text AS aggregate
     FROM ${tables.outbox} WHERE event_type = 'contract.exact.v1' ORDER BY id`,
  );
  const expected = events.map(({ payload, traceparent = null }, place) => ({
    id: ids[place],
    payload: payload.toString('hex'),
    trace: traceparent,
    aggregate: aggregateId,
  }));
  deepEqual(
    rows.map((row) => ({ ...row })),
    expected,
    'the rows of the outbox',
  );
}

/** Ids that are texts, headers, topics, keys, and payloads that are not JSON. */
async function appendsChoices(tables: ContractTables): Promise<void> {
  const text = 'Kunde "17" \\\\ $1 ? {é} 🚚';
  const chosen = {
    aggregateId: text,
    eventType: 'contract.chosen.v1',
    payload: Uint8Array.from([0, 1, 0x5c, 0x22, 255]),
    contentType: 'application/x-own',
    headers: { tenant: text, trail: Uint8Array.from([0, 255]) },
    topic: 'contract.chosen',
    partitionKey: text,
  };
  const plain = { aggregateId: systemIds.next(), eventType: 'contract.chosen.v1', payload: 1 };
  await tables.harness.transaction((tx) => append(tx, tables.outbox, [chosen, plain]));
  const rows = await tables.observed(
    `SELECT aggregate_id::text AS id, aggregate_key, partition_key, topic, content_type,
       encode(payload, 'hex') AS payload, headers->>'tenant' AS tenant, headers->'trail'->>'base64' AS trail
     FROM ${tables.outbox} WHERE event_type = 'contract.chosen.v1' ORDER BY ${tables.outbox}.id`,
  );
  const [first, second] = rows.map((row) => ({ ...row }));
  deepEqual(first, {
    id: derivedAggregateId(text),
    aggregate_key: text,
    partition_key: text,
    topic: 'contract.chosen',
    content_type: 'application/x-own',
    payload: '00015c22ff',
    tenant: text,
    trail: 'AP8=',
  });
  deepEqual(second, {
    id: plain.aggregateId,
    aggregate_key: null,
    partition_key: null,
    topic: null,
    content_type: null,
    payload: '31',
    tenant: null,
    trail: null,
  });
}

async function hasOneEffect(tables: ContractTables): Promise<void> {
  const inbox = new Inbox(tables.inbox);
  const id = systemIds.next();
  const apply = () =>
    tables.harness.transaction((tx) => inbox.once(tx, id, () => tables.note(tx, 201).then(() => 'value')));
  deepEqual(await apply(), { kind: 'done', value: 'value' });
  deepEqual(await apply(), { kind: 'seen' });
}

async function claimsMany(tables: ContractTables): Promise<void> {
  const inbox = new Inbox(tables.inbox);
  const ids = Array.from({ length: EVENTS }, () => systemIds.next());
  const old = ids.slice(0, EVENTS / 2);
  await tables.harness.transaction((tx) => inbox.claim(tx, old));
  const claim = await tables.harness.transaction((tx) => inbox.claim(tx, [...ids, ...ids]));
  deepEqual([...claim.seen].sort(), old);
  deepEqual([...claim.unseen].sort(), ids.slice(EVENTS / 2));
  equal(claim.undecidable.size, 0);
}

async function abortsWithEffect(tables: ContractTables): Promise<void> {
  const inbox = new Inbox(tables.inbox);
  const id = systemIds.next();
  const failure = new Error('no stock');
  let thrown: unknown;
  await tables.harness
    .transaction(async (tx) => {
      // The caller ignores the error and commits.
      thrown = await rejection(inbox.once(tx, id, () => Promise.reject(failure)));
    })
    .catch(() => {
      // A client may report that the COMMIT of the aborted transaction rolled back.
    });
  equal(thrown, failure, 'once rejects with the error of the effect');
  const again = await tables.harness.transaction((tx) => inbox.once(tx, id, async () => 'value'));
  equal(again.kind, 'done', 'an effect that failed leaves no row in the inbox');
}

/** Two transactions with one id at the same time: the second waits for the first. */
async function racesOnce(tables: ContractTables): Promise<void> {
  const inbox = new Inbox(tables.inbox);
  const id = systemIds.next();
  let effects = 0;
  const apply = () =>
    tables.harness.transaction((tx) =>
      inbox.once(tx, id, async () => {
        effects++;
      }),
    );
  const kinds = (await Promise.all([apply(), apply()])).map((outcome) => outcome.kind);
  deepEqual([kinds.sort(), effects], [['done', 'seen'], 1]);
}

const ANSWER_BYTES = Uint8Array.from([0, 0x5c, 0x22, 0x7b, 255]);

/** Executes the request of a key, which notes this id. */
export const request = (
  tables: ContractTables,
  tx: OpenTransaction,
  key: string,
  noted: number,
): Promise<Idempotent> => {
  const given = {
    scope: 'Kunde "17" \\ $1 ? é',
    key,
    parts: ['pay', noted],
    ttlMs: 60_000,
    table: tables.keys,
  };
  return idempotent(tx, given, async () => {
    await tables.note(tx, noted);
    return { status: 201, headers: [['location', '/notes/1']], body: ANSWER_BYTES };
  });
};

async function recordsKeys(tables: ContractTables): Promise<void> {
  const key = systemIds.next();
  const failure = new Error('the work fails');
  const thrown = await rejection(
    tables.harness.transaction(async (tx) => {
      equal((await request(tables, tx, key, 301)).kind, 'done');
      throw failure;
    }),
  );
  equal(thrown, failure, 'transaction() rejects with the error of the work');
  equal(await tables.committed(tables.keys), 0, 'a transaction that rolled back leaves no record of a key');
  const run = () => tables.harness.transaction((tx) => request(tables, tx, key, 301));
  equal((await run()).kind, 'done', 'a key is free after a rollback');
  const again = await run();
  deepEqual(again, {
    kind: 'replayed',
    answer: { status: 201, headers: [['location', '/notes/1']], body: Buffer.from(ANSWER_BYTES) },
  });
  const noted = await tables.observed(`SELECT count(*)::text AS n FROM ${tables.notes} WHERE id = 301`);
  deepEqual({ ...noted[0] }, { n: '1' }, 'the effect of a key is applied a single time');
}

async function addsCalls(tables: ContractTables): Promise<void> {
  const given = {
    name: 'contract',
    key: 'Konto "17" \\ $1 ? é',
    input: { text: '"q" \\ ? $1 {é} 🚚', n: [1, null] },
  };
  const failure = new Error('the work fails');
  const thrown = await rejection(
    tables.harness.transaction(async (tx) => {
      await effect(tx, tables.effects, given);
      throw failure;
    }),
  );
  equal(thrown, failure, 'transaction() rejects with the error of the work');
  equal(await tables.committed(tables.effects), 0, 'a transaction that rolled back leaves no call');
  const traced = { ...given, traceparent: TRACE };
  const id = await tables.harness.transaction(async (tx) => {
    const added = await effect(tx, tables.effects, traced);
    equal(await effect(tx, tables.effects, { ...traced, id: added }), added, 'an id is added a single time');
    const refused = await rejection(effect(tx, tables.effects, { ...traced, id: added, name: 'other' }));
    equal(findMillraceError(refused)?.code, 'bad_effect', 'an id of another name is refused');
    return added;
  });
  const rows = await tables.observed(
    `SELECT effect_id::text AS id, name, key, input::text AS input, traceparent AS trace, state FROM ${tables.effects}`,
  );
  const input = JSON.stringify(given.input);
  deepEqual(
    rows.map((row) => ({ ...row })),
    [{ id, name: given.name, key: given.key, input, trace: TRACE, state: 'waiting' }],
  );
}

export function effectCases(tables: ContractTables): readonly AdapterCase[] {
  return [
    {
      name: 'append writes each event with its exact bytes, in order',
      run: () => appendsExactly(tables),
    },
    {
      name: 'append writes the key, the topic, the headers and the form of a record',
      run: () => appendsChoices(tables),
    },
    { name: 'once applies the effect of a message a single time', run: () => hasOneEffect(tables) },
    { name: 'a claim tells seen from unseen ids in one call', run: () => claimsMany(tables) },
    {
      name: 'an effect that fails aborts its transaction, although the caller commits',
      run: () => abortsWithEffect(tables),
    },
    {
      name: 'of two transactions with the same message one applies the effect',
      run: () => racesOnce(tables),
    },
    {
      name: 'the record of a key commits and rolls back with the transaction, and is replayed exactly',
      run: () => recordsKeys(tables),
    },
    {
      name: 'a call to a third party commits and rolls back with the transaction that adds it',
      run: () => addsCalls(tables),
    },
  ];
}
