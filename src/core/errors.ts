/** Error model: tables of codes. A row has the kind of the error and the answer of each surface.
 *
 *  Invariants: (1) a code belongs to exactly one row; (2) callers match on `code` or `kind`, never
 *  on the message; (3) the message says what and why, `next` says what to do.
 *  The kind tells the caller how to react:
 *    invalid      fix the call
 *    conflict     refused because of its meaning
 *    not_found    no such object
 *    unavailable  retry later
 *    corrupt      quarantine or restore
 *    fenced       stop, another owner exists
 *    internal     a bug of Millrace
 */

export type ErrorKind =
  | 'invalid'
  | 'conflict'
  | 'not_found'
  | 'unavailable'
  | 'corrupt'
  | 'fenced'
  | 'internal';

/** Process exit codes shared by every command. A command may define 4 and 5 itself. */
export const EXIT = {
  done: 0,
  no: 1,
  usage: 2,
  unavailable: 3,
  internal: 70,
  interrupted: 130,
} as const;

/** One row of a product's error table. `http` and `grpc` are status numbers, `number` the
 *  registry's error_code. */
export interface ErrorRow {
  readonly kind: ErrorKind;
  readonly http: number;
  readonly grpc: number;
  readonly exit: number;
  /** error_code of the registry's HTTP bodies, where it differs from the status. */
  readonly number?: number;
  /** Value of the metric label `reason`, where the error is counted. */
  readonly reason?: string;
}

export type ErrorTable = Readonly<Record<string, ErrorRow>>;

const KIND_DEFAULTS: Readonly<Record<ErrorKind, Pick<ErrorRow, 'http' | 'grpc' | 'exit'>>> = {
  invalid: { http: 400, grpc: 3, exit: EXIT.usage },
  conflict: { http: 409, grpc: 6, exit: EXIT.no },
  not_found: { http: 404, grpc: 5, exit: EXIT.no },
  unavailable: { http: 503, grpc: 14, exit: EXIT.unavailable },
  corrupt: { http: 500, grpc: 15, exit: EXIT.no },
  fenced: { http: 503, grpc: 10, exit: EXIT.unavailable },
  internal: { http: 500, grpc: 13, exit: EXIT.internal },
};

/** Makes a row from its kind; `over` replaces defaults of the kind. */
export function errorRow(kind: ErrorKind, over: Partial<Omit<ErrorRow, 'kind'>> = {}): ErrorRow {
  return { kind, ...KIND_DEFAULTS[kind], ...over };
}

export interface ErrorOptions {
  /** Next step of the user, one sentence. */
  readonly next?: string;
  readonly cause?: unknown;
  /** Named values a surface may render; never parsed from the message. */
  readonly details?: Readonly<Record<string, unknown>>;
}

/** Only error class of the project. It carries its row, so a code always has its own status. */
export class MillraceError extends Error {
  readonly code: string;
  readonly row: ErrorRow;
  readonly next: string | undefined;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: string, row: ErrorRow, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'MillraceError';
    this.code = code;
    this.row = row;
    this.next = options.next;
    this.details = options.details ?? {};
  }

  get kind(): ErrorKind {
    return this.row.kind;
  }

  /** Formats the error as one line: what happened and why, then the next step. */
  toLine(): string {
    return this.next === undefined
      ? `${this.message} [${this.code}]`
      : `${this.message}; ${this.next} [${this.code}]`;
  }
}

/** Binds a table to its constructor: `const err = errorsOf(TABLE); throw err('busy_port', '…')`. */
export function errorsOf<T extends ErrorTable>(table: T) {
  return (code: keyof T & string, message: string, options: ErrorOptions = {}): MillraceError =>
    new MillraceError(code, table[code] as ErrorRow, message, options);
}

/** Errors that any command can meet. Products have tables of their own in `<product>/errors.ts`. */
export const CORE_ERRORS = {
  usage: errorRow('invalid'),
  unknown_flag: errorRow('invalid'),
  bad_value: errorRow('invalid'),
  bad_file: errorRow('invalid'),
  not_writable: errorRow('invalid'),
  lock_unavailable: errorRow('unavailable'),
  busy_port: errorRow('unavailable'),
  unreachable: errorRow('unavailable'),
  wrong_server: errorRow('unavailable'),
  timeout: errorRow('unavailable'),
  /** The command was stopped before its work was done. */
  interrupted: errorRow('unavailable', { exit: EXIT.interrupted }),
  addon_missing: errorRow('unavailable'),
  addon_mismatch: errorRow('unavailable'),
  layout_mismatch: errorRow('internal'),
  closed: errorRow('internal'),
  out_of_range: errorRow('invalid'),
  internal: errorRow('internal'),
} as const satisfies ErrorTable;

export const coreError = errorsOf(CORE_ERRORS);

/** Returns the nearest MillraceError in a chain of causes; undefined for a foreign error. Accepts
 *  any thrown value.
 *  @example
 *  if (findMillraceError(thrown)?.code === 'unreachable') scheduleRetry();
 */
export function findMillraceError(thrown: unknown): MillraceError | undefined {
  let at: unknown = thrown;
  for (let depth = 0; depth < 16 && at instanceof Error; depth++) {
    if (at instanceof MillraceError) return at;
    at = at.cause;
  }
  return undefined;
}

/** Checks a condition that only a bug of Millrace can break; active in production. @throws internal
 */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw coreError('internal', `invariant broken: ${message}`);
}
