/** Writer of an object with code of its own: each property is read at a place of its own, which the
 *  engine can predict, where a loop over the names shares one place with every object of the
 *  process. Names enter the code as JSON strings only, so no schema can add code. */
import { isInheritedName, isPlainObject, ownProperty } from '../plain-object.ts';
import type { Sink } from '../sink.ts';
import { ValueRefusal } from '../value-refusal.ts';

type PlainObject = Readonly<Record<string, unknown>>;

/** Writes one value. @throws ValueRefusal */
export type Put = (sink: Sink, value: unknown) => void;

/** Writes the value of a property; undefined for an absent one. @param object has the property */
export type PropertyPut = (sink: Sink, value: unknown, object: PlainObject) => void;

export interface ObjectWriter {
  /** Names of the properties in the order of writing. */
  readonly names: readonly string[];
  readonly puts: readonly PropertyPut[];
  /** Type of the object in the error of another value. */
  readonly type: string;
  /** Adds a level to `sink.depth`. @throws ValueRefusal where objects are nested too deep */
  readonly begin: (sink: Sink) => void;
  /** Adds the step to a property to an error. Returns the error. */
  readonly inside: (name: string, thrown: unknown) => unknown;
}

/** Greatest number of properties of an object with code of its own. */
const GENERATED_NAMES_MAX = 1000;
/** Number of objects after which code is generated: making it takes about as long as so many
 *  writes. */
const GENERATED_AFTER_WRITES = 200;

/** Compiles the writer of an object.
 *  @param replace called with a faster writer of the same values after enough objects */
export function objectPut(writer: ObjectWriter, replace: (put: Put) => void): Put {
  const put = looping(writer);
  if (writer.names.length > GENERATED_NAMES_MAX) return put;
  let writes = 0;
  return (sink, value) => {
    if (++writes === GENERATED_AFTER_WRITES) replace(generated(writer) ?? put);
    put(sink, value);
  };
}

function looping({ names, puts, type, begin, inside }: ObjectWriter): Put {
  const inherited = names.map(isInheritedName);
  return (sink, value) => {
    if (!isPlainObject(value)) throw ValueRefusal.of(value, type);
    begin(sink);
    let at = 0;
    try {
      for (; at < names.length; at++) {
        const name = names[at] as string;
        const part = inherited[at] === true ? ownProperty(value, name) : value[name];
        (puts[at] as PropertyPut)(sink, part, value);
      }
    } catch (thrown) {
      throw inside(names[at] as string, thrown);
    }
    sink.depth--;
  };
}

/** Undefined: the process was started without code generation from strings. */
function generated(writer: ObjectWriter): Put | undefined {
  const { names, puts, type, begin, inside } = writer;
  const constants = puts.map((_, at) => `const put${at} = puts[${at}];`);
  const writes = names.map((name, at) => {
    const key = JSON.stringify(name);
    const part = isInheritedName(name) ? `ownProperty(value, ${key})` : `value[${key}]`;
    return `at = ${at};\nput${at}(sink, ${part}, value);`;
  });
  const body = `'use strict';
${constants.join('\n')}
return (sink, value) => {
if (!isPlainObject(value)) throw refusal(value);
begin(sink);
let at = 0;
try {
${writes.join('\n')}
} catch (thrown) {
throw inside(names[at], thrown);
}
sink.depth--;
};`;
  const inputs = {
    names,
    puts,
    begin,
    inside,
    isPlainObject,
    ownProperty,
    refusal: (value: unknown) => ValueRefusal.of(value, type),
  };
  try {
    return new Function(...Object.keys(inputs), body)(...Object.values(inputs)) as Put;
  } catch (thrown) {
    if (thrown instanceof EvalError) return undefined;
    throw thrown;
  }
}
