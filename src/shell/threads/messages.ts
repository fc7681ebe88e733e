/** Messages between the main thread of a command and its worker threads. */
import type { MessagePort } from 'node:worker_threads';
import { CORE_ERRORS, type ErrorRow, findMillraceError, MillraceError } from '../../core/errors.ts';
import type { LogFields } from '../../core/log.ts';
import type { MetricSnapshot } from '../../core/metrics.ts';

/** Interval of a thread's reports, ms. */
export const REPORT_EVERY_MS = 250;

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** Data that a thread starts with. */
export interface ThreadData {
  readonly number: number;
  readonly settings: unknown;
  readonly job: unknown;
  /** End of the channel to the process's registry client. */
  readonly registry: MessagePort | undefined;
}

/** Error as data. Only a MillraceError has a row. */
export interface ThreadFailure {
  readonly message: string;
  readonly stack: string | undefined;
  readonly code?: string;
  readonly row?: ErrorRow;
  readonly next?: string | undefined;
}

export type FromThread =
  | { readonly kind: 'ready' }
  | {
      readonly kind: 'log';
      readonly level: LogLevel;
      readonly fields: LogFields;
      readonly message: string;
    }
  /** State of the thread: `state` is the command's own. */
  | { readonly kind: 'report'; readonly metrics: readonly MetricSnapshot[]; readonly state: unknown }
  | { readonly kind: 'ask'; readonly number: number; readonly question: unknown }
  | { readonly kind: 'done'; readonly result: unknown }
  | { readonly kind: 'failed'; readonly failure: ThreadFailure };

export type ToThread =
  | { readonly kind: 'drain' }
  | { readonly kind: 'answer'; readonly number: number; readonly answer?: unknown }
  | { readonly kind: 'refusal'; readonly number: number; readonly failure: ThreadFailure };

/** Describes any thrown value as data. */
export function failureOfThread(thrown: unknown): ThreadFailure {
  const error = findMillraceError(thrown);
  const message = error?.message ?? (thrown instanceof Error ? thrown.message : String(thrown));
  const stack = thrown instanceof Error ? thrown.stack : undefined;
  if (error === undefined) return { message, stack };
  return { message, stack, code: error.code, row: error.row, next: error.next };
}

/** Makes an error of a thread's failure: with its code, row and next step, or a plain one. */
export function errorOfThread({ message, stack, code, row, next }: ThreadFailure): Error {
  const error =
    code === undefined
      ? new Error(message)
      : new MillraceError(code, row ?? CORE_ERRORS.internal, message, next === undefined ? {} : { next });
  if (stack !== undefined) error.stack = stack;
  return error;
}

/** Copies log fields into values that can be sent to another thread. */
export function sendable(fields: LogFields): LogFields {
  const plain = (value: unknown): unknown => {
    if (value instanceof Error) return value.message;
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value === 'function' || typeof value === 'symbol') return String(value);
    if (typeof value === 'object' && value !== null)
      return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
    return value;
  };
  return plain(fields) as LogFields;
}
