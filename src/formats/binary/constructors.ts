/** Source text of constructors for objects of one shape in generated code.
 *
 *  A constructor, because the engine allocates literals in the old generation once a program
 *  has kept many of them, and then every later value costs several times as much. The objects have
 *  the prototype of object literals. */

/** Empty list whose copies, made by `slice`, are in the young generation too. Its elements may be
 *  of any type. */
export const NO_ITEMS: readonly unknown[] = emptyList();

function emptyList(): unknown[] {
  // The engine remembers that the elements were not all small integers.
  const list: unknown[] = [''];
  list.pop();
  return list;
}

/** Constructors by the names of the properties. */
export class Constructors {
  private readonly names = new Map<string, string>();
  private readonly texts: string[] = [];

  /** Expression that makes an object with these properties, in their order. The names enter the
   *  code as JSON strings. @param values expressions of the properties' values */
  object(names: readonly string[], values: readonly string[]): string {
    const key = JSON.stringify(names);
    const name = this.names.get(key) ?? this.add(key, names);
    return `new ${name}(${values.join(', ')})`;
  }

  /** Text of all constructors. */
  text(): string {
    return this.texts.join('\n');
  }

  private add(key: string, names: readonly string[]): string {
    const name = `Shape${this.names.size}`;
    this.names.set(key, name);
    const parameters = names.map((_, index) => `value${index}`);
    const sets = names.map((property, index) => {
      const quoted = JSON.stringify(property);
      // An assignment to `__proto__` would change the object's prototype.
      return property === '__proto__'
        ? `Object.defineProperty(this, ${quoted}, { value: value${index}, writable: true, enumerable: true, configurable: true });`
        : `this[${quoted}] = value${index};`;
    });
    this.texts.push(`function ${name}(${parameters.join(', ')}) {\n${sets.join('\n')}\n}
${name}.prototype = Object.prototype;`);
    return name;
  }
}
