/** Port of a store of objects: named, whole values on another machine. Objects are replaced
 *  atomically; a conditional replacement is a compare-and-swap by the tag of the content. */
import { type ErrorOptions, errorRow, errorsOf, type MillraceError } from '../../core/errors.ts';

export const OBJECT_ERRORS = {
  /** The store cannot be reached, or does not answer as one. */
  store_unavailable: errorRow('unavailable'),
  store_refused: errorRow('invalid'),
} as const;

const make = errorsOf(OBJECT_ERRORS);

export const objectError = (
  code: keyof typeof OBJECT_ERRORS,
  message: string,
  options: ErrorOptions = {},
): MillraceError => make(code, message, options);

export interface StoredObject {
  readonly bytes: Uint8Array;
  /** Changes with every replacement. */
  readonly tag: string;
}

/** All methods throw store_unavailable, after which the outcome is unknown, and store_refused. */
export interface ObjectStore {
  /** Address for messages, without secrets. */
  readonly where: string;
  /** Undefined: there is no such object. */
  get(name: string): Promise<StoredObject | undefined>;
  /** Writes an object, whatever it was. It is durable when this settles. */
  put(name: string, bytes: Uint8Array): Promise<void>;
  /** Writes an object that has this tag now; undefined: that does not exist.
   *  @returns its new tag; undefined: it has another tag, and nothing was written */
  replace(name: string, bytes: Uint8Array, tag: string | undefined): Promise<string | undefined>;
  /** Names that begin with the prefix, in no order. */
  list(prefix: string): Promise<readonly string[]>;
  /** Removes an object; a missing object is no error. */
  remove(name: string): Promise<void>;
}
