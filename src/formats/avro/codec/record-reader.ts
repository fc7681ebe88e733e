/** Reader of a record: a loop over its fields, which adds the field to the path of an error. */
import { Unreadable } from './cursor.ts';
import type { Read, RecordParts, WrittenField } from './form.ts';

function define(into: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(into, key, { value, writable: true, enumerable: true, configurable: true });
}

export function recordReader({ written, names, constants, makers, nulls }: RecordParts): Read {
  // The blank record has every field from the start, in the reader's order, so that assignments by
  // name are safe.
  const blank: Record<string, unknown> = {};
  for (const name of names) define(blank, name, constants.get(name));
  return (from) => {
    const begun = from.at;
    from.enter();
    const value: Record<string, unknown> = { ...blank };
    let i = 0;
    try {
      for (; i < written.length; i++) {
        const { into, slot } = written[i] as WrittenField;
        if (into === undefined) slot.read(from);
        else value[into] = slot.read(from);
      }
    } catch (thrown) {
      throw Unreadable.inside(`.${written[i]?.name}`, thrown);
    }
    for (const [into, make] of makers) value[into] = make();
    from.leaveRecord(begun, nulls);
    return value;
  };
}
