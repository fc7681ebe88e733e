/** Parses and evaluates the rules file: the operations that each principal may do on which
 *  subjects.
 *  A rule is a line of three columns: a principal, operations separated by commas, a pattern of
 *  subjects. Rules only allow; an operation that no rule allows is denied, so the order of rules
 *  does not matter. `docs/how-to/security.md` is the operators' page.
 *  Invariants: (1) A rule without a context applies to the default context only. (2) A rule for
 *  `anonymous` applies to every caller. (3) To change a setting of the whole registry takes a rule
 *  over `:*:*`; for a context, a rule over all its subjects. */
import { coreError } from '../core/errors.ts';
import { parseSubject } from '../core/subject.ts';
import { Glob } from './glob.ts';
import { type Access, type AccessOperation, type Need, OPERATIONS } from './request.ts';

export const ANONYMOUS = 'anonymous';

export const RULES_BYTES_MAX = 1 << 20;
const RULES_MAX = 10_000;
const PATTERN_CHARS_MAX = 1024;
/** Principals whose rules are cached; limited because a token may contain any name. */
const PRINCIPALS_CACHED_MAX = 10_000;

interface Rule {
  readonly who: 'anonymous' | 'authenticated' | Glob;
  readonly operations: ReadonlySet<AccessOperation>;
  /** Pattern of the context's name; `.` is the default context. */
  readonly context: Glob;
  readonly subject: Glob;
}

/** Rights of one principal. */
export class Principal implements Access {
  readonly principal: string;
  private readonly rules: readonly Rule[];
  private readonly readsAll: boolean;

  constructor(principal: string, rules: readonly Rule[]) {
    this.principal = principal;
    this.rules = rules;
    this.readsAll = this.mayEverywhere('read');
  }

  may(need: Need): boolean {
    const { operation, subject, anyOf } = need;
    if (subject !== undefined) return this.mayOn(operation, subject);
    if (anyOf !== undefined) return anyOf.some((alternative) => this.mayOn(operation, alternative));
    // Any rule allows reading the registry's own settings, which are no secret to its users.
    return operation === 'read' ? this.rules.length > 0 : this.mayEverywhere(operation);
  }

  mayRead(subject: string): boolean {
    return this.readsAll || this.mayOn('read', subject);
  }

  mayReadContext(context: string): boolean {
    return this.rules.some((rule) => rule.context.matches(context));
  }

  private mayOn(operation: AccessOperation, qualified: string): boolean {
    const { context, name } = parseSubject(qualified);
    // A context's setting affects every subject in it, so changing it needs a rule over all of
    // them. Any rule in the context allows reading it, or a list.
    const whole = name === '';
    if (whole && operation === 'read') return this.mayReadContext(context);
    return this.rules.some(
      (rule) =>
        rule.operations.has(operation) &&
        rule.context.matches(context) &&
        (whole ? rule.subject.everything : rule.subject.matches(name)),
    );
  }

  private mayEverywhere(operation: AccessOperation): boolean {
    return this.rules.some(
      (rule) => rule.operations.has(operation) && rule.context.everything && rule.subject.everything,
    );
  }
}

export class Rules {
  private readonly rules: readonly Rule[];
  private readonly principals = new Map<string, Principal>();

  private constructor(rules: readonly Rule[]) {
    this.rules = rules;
  }

  get size(): number {
    return this.rules.length;
  }

  /** Parses a rules file. @throws bad_file with the number of the line */
  static parse(text: string, where: string): Rules {
    const rules: Rule[] = [];
    text
      .replace(/^\uFEFF/u, '')
      .split(/\r?\n/u)
      .forEach((line, index) => {
        const columns = columnsOf(line);
        const bad = (why: string, next: string): Error =>
          coreError('bad_file', `${where}:${index + 1}: ${why}`, { next });
        if (columns === undefined)
          throw bad('a quote is not closed', 'end it with ", and write "" for a quote');
        if (columns.length === 0) return;
        if (columns.length !== 3) {
          throw bad(
            `a rule has three columns, not ${columns.length}`,
            'write: PRINCIPAL OPERATIONS SUBJECTS, such as basic:alice read,write orders-*',
          );
        }
        if (rules.length >= RULES_MAX) throw bad(`more than ${RULES_MAX} rules`, 'use patterns');
        rules.push(ruleOf(columns as [string, string, string], bad));
      });
    return new Rules(rules);
  }

  /** Returns the rights of `anonymous`, or of a principal with its scheme. */
  principal(principal: string): Principal {
    const known = this.principals.get(principal);
    if (known !== undefined) return known;
    const created = new Principal(
      principal,
      this.rules.filter(({ who }) => {
        if (who === ANONYMOUS) return true;
        if (principal === ANONYMOUS) return false;
        return who === 'authenticated' || who.matches(principal);
      }),
    );
    if (this.principals.size >= PRINCIPALS_CACHED_MAX) this.principals.clear();
    this.principals.set(principal, created);
    return created;
  }
}

type Bad = (why: string, next: string) => Error;

function ruleOf([who, operations, subjects]: [string, string, string], bad: Bad): Rule {
  return { who: whoOf(who, bad), operations: operationsOf(operations, bad), ...subjectsOf(subjects, bad) };
}

function whoOf(text: string, bad: Bad): Rule['who'] {
  if (text === 'anonymous' || text === 'authenticated') return text;
  if (!/^(basic|jwt|mtls):./su.test(text)) {
    throw bad(
      `${JSON.stringify(text)} is not a principal`,
      'write basic:NAME, jwt:NAME, mtls:SUBJECT, authenticated or anonymous',
    );
  }
  return globOf(text, bad);
}

function operationsOf(text: string, bad: Bad): ReadonlySet<AccessOperation> {
  if (text === 'all') return new Set(OPERATIONS);
  const operations = text.split(',');
  for (const one of operations) {
    if (!(OPERATIONS as readonly string[]).includes(one)) {
      throw bad(
        `${JSON.stringify(one)} is not an operation`,
        `choose from ${OPERATIONS.join(', ')}, or write all`,
      );
    }
  }
  return new Set(operations as AccessOperation[]);
}

function subjectsOf(text: string, bad: Bad): Pick<Rule, 'context' | 'subject'> {
  const qualified = /^:(\*|\.[^:]*):(.+)$/su.exec(text);
  if (qualified === null && /^:(\*|\.)/u.test(text)) {
    throw bad(
      `${JSON.stringify(text)} names a context and no subjects`,
      'write :.context:PATTERN, or :*:PATTERN for all contexts',
    );
  }
  return {
    context: globOf(qualified?.[1] ?? '.', bad),
    subject: globOf(qualified?.[2] ?? text, bad),
  };
}

function globOf(text: string, bad: Bad): Glob {
  if (text.length > PATTERN_CHARS_MAX)
    throw bad(`a pattern has ${text.length} characters`, `use at most ${PATTERN_CHARS_MAX}`);
  const glob = Glob.parse(text);
  if (glob === undefined)
    throw bad(`${JSON.stringify(text)} ends in a lone backslash`, 'write \\\\ for a backslash');
  return glob;
}

/** Splits a line into columns, which blanks separate. A column in double quotes may hold blanks;
 *  `""` is a quote in it. `#` at the start of a column begins a comment. Undefined: a quote is not
 *  closed. */
function columnsOf(line: string): string[] | undefined {
  const columns: string[] = [];
  let rest = line.trim();
  while (rest !== '' && !rest.startsWith('#')) {
    const quoted = rest.startsWith('"');
    const match = (quoted ? /^"((?:[^"]|"")*)"(?=\s|$)/u : /^(\S+)/u).exec(rest);
    if (match === null) return undefined;
    const column = match[1] as string;
    columns.push(quoted ? column.replaceAll('""', '"') : column);
    rest = rest.slice(match[0].length).trim();
  }
  return columns;
}
