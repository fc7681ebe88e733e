/** Objects that a program gives as records, maps and messages. */

/** Objects of the language whose content is not in their properties; such an object would be
 *  written as an empty value. */
const OTHERS = [Map, Set, Date, Promise, RegExp, ArrayBuffer, WeakMap, WeakSet] as const;

const isOther = (value: object): boolean =>
  Array.isArray(value) || ArrayBuffer.isView(value) || OTHERS.some((type) => value instanceof type);

/** True for an object whose properties are its content: an object literal, one without a prototype,
 *  an instance of a class. */
export function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || !isOther(value);
}

/** Properties that every object inherits. */
const INHERITED = Object.prototype as unknown as Readonly<Record<string, unknown>>;

/** True for a name that every object has, such as `constructor`. */
export const isInheritedName = (name: string): boolean => name in INHERITED;

/** Value of a property whose name every object has; undefined for the inherited property. */
export function ownProperty(value: Readonly<Record<string, unknown>>, name: string): unknown {
  if (name === '__proto__') return Object.hasOwn(value, name) ? value[name] : undefined;
  const part = value[name];
  return part === INHERITED[name] ? undefined : part;
}
