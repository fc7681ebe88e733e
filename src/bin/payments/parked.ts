/** `millrace payments -parked` and `-redrive`: lists quarantined records and processes them
 *  again. */
import { coreError, EXIT } from '../../core/errors.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import { UuidV7 } from '../../outbox/ids.ts';
import { Inbox } from '../../outbox/inbox/once.ts';
import {
  countParked,
  PARKED_REASONS,
  type ParkedFilter,
  type ParkedRow,
  readParked,
} from '../../outbox/payments/parked.ts';
import { redrive } from '../../outbox/payments/redrive.ts';
import { systemRandom } from '../../shell/clock.ts';
import { crashPoint } from './crash.ts';
import type { PaymentsContext } from './settings.ts';

/** Characters of a value shown in the list. */
const SHOWN_CHARACTERS_MAX = 120;

function filterOf({ settings }: PaymentsContext): ParkedFilter {
  const reasons = settings['redrive-reason'];
  const unknown = reasons?.find((reason) => !(PARKED_REASONS as readonly string[]).includes(reason));
  if (unknown !== undefined) {
    throw coreError('bad_value', `-redrive-reason=${unknown} is not a reason for parking a record`, {
      next: `use ${PARKED_REASONS.join(', ')}`,
    });
  }
  return {
    reasons,
    topic: settings['redrive-topic'],
    partition: settings['redrive-partition'],
    offset: settings['redrive-offset'],
  };
}

/** Shortens bytes to printable ASCII: the content of a record must not control the terminal. */
function shown(bytes: Uint8Array | null): string {
  if (bytes === null) return 'null';
  const text = Buffer.from(bytes.subarray(0, SHOWN_CHARACTERS_MAX)).toString('latin1');
  const rest = bytes.length > SHOWN_CHARACTERS_MAX ? ` … ${bytes.length} bytes` : '';
  return `${text.replace(/[^\x20-\x7e]/g, '.')}${rest}`;
}

/** Hex digits of the digest that are shown. They distinguish records with the same position in a
 *  recreated topic. */
const SHOWN_DIGITS = 8;

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const base64 = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : Buffer.from(bytes).toString('base64');

function documentOf(row: ParkedRow): unknown {
  const { topic, partition, offset, digest, reason, detail, parkedAt, key, value } = row;
  return {
    topic,
    partition,
    offset: offset.toString(),
    digest: hex(digest),
    reason,
    detail,
    parked_at: parkedAt.toISOString(),
    key_base64: base64(key),
    value_base64: base64(value),
  };
}

const countsText = (counts: ReadonlyMap<string, number>): string =>
  [...counts].map(([reason, count]) => `${count} ${reason}`).join(', ') || 'none';

export async function listParked(context: PaymentsContext, open: () => Promise<SqlPool>): Promise<number> {
  const filter = filterOf(context);
  const pool = await open();
  const counts = await countParked(pool, filter);
  const rows = await readParked(pool, filter, context.settings['parked-max']);
  const lines = rows.map(
    ({ topic, partition, offset, digest, reason, detail, value }) =>
      `${topic}/${partition}/${offset} ${hex(digest).slice(0, SHOWN_DIGITS)}  ${reason}: ${detail}\n    ${shown(value)}`,
  );
  const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const more = all > rows.length ? [`and ${all - rows.length} more`] : [];
  context.print([`parked: ${countsText(counts)}`, ...lines, ...more].join('\n'), {
    parked: all,
    reasons: Object.fromEntries(counts),
    records: rows.map(documentOf),
  });
  return EXIT.done;
}

export async function redriveParked(context: PaymentsContext, open: () => Promise<SqlPool>): Promise<number> {
  const { settings, clock, log, drain } = context;
  const filter = filterOf(context);
  if (settings['crash-point'] === 'offset') {
    throw coreError('usage', '-crash-point=offset is never reached with -redrive, which commits no offsets', {
      next: 'use -crash-point=effect',
    });
  }
  const pool = await open();
  const progress = context.progress({ what: 'parked records', unit: 'records' });
  const crash = crashPoint(context);
  const inbox = new Inbox('inbox');
  context.setReady();
  const sums = await redrive({
    pool,
    ids: new UuidV7(clock, systemRandom),
    inbox: settings['unsafe-ttl'] ? inbox.withoutFloor() : inbox,
    filter,
    batchRows: settings['batch-rows'],
    clock,
    log,
    drain,
    afterCharges: (batches, charges) => crash('effect', batches, charges),
    onCommitted: ({ charged, suppressed, parked }) => {
      progress.add(charged.length + suppressed.length + parked.length);
      progress.error(parked.length);
    },
  });
  progress.done();
  const left = await countParked(pool, filter);
  const { taken, charged, suppressed, parked, ignored } = sums;
  context.print(
    `processed ${taken} parked records: charged ${charged}, suppressed ${suppressed}, parked again ${parked}, ignored ${ignored}; left: ${countsText(left)}`,
    { ...sums, left: Object.fromEntries(left) },
  );
  return EXIT.done;
}
