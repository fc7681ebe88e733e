/** Tasks on schema texts that may be too long for a thread that serves requests: plain data in and
 *  out.
 */
import { MillraceError } from '../../core/errors.ts';
import type { TextForm } from '../../formats/options.ts';
import { type Schema, schemaText } from '../../formats/schema.ts';
import { StepBudget } from '../compatibility/finding.ts';
import type { Comparison, EarlierVersion, Level, VerdictPolicy } from '../compatibility/modes.ts';
import { type REGISTRY_ERRORS, registryError } from '../errors.ts';
import { type Against, judgeSchemas, readSource, type SchemaSource } from './judge.ts';

/** Task that parses a text. */
export interface TextTask {
  readonly kind: 'text';
  /** Index among the sources. */
  readonly source: number;
  readonly forms: readonly TextForm[];
}

export interface TextResult {
  readonly kind: 'text';
  /** Text as it is stored. */
  readonly text: string;
  /** Text that a look-up compares; absent: the stored text. */
  readonly lookupText?: string;
  /** Text in the requested forms, in their order. */
  readonly forms: readonly string[];
}

interface VersionOf {
  readonly version: number;
  readonly format: string;
  /** Index among the sources; undefined: the schema cannot be read. */
  readonly source: number | undefined;
}

/** Task that judges a schema and, with `explain`, explains the verdict. */
export interface JudgeTask {
  readonly kind: 'judge';
  readonly proposed: number;
  readonly level: Level;
  readonly policy: VerdictPolicy;
  readonly against: readonly VersionOf[];
  readonly ever: readonly VersionOf[] | undefined;
  readonly explain: boolean;
}

export interface JudgeResult {
  readonly kind: 'judge';
  /** Findings lack their routes, which are as deep as the schemas. */
  readonly comparisons: readonly Comparison[];
  /** Absent where no explanation was requested. */
  readonly explained?: readonly object[];
  /** Indexes of sources that cannot be parsed, with the reasons. */
  readonly unread: ReadonlyArray<{ readonly source: number; readonly why: string }>;
}

export type Task = TextTask | JudgeTask;
export type TaskResult = TextResult | JudgeResult;

/** Outcome of a task: its result or its error, and the steps that it took. */
export interface Reply {
  readonly steps: number;
  readonly result?: TaskResult;
  readonly error?: {
    /** Undefined: the error is a bug. */
    readonly code: keyof typeof REGISTRY_ERRORS | undefined;
    readonly message: string;
    readonly next?: string;
    readonly details?: Readonly<Record<string, unknown>>;
  };
}

/** Runs a task.
 *  @param steps maximum steps of its comparisons
 */
export async function runTask(task: Task, sources: readonly SchemaSource[], steps: number): Promise<Reply> {
  const budget = new StepBudget(steps);
  try {
    const result = task.kind === 'text' ? textOf(task, sources) : await judged(task, sources, budget);
    return { steps: budget.used, result };
  } catch (thrown) {
    return { steps: budget.used, error: plainError(thrown) };
  }
}

function plainError(thrown: unknown): NonNullable<Reply['error']> {
  if (!(thrown instanceof MillraceError)) {
    const message = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
    return { code: undefined, message };
  }
  const { message, next, details } = thrown;
  return {
    code: thrown.code as keyof typeof REGISTRY_ERRORS,
    message,
    ...(next === undefined ? {} : { next }),
    // Only plain data can be sent to another thread.
    details: JSON.parse(JSON.stringify(details)) as Readonly<Record<string, unknown>>,
  };
}

/** The error of a reply as the task threw it. */
export function errorOf({ code, message, next, details }: NonNullable<Reply['error']>): Error {
  if (code === undefined) return new Error(`a check of a schema failed: ${message}`);
  return registryError(code, message, {
    ...(next === undefined ? {} : { next }),
    ...(details === undefined ? {} : { details }),
  });
}

function textOf({ source, forms }: TextTask, sources: readonly SchemaSource[]): TextResult {
  return textResult(readSource(sources[source] as SchemaSource), forms);
}

export function textResult(schema: Schema, forms: readonly TextForm[]): TextResult {
  const { text, lookupText } = schema;
  return {
    kind: 'text',
    text,
    ...(lookupText === undefined ? {} : { lookupText }),
    forms: forms.map((form) => schemaText(schema, form)),
  };
}

async function judged(
  task: JudgeTask,
  sources: readonly SchemaSource[],
  budget: StepBudget,
): Promise<JudgeResult> {
  const unread = new Map<number, string>();
  const read = (source: number | undefined): Schema | undefined => {
    if (source === undefined || unread.has(source)) return undefined;
    try {
      return readSource(sources[source] as SchemaSource);
    } catch (thrown) {
      if (!(thrown instanceof MillraceError)) throw thrown;
      unread.set(source, thrown.message);
      return undefined;
    }
  };
  function* against(): Generator<Against> {
    for (const { version, format, source } of task.against) yield { version, format, schema: read(source) };
  }
  function* ever(): Generator<EarlierVersion> {
    for (const { version, source } of task.ever ?? []) {
      const schema = read(source);
      if (schema !== undefined) yield { version, schema };
    }
  }
  const { level, policy } = task;
  const proposed = readSource(sources[task.proposed] as SchemaSource);
  const question = {
    proposed,
    level,
    policy,
    against: against(),
    ever: task.ever === undefined ? undefined : ever(),
  };
  const comparisons = judgeSchemas(question, budget);
  const result: JudgeResult = {
    kind: 'judge',
    comparisons: comparisons.map(withoutRoutes),
    unread: [...unread].map(([source, why]) => ({ source, why })),
  };
  if (!task.explain) return result;
  if (comparisons.every(({ findings }) => findings.every(({ severity }) => severity === 'note')))
    return { ...result, explained: [] };
  // Loads the codecs only where an explanation is needed.
  const { explainedFindings } = await import('../proof/explained.ts');
  const schemaOf = (version: number): Schema | undefined =>
    read(task.against.find((one) => one.version === version)?.source);
  const past = (charsMax: number): readonly Schema[] => {
    const chars = (task.ever ?? []).reduce((sum, { source }) => sum + textCharsOf(sources, source), 0);
    return chars > charsMax ? [] : [...ever()].map(({ schema }) => schema);
  };
  return {
    ...result,
    explained: await explainedFindings({ comparisons, proposed, policy, schemaOf, ever: past }),
  };
}

const textCharsOf = (sources: readonly SchemaSource[], source: number | undefined): number =>
  source === undefined ? 0 : (sources[source] as SchemaSource).text.length;

function withoutRoutes(comparison: Comparison): Comparison {
  return { ...comparison, findings: comparison.findings.map(({ route: _, ...finding }) => finding) };
}
