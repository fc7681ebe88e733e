/** Parses schemas that are plain data, and judges a proposed schema over all the versions that it
 *  is compared with, under one budget of steps.
 */
import type { ResolvedReference } from '../../formats/content.ts';
import { isSchemaFormat, type SchemaFormat } from '../../formats/format.ts';
import type { ParseOptions } from '../../formats/options.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import { StepBudget } from '../compatibility/finding.ts';
import {
  type Comparison,
  compareHistory,
  compareWith,
  type EarlierVersion,
  type Level,
  type VerdictPolicy,
} from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';

/** Maximum characters of an unknown type in a message. */
const TYPE_CHARS_MAX = 40;

/** Schema as plain data, which can be sent to another thread and parsed there. */
export interface SchemaSource extends Pick<ParseOptions, 'unvalidated' | 'looseImports'> {
  readonly format: SchemaFormat;
  readonly text: string;
  readonly references: readonly ResolvedReference[];
  readonly lenient: boolean;
  readonly normalize: boolean;
}

/** @throws invalid_schema, schema_too_large */
export function readSource({ format, text, ...options }: SchemaSource): Schema {
  return parseSchema(format, text, options);
}

/** Characters of the text and of everything that it refers to, each reference once. */
export function charsOf({ text, references }: Pick<SchemaSource, 'text' | 'references'>): number {
  let chars = text.length;
  const met = new Set<ResolvedReference>();
  const open = [...references];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (met.has(one)) continue;
    met.add(one);
    chars += one.text.length;
    open.push(...one.references);
  }
  return chars;
}

/** Version to compare with. */
export interface Against {
  readonly version: number;
  readonly format: string;
  /** Undefined: the schema cannot be read. */
  readonly schema: Schema | undefined;
}

export interface Question {
  readonly proposed: Schema;
  readonly level: Level;
  readonly policy: VerdictPolicy;
  /** Versions to compare with, read one after the other, so that one tree is held at a time. */
  readonly against: Iterable<Against>;
  /** Versions whose field numbers count, oldest first. Undefined: the history of numbers does not
   *  count.
   */
  readonly ever: Iterable<EarlierVersion> | undefined;
}

/** @throws check_too_long */
export function judgeSchemas(question: Question, budget = new StepBudget()): Comparison[] {
  const { proposed, level, policy, against, ever } = question;
  const comparisons: Comparison[] = [];
  for (const { version, format, schema } of against) {
    if (schema !== undefined)
      comparisons.push(...compareWith(proposed, level, [{ version, schema }], policy, budget));
    else if (level !== 'NONE') comparisons.push(unreadable(version, format));
    if (budget.isSpent) throw tooManySteps(budget.most);
  }
  if (ever !== undefined) comparisons.push(...compareHistory(proposed, ever, budget));
  if (budget.isSpent) throw tooManySteps(budget.most);
  return comparisons;
}

function unreadable(version: number, format: string): Comparison {
  const why = isSchemaFormat(format)
    ? 'cannot be parsed'
    : `is of the type ${format.slice(0, TYPE_CHARS_MAX)}, which is not known here`;
  const message = `the stored schema of version ${version} ${why}, so nothing can be said about it`;
  return {
    version,
    direction: 'BACKWARD',
    findings: [{ rule: 'STORED_SCHEMA_UNREADABLE', severity: 'unjudged', path: '', message }],
  };
}

/** Part of the message, because an HTTP client sees only the message. */
const NEXT =
  'make the schema simpler, with fewer types that refer to each other, or compare with fewer versions: a level that is not transitive compares with one';

export const tooManySteps = (most: number) =>
  registryError(
    'check_too_long',
    `the check of this schema takes more than ${most} steps over all the versions that it is compared with (the limit check-steps); ${NEXT}`,
  );

export const tooManyChars = (most: number) =>
  registryError(
    'check_too_long',
    `the texts that the check of this schema reads have more than ${most} characters over all versions and references (the limit check-chars); ${NEXT}`,
  );

export const tooLongHistory = (subject: string, most: number) =>
  registryError(
    'check_too_long',
    `the Protobuf versions that subject "${subject}" ever had, deleted ones included, have more than ${most} characters together (the limit check-chars), so no new text can be checked against their field numbers; register the schema under another subject`,
  );

export const tooMuchTime = (mostMs: number) =>
  registryError(
    'check_too_long',
    `the check of this schema takes longer than ${mostMs} ms, over all the versions that it is compared with (the limit -check-timeout); ${NEXT}`,
  );

export const tooMuchMemory = (mostMiB: number) =>
  registryError(
    'check_too_long',
    `the check of this schema takes more than ${mostMiB} MiB of memory (the limit check-memory); ${NEXT}`,
  );
