/** Reader of an object whose properties are read at one index of columns: a loop over the
 *  properties, and after some objects code of its own, where each property has a place that the
 *  engine can predict. */
import { Constructors } from './constructors.ts';

/** Reads the value at an index of a column. */
export type Get = (at: number) => unknown;

export interface PropertyGet {
  readonly name: string;
  readonly get: Get;
}

/** Greatest number of properties of an object with code of its own. */
const GENERATED_NAMES_MAX = 1000;
/** Number of objects after which code is generated: making it takes about as long as so many reads.
 */
const GENERATED_AFTER_READS = 200;

export function objectGet(properties: readonly PropertyGet[]): Get {
  const loop = looping(properties);
  let read: Get | undefined;
  let reads = 0;
  return (at) => {
    if (read !== undefined) return read(at);
    if (++reads === GENERATED_AFTER_READS && properties.length <= GENERATED_NAMES_MAX)
      read = generated(properties);
    return loop(at);
  };
}

function looping(properties: readonly PropertyGet[]): Get {
  // The blank object has every property from the start, so that assignments by name are safe.
  const blank: Record<string, unknown> = {};
  for (const { name } of properties)
    Object.defineProperty(blank, name, {
      value: undefined,
      writable: true,
      enumerable: true,
      configurable: true,
    });
  return (at) => {
    const value: Record<string, unknown> = { ...blank };
    for (const { name, get } of properties) value[name] = get(at);
    return value;
  };
}

/** Undefined: the process was started without code generation from strings. */
function generated(properties: readonly PropertyGet[]): Get | undefined {
  const constructors = new Constructors();
  const object = constructors.object(
    properties.map(({ name }) => name),
    properties.map((_, index) => `get${index}(at)`),
  );
  const constants = properties.map((_, index) => `const get${index} = gets[${index}];`);
  const body = ["'use strict';", ...constants, constructors.text(), `return (at) => ${object};`].join('\n');
  try {
    return new Function('gets', body)(properties.map(({ get }) => get)) as Get;
  } catch (thrown) {
    if (thrown instanceof EvalError) return undefined;
    throw thrown;
  }
}
