/** Parses and judges schemas without blocking the thread that serves requests.
 *
 *  Small work runs immediately. Work above the inline limits is a task for a runner, which has a
 *  thread of its own. The caller's step then ends by throwing a `Deferred`. Its task runs, the
 *  result is kept, and the whole step runs again and finds the result. So a step stays synchronous,
 *  and decides on the state that it commits to. A result depends only on texts, so a step on a
 *  changed state may need another result. All tasks of a request share an `Allowance`. Without a
 *  runner all work runs immediately.
 */
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { TextForm } from '../../formats/options.ts';
import type { Schema } from '../../formats/schema.ts';
import { CHECK_STEPS_MAX, StepBudget } from '../compatibility/finding.ts';
import type { Comparison, EarlierVersion, Level, VerdictPolicy } from '../compatibility/modes.ts';
import {
  charsOf,
  judgeSchemas,
  readSource,
  type SchemaSource,
  tooManyChars,
  tooManySteps,
  tooMuchTime,
} from './judge.ts';
import {
  errorOf,
  type JudgeResult,
  type JudgeTask,
  type Task,
  type TaskResult,
  type TextResult,
  textResult,
} from './task.ts';
import type { TaskRunner } from './thread.ts';

/** Characters that one step may parse on the thread that serves requests. */
export const INLINE_CHARS_MAX = 8 * 1024;
/** Steps of comparisons that one step may take on that thread. */
export const INLINE_STEPS_MAX = 5_000;
/** Steps that a pause costs, so that no request pauses without end. */
const PAUSE_STEPS = 100;
/** Maximum characters of all texts of one task, references included. */
export const CHECK_CHARS_MAX = 32 << 20;
/** Maximum time of all tasks of one request, ms; less than the time that an instance waits for the
 *  leader's answer.
 */
export const CHECK_MS_MAX = 15_000;
/** Results that are kept, for steps that run again and for equal requests soon after. */
const RESULTS_MAX = 64;

/** Budget of one request for parsing, comparing and explaining. */
export class Allowance {
  steps = CHECK_STEPS_MAX;
  ms: number;
  readonly mostMs: number;

  constructor(mostMs: number) {
    this.mostMs = mostMs;
    this.ms = mostMs;
  }
}

/** Ends a step, which runs again when `work` has settled. */
export class Deferred extends Error {
  /** @throws check_too_long, checks_busy */
  readonly work: (allowance: Allowance) => Promise<void>;

  constructor(work: Deferred['work']) {
    super('a step waits for a task of its own');
    this.name = 'Deferred';
    this.work = work;
  }
}

type Sourced = { readonly source: SchemaSource };

/** Text that can be parsed when its tree is needed. */
export interface Origin {
  /** Equal exactly where everything that counts for parsing is equal. */
  readonly key: string;
  /** Source, made on access: the texts of a store are packed. */
  readonly source: SchemaSource;
  /** Returns the tree if it is cached. */
  readonly tree: () => Schema | undefined;
  /** Returns the tree, parsed on this thread. Undefined: the text cannot be read, which was
   *  reported.
   */
  readonly read: () => Schema | undefined;
  /** Reports that the text cannot be read. */
  readonly report: (why: string) => void;
}

export interface OriginOf {
  readonly version: number;
  readonly format: string;
  /** Undefined: the schema has an unknown type, or a reference no longer exists. */
  readonly origin: Origin | undefined;
}

/** Request for a verdict. */
export interface JudgeRequest {
  readonly proposed: Origin;
  readonly level: Level;
  readonly policy: VerdictPolicy;
  readonly against: readonly OriginOf[];
  /** All earlier versions, for the history of field numbers. Undefined: no history check. */
  readonly ever: readonly OriginOf[] | undefined;
}

type Kept = { readonly result: TaskResult } | { readonly error: Error };

export class Checks {
  private readonly runner: TaskRunner | undefined;
  /** Results by the digest of everything that they depend on; the oldest first. */
  private readonly results = new Map<string, Kept>();
  private chars = 0;
  private steps = 0;

  constructor(runner?: TaskRunner) {
    this.runner = runner;
  }

  /** Runs a step with inline limits of its own. */
  step<T>(run: () => T): T {
    this.chars = INLINE_CHARS_MAX;
    this.steps = INLINE_STEPS_MAX;
    return run();
  }

  /** True when this step may parse texts of so many characters; it then counts them. */
  takes(chars: number): boolean {
    if (this.runner === undefined) return true;
    if (chars > this.chars) return false;
    this.chars -= chars;
    return true;
  }

  /** Ends a step that has parsed enough. Its results are kept, and it runs again in the next turn
   *  of the event loop.
   */
  pauseFor(chars: number): void {
    if (chars <= INLINE_CHARS_MAX && this.chars < INLINE_CHARS_MAX)
      throw new Deferred(async (allowance) => {
        allowance.steps -= PAUSE_STEPS;
        if (allowance.steps <= 0) throw tooManySteps(CHECK_STEPS_MAX);
        await nextTurn();
      });
  }

  /** Text as it is stored, and in other forms. @throws Deferred, invalid_schema */
  text({ key, source }: Pick<Origin, 'key' | 'source'>, forms: readonly TextForm[] = []): TextResult {
    if (this.takes(charsOf(source))) {
      return textResult(readSource(source), forms);
    }
    const task: Task = { kind: 'text', source: 0, forms };
    return this.resultOf(`text ${forms} ${key}`, task, [{ source }]) as TextResult;
  }

  /** Judges a request.
   *  @param explain true: a runner that judges also explains, in the same task
   *  @throws Deferred, invalid_schema, check_too_long
   */
  judge(question: JudgeRequest, explain = false): readonly Comparison[] {
    if (this.runner === undefined) return this.judgeHere(question, new StepBudget());
    if (this.steps > 0 && this.takes(charsToParse(question, INLINE_CHARS_MAX))) {
      const budget = new StepBudget(this.steps);
      try {
        const comparisons = this.judgeHere(question, budget);
        this.steps -= budget.used;
        return comparisons;
      } catch (thrown) {
        // The comparison exceeds the inline limit; the runner has a greater one.
        if (!budget.isSpent) throw thrown;
        this.steps = 0;
      }
    }
    return this.judgedBy(question, explain).comparisons;
  }

  /** Explanation by the runner. Undefined without a runner: the caller explains.
   *  @throws Deferred, check_too_long
   */
  explain(question: JudgeRequest): readonly object[] | undefined {
    return this.runner === undefined ? undefined : this.judgedBy(question, true).explained;
  }

  private judgeHere(question: JudgeRequest, budget: StepBudget): Comparison[] {
    const { level, policy } = question;
    const proposed = question.proposed.read();
    if (proposed === undefined) throw new Error('a proposed schema is read or refused');
    const against = question.against.map(({ version, format, origin }) => ({
      version,
      format,
      schema: origin?.read(),
    }));
    const ever = question.ever?.flatMap(({ version, origin }): EarlierVersion[] => {
      const schema = origin?.read();
      return schema === undefined ? [] : [{ version, schema }];
    });
    return judgeSchemas({ proposed, level, policy, against, ever }, budget);
  }

  private judgedBy(question: JudgeRequest, explain: boolean): JudgeResult {
    const { task, origins, key } = judgeTask(question, explain);
    const result = this.resultOf(key, task, origins) as JudgeResult;
    for (const { source, why } of result.unread) origins[source]?.report(why);
    return result;
  }

  private resultOf(key: string, task: Task, origins: readonly Sourced[]): TaskResult {
    const digest = createHash('sha256').update(key).digest('base64');
    const kept = this.results.get(digest);
    if (kept === undefined) throw new Deferred((allowance) => this.run(digest, task, origins, allowance));
    if ('error' in kept) throw kept.error;
    return kept.result;
  }

  private async run(
    digest: string,
    task: Task,
    origins: readonly Sourced[],
    allowance: Allowance,
  ): Promise<void> {
    const sources = sourcesOf(origins);
    if (allowance.steps <= 0) throw tooManySteps(CHECK_STEPS_MAX);
    if (allowance.ms <= 0) throw tooMuchTime(allowance.mostMs);
    const { steps, ms } = allowance;
    const ran = await this.runner?.run({ task, sources, steps, limitMs: ms });
    if (ran === undefined) throw new Error('a task without a runner');
    const { reply, tookMs } = ran;
    allowance.steps -= reply.steps;
    allowance.ms -= tookMs;
    const { error, result } = reply;
    if (error?.code === 'check_too_long') throw tooManySteps(CHECK_STEPS_MAX);
    if (error !== undefined && error.code === undefined) throw errorOf(error);
    const kept = error === undefined ? { result: result as TaskResult } : { error: errorOf(error) };
    this.results.delete(digest);
    this.results.set(digest, kept);
    for (const oldest of this.results.keys()) {
      if (this.results.size <= RESULTS_MAX) break;
      this.results.delete(oldest);
    }
  }
}

/** Makes the sources of a task.
 *  @throws check_too_long before the texts exceed the limit of one task
 */
function sourcesOf(origins: readonly Sourced[]): readonly SchemaSource[] {
  let chars = 0;
  return origins.map(({ source }) => {
    chars += charsOf(source);
    if (chars > CHECK_CHARS_MAX) throw tooManyChars(CHECK_CHARS_MAX);
    return source;
  });
}

/** Characters of the texts without a cached tree; counting stops above `most`. */
function charsToParse({ proposed, against, ever = [] }: JudgeRequest, most: number): number {
  let chars = 0;
  for (const { origin } of [{ origin: proposed }, ...against, ...ever]) {
    if (origin !== undefined && origin.tree() === undefined) chars += charsOf(origin.source);
    if (chars > most) break;
  }
  return chars;
}

/** Makes the task of a request, with each origin once, by its key. */
function judgeTask(
  { proposed, level, policy, against, ever }: JudgeRequest,
  explain: boolean,
): { readonly task: JudgeTask; readonly origins: readonly Origin[]; readonly key: string } {
  const origins: Origin[] = [];
  const indexes = new Map<string, number>();
  const indexOf = (origin: Origin): number => {
    const known = indexes.get(origin.key);
    if (known !== undefined) return known;
    indexes.set(origin.key, origins.length);
    return origins.push(origin) - 1;
  };
  const versionOf = ({ version, format, origin }: OriginOf) => ({
    version,
    format,
    source: origin === undefined ? undefined : indexOf(origin),
  });
  const task: JudgeTask = {
    kind: 'judge',
    proposed: indexOf(proposed),
    level,
    policy,
    against: against.map(versionOf),
    ever: ever?.map(versionOf),
    explain,
  };
  return { task, origins, key: `${JSON.stringify(task)} ${[...indexes.keys()].join('\n')}` };
}

/** Runs a step until it completes; the request's allowance ends a step that needs too much.
 *  @throws check_too_long, checks_busy, and errors of the step
 */
export function untilDone<T>(run: () => T | Promise<T>, mostMs = CHECK_MS_MAX): T | Promise<T> {
  const again = async (first: unknown): Promise<T> => {
    const allowance = new Allowance(mostMs);
    for (let thrown = first; ; ) {
      if (!(thrown instanceof Deferred)) throw thrown;
      await thrown.work(allowance);
      try {
        return await run();
      } catch (next) {
        thrown = next;
      }
    }
  };
  try {
    const value = run();
    return value instanceof Promise ? value.catch(again) : value;
  } catch (thrown) {
    return again(thrown);
  }
}
