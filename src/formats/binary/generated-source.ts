/** Source of a decoder with code of its own: one function for each type, the values that they refer
 *  to, and the constructors of their objects. Names enter the code as JSON strings only, so no
 *  schema can add code. */
import { Constructors, NO_ITEMS } from './constructors.ts';

/** Source text under construction. Types are queued in a list, because a chain of types may be
 *  longer than the stack is deep. */
export abstract class GeneratedSource<Type> {
  protected readonly constructors = new Constructors();
  /** Number of functions and fields so far. */
  protected parts = 0;
  private readonly partsMax: number;
  /** Values that the code refers to by position. */
  private readonly inputs: unknown[] = [];
  private readonly names = new Map<Type, string>();
  private readonly waiting: Array<readonly [name: string, type: Type]> = [];
  private readonly constants: string[] = [];
  private emptyList: string | undefined;

  constructor(partsMax: number) {
    this.partsMax = partsMax;
  }

  /** Text of the function that reads a type; undefined where it would be too long. */
  protected abstract functionOf(name: string, type: Type): string | undefined;

  /** Compiles the functions. Undefined: the types are too large, or the process was started without
   *  code generation from strings.
   *  @param result expression of the result
   *  @param name name of `value` in the code */
  compile<T>(result: string, name: string, value: unknown): T | undefined {
    const body = this.body();
    if (body === undefined) return undefined;
    try {
      const make = new Function('inputs', name, `${body}\nreturn ${result};`) as (
        inputs: readonly unknown[],
        value: unknown,
      ) => T;
      return make(this.inputs, value);
    } catch (thrown) {
      if (thrown instanceof EvalError) return undefined;
      throw thrown;
    }
  }

  /** Name of the function that reads a type. */
  nameOf(type: Type): string {
    const known = this.names.get(type);
    if (known !== undefined) return known;
    const name = `read${this.names.size}`;
    this.names.set(type, name);
    this.waiting.push([name, type]);
    return name;
  }

  /** Name of a constant that holds `value`. */
  protected input(value: unknown): string {
    const index = this.inputs.push(value) - 1;
    this.constants.push(`const input${index} = inputs[${index}];`);
    return `input${index}`;
  }

  /** Name of the constant of an empty list, to be copied. */
  protected noItems(): string {
    this.emptyList ??= this.input(NO_ITEMS);
    return this.emptyList;
  }

  private body(): string | undefined {
    const functions: string[] = [];
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop()) {
      const text = this.functionOf(...next);
      if (text === undefined || this.parts > this.partsMax) return undefined;
      functions.push(text);
    }
    return ["'use strict';", ...this.constants, this.constructors.text(), ...functions].join('\n');
  }
}
