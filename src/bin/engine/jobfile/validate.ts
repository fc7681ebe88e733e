/** `millrace engine validate -job=FILE`: checks a job file, and with a registry and brokers also
 *  that the fields and the topic exist. */
import { loadColumnKernels } from '../../../addon/codec.ts';
import { coreError, EXIT, findMillraceError, type MillraceError } from '../../../core/errors.ts';
import {
  parseSettings,
  type SettingsOf,
  type SettingTable,
  settingConflicts,
} from '../../../core/settings.ts';
import type { Job } from '../../../engine/job.ts';
import { resultShape } from '../../../engine/output/columns.ts';
import { aggregatesIn, hasGivenKey } from '../../../engine/source/input/definition.ts';
import { BROKER_SETTINGS } from '../../../shell/broker-settings.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { brokerDriver, kernels } from '../../../shell/drivers.ts';
import { CREDENTIAL_SETTINGS } from '../../registry-clients/credentials.ts';
import { parseStart } from '../../registry-clients/start.ts';
import { readerOf, registryOf } from '../input.ts';
import { jobOf } from '../job.ts';
import { memoryOf } from '../memory.ts';
import { sideCount, sideNames } from '../sides.ts';
import { requireValidSink } from '../sinks.ts';
import { groupName } from '../source/group.ts';
import type { START_SETTINGS } from '../source/start.ts';
import { demandStorable } from '../store/open.ts';
import { demandSameEvents, settingsOf } from '../windows/settings.ts';
import { AGGREGATE_FLAG, type WindowSpec, windowSpecs } from '../windows/specs.ts';
import type { JobDocument, JobEntry, JobProblem } from './document.ts';
import { checkFields } from './fields.ts';
import type { FilePlace } from './place.ts';
import { byPlace, checkedJob, problemLine } from './read.ts';
import { jobTable } from './schema.ts';

export const VALIDATE_SETTINGS = {
  offline: {
    type: 'bool',
    default: 'false',
    help: 'engine validate checks the file alone, without the registry and the brokers that it names',
  },
} as const satisfies SettingTable;

/** Settings that change what `engine validate` does. */
const OWN_FLAGS: readonly string[] = [
  'job',
  'offline',
  'registry',
  ...Object.keys(CREDENTIAL_SETTINGS),
  ...Object.keys(BROKER_SETTINGS),
  ...['json', 'config', 'native', 'log-level', 'drain-timeout'],
];

/** Settings that the checks of a run read. */
type RunSettings = Parameters<typeof jobOf>[0] &
  SettingsOf<typeof START_SETTINGS> &
  Parameters<typeof requireValidSink>[0]['settings'] &
  Parameters<typeof sideNames>[0]['settings'] &
  Parameters<typeof groupName>[0]['settings'] &
  Parameters<typeof memoryOf>[0]['settings'] &
  Parameters<typeof demandStorable>[0];

type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: RunSettings &
    SettingsOf<typeof VALIDATE_SETTINGS> & { readonly job: string | undefined; readonly json: boolean };
};

/** Judges one file by the table of the command. */
class JobCheck {
  readonly problems: JobProblem[];
  private readonly context: Context;
  private readonly document: JobDocument;
  private readonly settings: RunSettings;
  private readonly conflicts: readonly MillraceError[];

  constructor(context: Context, path: string, table: SettingTable) {
    this.context = context;
    this.document = checkedJob(path, table);
    this.problems = [...this.document.problems];
    const known = jobTable(table);
    const job = Object.fromEntries([...this.document.entries.values()].map(({ name, text }) => [name, text]));
    const free = Object.fromEntries(
      Object.entries(table).map(([name, { needs, excludes, ...setting }]) => [name, setting]),
    );
    const parsed = parseSettings(free, { argv: [], env: {}, job });
    this.settings = parsed.values as unknown as RunSettings;
    this.conflicts = [...settingConflicts(known, parsed, 'job file')];
  }

  /** Checks the settings together. Returns the jobs of the windows if they make some. */
  together(): readonly Job[] | undefined {
    for (const conflict of this.conflicts) this.add(conflict);
    this.attempt(() => groupName({ ...this.context, settings: this.settings }));
    this.attempt(() => parseStart(this.settings.start));
    const specs = this.attempt(() => windowSpecs(this.settings));
    if (specs === undefined) {
      // The other settings are checked without the windows.
      this.outputs(this.settings, 1);
      return undefined;
    }
    const jobs = specs.map((spec) => this.window(settingsOf(this.settings, spec), spec, specs.length));
    const whole = jobs.filter((job) => job !== undefined);
    if (whole.length < jobs.length) return undefined;
    this.attempt(() => demandSameEvents(whole.map((job, at) => ({ name: specs[at]?.name, job }))));
    this.attempt(() => demandStorable(this.settings));
    return whole;
  }

  /** Checks the settings of one window. */
  private window(settings: RunSettings, { aggregate }: WindowSpec, windows: number): Job | undefined {
    const flag = aggregate === undefined ? undefined : AGGREGATE_FLAG;
    const job = this.attempt(() => jobOf(settings), flag);
    this.outputs(settings, windows);
    const input = job?.input;
    if (input !== undefined && hasGivenKey(input))
      this.attempt(() => resultShape({ ...job, input }), flag ?? 'aggregate');
    return job;
  }

  private outputs(settings: RunSettings, windows: number): void {
    const context = { ...this.context, settings };
    this.attempt(() => requireValidSink(context, aggregatesIn(settings)));
    const names = this.attempt(() => sideNames(context, settings));
    const sides = names === undefined ? 0 : sideCount(names);
    this.attempt(() => memoryOf(context, sides, settings.dedup !== undefined, windows), 'mem-budget');
  }

  /** Checks the jobs of the windows against the registry and the brokers. Returns what was checked.
   *  @throws registry_unavailable, unreachable, unauthenticated */
  async servers(jobs: readonly Job[]): Promise<readonly string[]> {
    return [await this.registry(jobs), await this.topic(jobs[0] as Job)];
  }

  private async registry(jobs: readonly Job[]): Promise<string> {
    const job = jobs[0] as Job;
    const { context, settings } = this;
    const merged = this.merged(['registry', ...Object.keys(CREDENTIAL_SETTINGS)]);
    const format = job.input?.format ?? 'undecided';
    if (merged['registry'] === undefined || format === 'binary256')
      return 'the fields were not compared with a schema, because no registry is given';
    const client = registryOf({ ...context, settings: { ...settings, ...merged } });
    const found = client === undefined ? undefined : await readerOf(client, job.topic);
    if (found === undefined) {
      const subject = `${job.topic}-value`;
      if (format !== 'json')
        this.put('topic', {
          message: `the registry has no subject ${subject}`,
          next: 'name the topic whose value schema is registered, or register it',
          code: 'subject_not_found',
        });
      return `the registry has no subject ${subject}`;
    }
    const name = `${found.subject} version ${found.version}`;
    const own = found.schema.format.toLowerCase();
    if (format !== 'undecided' && format !== own) {
      const next = `give format: ${own}`;
      this.put('format', {
        message: `${name} is ${own}, and format is ${format}`,
        next,
        code: 'bad_setting',
      });
      return name;
    }
    const columns = loadColumnKernels(kernels(context).name);
    const seen = new Set<string>();
    const checks = jobs.map(({ input = { format } }) => ({
      input,
      ...checkFields(input, found.schema, columns),
    }));
    for (const { input, faults } of checks)
      for (const { setting, field, message, next } of faults) {
        // A fault of a field is one, however many windows name it.
        if (seen.has(`${setting} ${message}`)) continue;
        seen.add(`${setting} ${message}`);
        const isOwn = setting === 'aggregate' && this.settings.aggregate !== input.aggregate;
        this.put(
          isOwn ? AGGREGATE_FLAG : setting,
          { message: `${message} (${name})`, next, code: 'unsupported_field' },
          field,
        );
      }
    const messages = checks
      .map((check) => check.messages)
      .reduce((all, more) => all.filter((one) => more.includes(one)));
    return `the fields were compared with ${name}${messagesText(messages)}`;
  }

  private async topic(job: Job): Promise<string> {
    const { context, settings } = this;
    const merged = this.merged(Object.keys(BROKER_SETTINGS));
    const { brokers } = merged;
    if (typeof brokers !== 'string') return 'the topic was not looked up, because no brokers are given';
    const driver = await brokerDriver({ ...context, settings: { ...settings, ...merged } as never });
    const admin = await driver.admin({ brokers, clientId: 'millrace-engine-validate' });
    try {
      const found = (await admin.listTopics()).find(({ topic }) => topic === job.topic);
      const count = found?.partitions.length;
      if (count !== undefined) return `topic ${job.topic} has ${count} partition${count === 1 ? '' : 's'}`;
      this.put('topic', {
        message: `the brokers have no topic ${job.topic}`,
        next: 'correct the name, or create the topic',
        code: 'topic_missing',
      });
      return `the brokers have no topic ${job.topic}`;
    } finally {
      await admin.close();
    }
  }

  /** A flag wins over the file, and the file over the environment, which is meant for all jobs. */
  private merged(names: readonly string[]): Readonly<Record<string, unknown>> {
    const { context, settings, document } = this;
    const of = (from: object, name: string): unknown => (from as Readonly<Record<string, unknown>>)[name];
    return Object.fromEntries(
      names.map((name) => {
        const isOwn = document.entries.has(name) && !context.isFlag(name);
        return [name, of(isOwn ? settings : context.settings, name)];
      }),
    );
  }

  private attempt<T>(check: () => T, setting?: string): T | undefined {
    try {
      return check();
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      this.add(error, setting);
      return undefined;
    }
  }

  private add(error: MillraceError, otherwise?: string): void {
    const { message, next, code, details } = error;
    const setting = details['setting'] ?? otherwise;
    const known = typeof setting === 'string' ? setting : undefined;
    // The value may already be a problem by itself.
    if (known !== undefined && this.problems.some((problem) => problem.setting === known)) return;
    this.put(known, { message, next, code });
  }

  private put(
    setting: string | undefined,
    problem: Pick<JobProblem, 'message' | 'next' | 'code'>,
    field?: string,
  ): void {
    const entry = setting === undefined ? undefined : this.document.entries.get(setting);
    this.problems.push({ setting, ...problem, ...placeIn(entry, field) });
  }
}

/** Names the messages of a Protobuf schema that have the fields: records say which of them they
 *  have. */
function messagesText(messages: readonly string[]): string {
  const last = messages.at(-1);
  if (last === undefined) return '';
  if (messages.length === 1) return `, whose message ${last} has them`;
  return `, whose messages ${messages.slice(0, -1).join(', ')} and ${last} have them: the message of most of the first records decides the kinds and the time that are not given`;
}

/** FilePlace of a field in a value; of the value where it has no such text; else of the file. */
function placeIn(entry: JobEntry | undefined, field: string | undefined): FilePlace {
  if (entry === undefined) return { line: 1, column: 1 };
  for (const { text, placeOf } of entry.parts) {
    const at = field === undefined ? -1 : indexOfName(text, field);
    if (at >= 0) return placeOf(at);
  }
  return { line: entry.line, column: entry.column };
}

/** Index of a name in a text; a longer name that contains it does not count. */
function indexOfName(text: string, name: string): number {
  const isPart = (char: string | undefined): boolean => char !== undefined && /[\w.]/.test(char);
  let at = text.indexOf(name);
  while (at >= 0 && (isPart(text[at - 1]) || isPart(text[at + name.length]))) at = text.indexOf(name, at + 1);
  return at;
}

function demandOwnFlags(context: Context, table: SettingTable): string {
  const other = Object.keys(table).find((name) => context.isFlag(name) && !OWN_FLAGS.includes(name));
  if (other !== undefined)
    throw coreError('usage', `-${other} changes nothing for engine validate`, {
      next: `leave -${other} out, or write it into the job file`,
    });
  const path = context.settings.job;
  if (path !== undefined) return path;
  throw coreError('usage', 'engine validate needs -job', { next: 'give -job=FILE' });
}

/** Prints what is wrong with a job file. @throws usage, bad_file, and errors of the servers */
export async function validateJob(context: Context, table: SettingTable): Promise<number> {
  const path = demandOwnFlags(context, table);
  const check = new JobCheck(context, path, table);
  const jobs = check.together();
  const checked =
    jobs === undefined || check.problems.length > 0 || context.settings.offline
      ? []
      : await check.servers(jobs);
  const problems = check.problems.sort(byPlace);
  const isValid = problems.length === 0;
  const count = `${problems.length} problem${problems.length === 1 ? '' : 's'}`;
  const text = isValid
    ? [`${path} is a valid job`, ...checked].join('; ')
    : [...problems.map((problem) => problemLine(path, problem)), `${path} has ${count}`].join('\n');
  context.print(text, { file: path, valid: isValid, problems, checked });
  return isValid ? EXIT.done : EXIT.no;
}
