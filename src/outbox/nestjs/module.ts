/** Module of NestJS that provides an outbox and an inbox by injection. */
import type { OutboxEvent } from '../append/event.ts';
import { append, lockAggregates } from '../append/events.ts';
import type { OpenTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { plainTableName } from '../inbox/names.ts';
import { Inbox } from '../inbox/once.ts';
import type { Once } from '../inbox/port.ts';

export interface MillraceModuleOptions<T> {
  /** Table of MillraceOutbox. */
  readonly outboxTable?: string;
  /** Table of MillraceInbox. */
  readonly inbox?: string;
  /** Adapter of the database client, such as `typeormTransaction`. */
  readonly adapt: (transaction: T) => OpenTransaction;
}

/** Outbox of one table, for a client's transactions of type T. Inject it by this class. */
export class MillraceOutbox<T = unknown> {
  private readonly table: string | undefined;
  private readonly adapt: (transaction: T) => OpenTransaction;

  /** @throws bad_table_name */
  constructor({ outboxTable, adapt }: MillraceModuleOptions<T>) {
    this.table =
      outboxTable === undefined ? undefined : plainTableName(outboxTable, 'a plain name of an outbox table');
    this.adapt = adapt;
  }

  /** Appends events in this transaction. Returns their msg_ids.
   *  @throws bad_option without an outboxTable; errors of `append` */
  async append(transaction: T, events: OutboxEvent | readonly OutboxEvent[]): Promise<readonly string[]> {
    return append(this.adapt(transaction), given(this.table, 'outboxTable'), events);
  }

  /** Locks aggregates that have no row to lock.
   *  @throws bad_option without an outboxTable; errors of `lockAggregates` */
  async lockAggregates(transaction: T, aggregateIds: readonly string[]): Promise<void> {
    return lockAggregates(this.adapt(transaction), given(this.table, 'outboxTable'), aggregateIds);
  }
}

/** Inbox of one table, for a client's transactions of type T. Inject it by this class. */
export class MillraceInbox<T = unknown> {
  private readonly inbox: Inbox | undefined;
  private readonly adapt: (transaction: T) => OpenTransaction;

  /** @throws bad_table_name */
  constructor({ inbox, adapt }: MillraceModuleOptions<T>) {
    this.inbox = inbox === undefined ? undefined : new Inbox(inbox);
    this.adapt = adapt;
  }

  /** Runs an effect in this transaction, unless the message had it already.
   *  @throws bad_option without an inbox; errors of `once` */
  async once<V>(transaction: T, msgId: string, effect: () => Promise<V>): Promise<Once<V>> {
    return given(this.inbox, 'inbox').once(this.adapt(transaction), msgId, effect);
  }
}

function given<V>(value: V | undefined, option: string): V {
  if (value !== undefined) return value;
  throw outboxError('bad_option', `MillraceModule has no ${option}`, {
    next: `give ${option} to MillraceModule.forRoot`,
  });
}

/** Token of the options. */
const OPTIONS = Symbol('millrace.module.options');

type Parts = typeof MillraceOutbox | typeof MillraceInbox;

/** Options of forRootAsync, as in modules of NestJS. */
export interface MillraceModuleFactory<T> {
  // biome-ignore lint/suspicious/noExplicitAny: modules of NestJS, of any kind
  readonly imports?: any[];
  // biome-ignore lint/suspicious/noExplicitAny: injection tokens of NestJS, of any kind
  readonly inject?: any[];
  // biome-ignore lint/suspicious/noExplicitAny: what `inject` names
  readonly useFactory: (...injected: any[]) => MillraceModuleOptions<T> | Promise<MillraceModuleOptions<T>>;
}

/** Dynamic module of NestJS, in its structural form. */
export interface MillraceDynamicModule {
  readonly module: typeof MillraceModule;
  readonly global: true;
  // biome-ignore lint/suspicious/noExplicitAny: modules of NestJS, of any kind
  readonly imports: any[];
  // biome-ignore lint/suspicious/noExplicitAny: providers of NestJS, of any kind
  readonly providers: any[];
  readonly exports: Parts[];
}

/** Global module of NestJS with MillraceOutbox and MillraceInbox.
 */
// biome-ignore lint/complexity/noStaticOnlyClass: NestJS identifies a module by its class
export class MillraceModule {
  /** Module with these options.
   *  @example
   *  const options = { outboxTable: 'parcel_outbox', adapt: typeormTransaction };
   *  Module({ imports: [MillraceModule.forRoot(options)] })(AppModule);
   */
  static forRoot<T>(options: MillraceModuleOptions<T>): MillraceDynamicModule {
    return MillraceModule.forRootAsync({ useFactory: () => options });
  }

  /** Module with options from other providers. */
  static forRootAsync<T>({ imports = [], inject = [], useFactory }: MillraceModuleFactory<T>) {
    const parts: Parts[] = [MillraceOutbox, MillraceInbox];
    const providers = [
      { provide: OPTIONS, useFactory, inject },
      ...parts.map((part) => ({
        provide: part,
        useFactory: (options: MillraceModuleOptions<T>) => new part(options),
        inject: [OPTIONS],
      })),
    ];
    const dynamic: MillraceDynamicModule = {
      module: MillraceModule,
      global: true,
      imports,
      providers,
      exports: parts,
    };
    return dynamic;
  }
}
