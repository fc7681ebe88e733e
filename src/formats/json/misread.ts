/** Reason why a JSON value is no value of a schema, with its path. */
import type { MillraceError } from '../../core/errors.ts';
import { formatError } from '../errors.ts';
import type { JsonNode } from './text.ts';

/** Characters of a path that a message shows. */
const PATH_CHARS_MAX = 500;
/** Characters of a value that a message shows. */
const SHOWN_CHARS_MAX = 64;

/** Each enclosing value adds its step to the path. */
export class Misread extends Error {
  /** Steps from the innermost outwards: `.field`, `[2]`. */
  private readonly steps: string[] = [];

  /** Adds `step` to a Misread error that was thrown while the value at `step` was read. */
  static inside(step: string, thrown: unknown): unknown {
    if (thrown instanceof Misread) thrown.steps.push(step);
    return thrown;
  }

  /** Number of steps of the path. */
  get depth(): number {
    return this.steps.length;
  }

  /** Converts to the public error. @param root first part of the path */
  toError(root: string): MillraceError {
    const path = [root, ...this.steps.toReversed()].join('');
    const shown = path.length > PATH_CHARS_MAX ? `${path.slice(0, PATH_CHARS_MAX)}…` : path;
    return formatError('value_refused', `${shown}: ${this.message}`, { details: { path: shown } });
  }
}

/** Step of a member in a path. */
export const memberStep = (name: string): string =>
  /^\w+$/.test(name) ? `.${name}` : `[${JSON.stringify(name.slice(0, SHOWN_CHARS_MAX))}]`;

/** Names a JSON value in a message. */
function shownJson(json: JsonNode): string {
  switch (json.kind) {
    case 'null':
      return 'null';
    case 'boolean':
      return String(json.value);
    case 'number':
      return json.digits.length > SHOWN_CHARS_MAX ? `${json.digits.slice(0, SHOWN_CHARS_MAX)}…` : json.digits;
    case 'string':
      return json.value.length > SHOWN_CHARS_MAX
        ? `${JSON.stringify(json.value.slice(0, SHOWN_CHARS_MAX))}…`
        : JSON.stringify(json.value);
    case 'array':
      return 'a list';
    case 'object':
      return 'an object';
  }
}

/** @param wanted description of the type, such as "an int" */
export const misread = (json: JsonNode, wanted: string): Misread =>
  new Misread(`${shownJson(json)} is not ${wanted}`);
