/** Reason why a value cannot be written with its schema. Each enclosing value adds its step to the
 *  path while the error passes it. */
import type { MillraceError } from '../core/errors.ts';
import { formatError } from './errors.ts';
import { shownOf } from './shown.ts';

/** Characters of a path that an error shows. */
const PATH_CHARS_MAX = 500;
const PLAIN_KEY = /^[\w.]+$/;

export class ValueRefusal extends Error {
  /** Steps from the innermost outwards: `.field`, `[2]` of a list, `["a b"]` of a map. */
  private readonly steps: string[] = [];

  /** @param why predicate of the message, whose subject is the path */
  constructor(why: string) {
    super(why);
    this.name = 'ValueRefusal';
  }

  /** Error of a value of another type. @param type such as `long` or `record shop.Order` */
  static of(value: unknown, type: string): ValueRefusal {
    return new ValueRefusal(`cannot hold ${shownOf(value)}: it is ${type}`);
  }

  /** Error of a value that is no 64-bit integer. @param type such as `long` or `int64` */
  static ofWide(value: unknown, type: string): ValueRefusal {
    const isRounded = typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value);
    return ValueRefusal.of(
      value,
      isRounded ? `${type}, and a number beyond 2^53 - 1 is not exact; give a bigint` : type,
    );
  }

  /** Adds the step to a property. Returns the error. */
  static inProperty(key: string, thrown: unknown): unknown {
    if (thrown instanceof ValueRefusal)
      thrown.steps.push(PLAIN_KEY.test(key) ? `.${key}` : `[${shownOf(key)}]`);
    return thrown;
  }

  /** Adds the step to a field of a schema. Returns the error. */
  static inField(name: string, thrown: unknown): unknown {
    if (thrown instanceof ValueRefusal) thrown.steps.push(`.${name}`);
    return thrown;
  }

  /** Adds the step to an item of a list. Returns the error. */
  static inItem(index: number, thrown: unknown): unknown {
    if (thrown instanceof ValueRefusal) thrown.steps.push(`[${index}]`);
    return thrown;
  }

  /** Converts any error of an encoder to the public error value_refused. A getter of the value may
   *  throw anything. @param root first part of the path */
  static toError(root: string, thrown: unknown): MillraceError {
    if (!(thrown instanceof ValueRefusal))
      return formatError('value_refused', `a property of the value cannot be read: ${String(thrown)}`, {
        cause: thrown,
      });
    let path = '';
    let left = thrown.steps.length;
    for (const step of thrown.steps) {
      if (path.length + step.length > PATH_CHARS_MAX) break;
      path = step + path;
      left--;
    }
    path = (left === 0 ? root : '…') + path;
    return formatError('value_refused', `${path} ${thrown.message}`, { details: { path } });
  }
}
