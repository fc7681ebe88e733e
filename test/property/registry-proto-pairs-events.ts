/** Events of a random Protobuf schema that reveal faults of a reader. */
import type { FieldModel, MessageModel, SchemaModel } from './registry-proto-pairs-kit.ts';
import { type Datum, innerOf, type Value, valuesOf } from './registry-proto-pairs-oracle.ts';

/** Maximum number of events of one message type. */
const VARIANTS_MAX = 600;

/** Events of a model: the smallest event, each value of each field alone, and each pair of fields
 *  together. */
export class Events {
  private readonly model: SchemaModel;
  private readonly made = new Map<string, readonly Datum[]>();

  constructor(model: SchemaModel) {
    this.model = model;
  }

  /** Events of a message; empty if the message requires itself. */
  variants(message: MessageModel, depth: number): readonly Datum[] {
    const key = `${message.name} ${depth}`;
    const known = message.name === 'an entry' ? undefined : this.made.get(key);
    if (known !== undefined) return known;
    const least = this.least(message, []);
    const found: Datum[] = least === undefined ? [] : [least];
    this.made.set(key, found);
    if (least === undefined) return found;
    const choices = message.fields.map((field) => [field, this.choices(field, depth)] as const);
    for (const [field, values] of choices)
      for (const value of values) found.push(new Map([...least, [field.number, value]]));
    for (const [a, firsts] of choices) {
      for (const [b, others] of choices) {
        if (a.number >= b.number || (a.oneof !== undefined && a.oneof === b.oneof)) continue;
        const [first, other] = [firsts.at(-1), others.at(-1)];
        if (first !== undefined && other !== undefined)
          found.push(new Map([...least, [a.number, first], [b.number, other]]));
      }
    }
    found.length = Math.min(found.length, VARIANTS_MAX);
    return found;
  }

  private choices(field: FieldModel, depth: number): readonly Value[] {
    const { model } = this;
    if (field.shape === 'map') {
      const entry = innerOf(model, field, true) as MessageModel;
      const [key, value] = entry.fields as [FieldModel, FieldModel];
      const keys = valuesOf(model, key);
      const values = value.type === 'message' ? this.inner(value, depth) : valuesOf(model, value);
      if (values.length === 0) return [[]];
      const of = (k: Value, v: Value): Datum =>
        new Map([
          [1, k],
          [2, v],
        ]);
      // Nested lists of messages grow with every level.
      const several = value.type === 'message' ? keys.slice(0, 2) : keys;
      const all = several.map((k, i) => of(k, values[i % values.length] as Value));
      const each = keys.map((k) => [of(k, values[0] as Value)]);
      return [[], ...values.map((v) => [of(keys[1] as Value, v)]), ...each, all];
    }
    const values = field.type === 'message' ? this.inner(field, depth) : valuesOf(model, field);
    if (field.shape === 'single') return values;
    const [first, last] = [values[0] as Value, values.at(-1) as Value];
    const several = field.type === 'message' ? [last, first, last] : [last, first, ...values, last];
    return [[], ...values.map((value) => [value]), ...(values.length === 0 ? [] : [several])];
  }

  private inner(field: FieldModel, depth: number): readonly Datum[] {
    const message = innerOf(this.model, { ...field, shape: 'single' }, true) as MessageModel;
    if (depth > 0) return this.variants(message, depth - 1);
    const least = this.least(message, []);
    return least === undefined ? [] : [least];
  }

  private least(message: MessageModel, around: readonly string[]): Datum | undefined {
    if (around.includes(message.name)) return undefined;
    const datum: Datum = new Map();
    for (const field of message.fields) {
      if (!field.required) continue;
      const inner = innerOf(this.model, field, true);
      const value =
        inner === undefined ? valuesOf(this.model, field)[0] : this.least(inner, [...around, message.name]);
      if (value === undefined) return undefined;
      datum.set(field.number, value);
    }
    return datum;
  }
}
