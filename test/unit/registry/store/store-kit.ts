/** A registry over a log that a test can inspect and make fail. */
import { silentLogger } from '../../../../src/core/log.ts';
import type { LogRecord, LogSink, RegistryLog } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import type { Registered, RegisterInput } from '../../../../src/registry/store/service.ts';
import { realClock } from '../../../wait.ts';

export const avro = (...fields: readonly string[]): string =>
  JSON.stringify({
    type: 'record',
    name: 'Order',
    fields: fields.map((name) => ({ name, type: 'string', default: '' })),
  });
export const typed = (type: string): string =>
  JSON.stringify({ type: 'record', name: 'Order', fields: [{ name: 'x', type }] });
export const proto = (body: string): RegisterInput => ({
  format: 'PROTOBUF',
  text: `syntax = "proto3"; message M { ${body} }`,
});

export async function code(work: Promise<unknown> | (() => unknown)): Promise<string> {
  try {
    await (typeof work === 'function' ? work() : work);
    return 'done';
  } catch (thrown) {
    return (thrown as { code?: string }).code ?? String(thrown);
  }
}

/** Keeps its records, and fails while `failure` is set. */
export class TestLog implements RegistryLog {
  readonly name = 'test';
  records: LogRecord[] = [];
  readonly appends: number[] = [];
  failure: Error | undefined;
  caughtUp = 0;
  sink: LogSink | undefined;

  async open(sink: LogSink) {
    this.sink = sink;
    sink.apply(this.records);
    return { records: this.records.length, tornBytes: 0 };
  }
  async append(records: readonly LogRecord[]): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    if (this.failure !== undefined) throw this.failure;
    this.appends.push(records.length);
    this.records.push(...records);
  }
  async catchUp(): Promise<void> {
    this.caughtUp++;
  }
  role() {
    return { leader: true } as const;
  }
  async close(): Promise<void> {}
}

/** Log that other processes may write to: its reader gives every record to the registry. */
export class SharedLog extends TestLog {
  readonly shared = true;
  /** Records of another process that follow each append. */
  theirs: readonly LogRecord[] = [];
  /** Records of another process that this process has not read yet. */
  unread: readonly LogRecord[] = [];

  override async append(records: readonly LogRecord[]): Promise<void> {
    await super.append(records);
    this.records.push(...this.theirs);
    this.sink?.apply([...records, ...this.theirs]);
  }

  override async catchUp(): Promise<void> {
    await super.catchUp();
    if (this.failure !== undefined) throw this.failure;
    const { unread } = this;
    this.unread = [];
    this.records.push(...unread);
    if (unread.length > 0) this.sink?.apply(unread);
  }
}

/** All observable content of a registry. */
export const everything = (one: Registry): unknown => ({
  // The text is read through a getter, which a comparison of objects would not see.
  versions: one
    .browse({ prefix: '', deleted: true, latestOnly: false })
    .map(({ content, ...rest }) => ({ ...rest, content: { ...content, text: content.text } })),
  contexts: one.contexts(),
  maxIds: one.contexts().map((context) => one.maxId(context)),
});

export interface Kit {
  readonly registry: Registry;
  readonly log: TestLog;
  put(
    subject: string,
    input: string | RegisterInput,
    options?: { readonly normalize?: boolean },
  ): Promise<Registered>;
  /** Version numbers. */
  numbers(subject: string, deleted?: 'no' | 'also' | 'only'): number[];
  /** Registry of another process that reads the same records. */
  replayed(): Promise<Registry>;
}

export async function openKit(records: readonly LogRecord[] = []): Promise<Kit> {
  const log = new TestLog();
  log.records.push(...records);
  const registry = await Registry.open(log, silentLogger, { clock: realClock });
  return {
    registry,
    log,
    put: (subject, input, options = {}) =>
      registry.register(subject, typeof input === 'string' ? { text: input } : input, options),
    numbers: (subject, deleted = 'no') => registry.versions(subject, deleted).map(({ version }) => version),
    replayed: async () => {
      const other = new TestLog();
      other.records.push(...log.records);
      return Registry.open(other, silentLogger, { clock: realClock });
    },
  };
}
