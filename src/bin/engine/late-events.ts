/** `-late-keep` of `millrace engine`: late events that can be queried beside the results. */
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import type { ResultShape } from '../../engine/output/columns.ts';
import { KeptLateEvents } from '../../engine/output/late/kept.ts';
import { PostgresLateEvents } from '../../engine/output/late/postgres.ts';
import { LateEventStore } from '../../engine/output/late/store.ts';
import type { EngineParts } from '../../engine/parts.ts';
import type { KvStore } from '../../io/rocksdb/port.ts';
import { openPostgresPool, postgresSink } from './sinks.ts';

export const LATE_EVENTS_SETTINGS = {
  'late-keep': {
    type: 'int',
    default: '10000',
    min: 0,
    max: 10_000_000,
    help: 'newest late events of each partition that GET /late answers, and that the table …_late of a postgres sink has; 0: none',
  },
} as const satisfies SettingTable;

type Context = Parameters<typeof openPostgresPool>[0] & {
  readonly settings: SettingsOf<typeof LATE_EVENTS_SETTINGS> & { readonly migrate: boolean };
};

/** Opens and checks the table of late events beside a postgres sink, and creates it if -migrate is
 *  on. Undefined for other sinks, and if no late events are kept.
 *  @param shape shape of the results; undefined: the first records decide it
 *  @throws sink_missing, unreachable */
export async function openLateTable(
  context: Context,
  shape: ResultShape | undefined,
): Promise<PostgresLateEvents | undefined> {
  const { 'late-keep': keep, migrate } = context.settings;
  const sink = postgresSink(context);
  if (sink === undefined || keep === 0) return undefined;
  const pool = await openPostgresPool(context, sink.url, 1);
  const table = new PostgresLateEvents({ pool, table: sink.table, keep, migrates: migrate });
  if (shape !== undefined) await table.bind(shape);
  else if (!migrate) await table.check();
  return table;
}

/** @param store store of fired windows */
export function keptLateEvents(
  { settings }: Pick<Context, 'settings'>,
  store: KvStore,
  table: PostgresLateEvents | undefined,
): Pick<EngineParts, 'lateEvents'> {
  const keep = settings['late-keep'];
  if (keep === 0) return {};
  const others = table === undefined ? [] : [table];
  return { lateEvents: new KeptLateEvents(new LateEventStore(store, keep), others) };
}
