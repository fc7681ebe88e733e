/** Decoder with code of its own for a pair of schemas: one function for each type, in which a
 *  record is read in a straight line and made by one constructor.
 *
 *  The readers of decoder.ts share their call sites with every schema of the process, so the engine
 *  can neither inline them nor predict the shape of an object; generated code is several times
 *  faster. It reads with the same cursor, so it accepts the same bytes, but it keeps no path for an
 *  error: the caller reads a refused payload again with the other form. */
import { GeneratedSource } from '../../binary/generated-source.ts';
import type { Read, ReaderForm, RecordParts, Slot } from './form.ts';

/** Greatest number of fields, written and returned together, of a record in generated code. */
const RECORD_FIELDS_MAX = 1000;
/** Greatest number of readers and fields in generated code, about 40 bytes of source each. */
const PARTS_MAX = 20_000;

/** Generates the reader of a slot. Undefined: the schemas are too large, or the process was started
 *  without code generation from strings. */
export function generatedReader(root: Slot): Read | undefined {
  const source = new Source(PARTS_MAX);
  return source.compile(`(from) => ${source.callOf(root)}`, 'define', defineProperty);
}

function defineProperty(into: object, key: string, value: unknown): void {
  Object.defineProperty(into, key, { value, writable: true, enumerable: true, configurable: true });
}

class Source extends GeneratedSource<Slot> {
  /** Expression that reads a value of the slot. */
  callOf(slot: Slot): string {
    return slot.form.kind === 'expression' ? slot.form.code : `${this.nameOf(slot)}(from)`;
  }

  protected functionOf(name: string, slot: Slot): string | undefined {
    this.parts++;
    const statements = this.statements(slot);
    return statements === undefined ? undefined : `function ${name}(from) {\n${statements}\n}`;
  }

  private statements({ form, read }: Slot): string | undefined {
    switch (form.kind) {
      case 'enum':
        return this.enumeration(form.symbols);
      case 'union':
        return this.union(form.branches);
      case 'same':
        return `return ${this.callOf(form.slot)};`;
      case 'wrapped':
        return `return ${this.constructors.object([form.key], [this.callOf(form.slot)])};`;
      case 'array':
        return this.array(form);
      case 'map':
        return this.map(form);
      case 'record':
        return this.record(form.parts);
      default:
        return `return ${this.input(read)}(from);`;
    }
  }

  private enumeration(symbols: ReadonlyArray<string | undefined>): string {
    const name = this.input(symbols);
    const read = `${name}[from.index(${symbols.length}, 'symbol')]`;
    if (!symbols.includes(undefined)) return `return ${read};`;
    return `const symbol = ${read};
if (symbol === undefined) throw from.unresolved('');
return symbol;`;
  }

  private union(branches: readonly Slot[]): string {
    this.parts += branches.length;
    const cases = branches.map((slot, index) => `case ${index}: return ${this.callOf(slot)};`);
    return `switch (from.index(${branches.length}, 'branch')) {\n${cases.join('\n')}\n}`;
  }

  private array({ items, isEmpty, keeps }: ReaderForm & { readonly kind: 'array' }): string {
    const item = this.callOf(items);
    return blocks(
      keeps ? `const into = ${this.noItems()}.slice();` : 'const into = undefined;',
      isEmpty,
      keeps ? `into.push(${item});` : `${item};`,
    );
  }

  private map({ values, keeps }: ReaderForm & { readonly kind: 'map' }): string {
    const value = this.callOf(values);
    if (!keeps) return blocks('const into = undefined;', false, `from.skipText(); ${value};`);
    // An assignment to `__proto__` would change the object's prototype.
    return blocks(
      'const into = {};',
      false,
      `const key = from.text();
const value = ${value};
if (key === '__proto__') define(into, key, value);
else into[key] = value;`,
    );
  }

  private record({ written, names, constants, makers, nulls }: RecordParts): string | undefined {
    this.parts += written.length + names.length;
    if (written.length + names.length > RECORD_FIELDS_MAX) return undefined;
    const values = new Map<string, string>();
    const reads = written.map(({ into, slot }, index) => {
      const call = this.callOf(slot);
      if (into === undefined) return `${call};`;
      values.set(into, `value${index}`);
      return `const value${index} = ${call};`;
    });
    for (const [name, make] of makers) values.set(name, `${this.input(make)}()`);
    for (const name of names) if (!values.has(name)) values.set(name, this.input(constants.get(name)));
    const record = this.constructors.object(
      names,
      names.map((name) => values.get(name) as string),
    );
    return `const begun = from.at;
from.enter();
${reads.join('\n')}
from.leaveRecord(begun, ${nulls});
return ${record};`;
  }
}

/** Reads the blocks of an array or a map. */
const blocks = (begin: string, isEmpty: boolean, item: string): string => `${begin}
from.enter();
for (let count = from.count(); count !== 0; count = from.count()) {
const end = count < 0 ? from.blockEnd() : -1;
let left = Math.abs(count);
${isEmpty ? 'from.countEmpty(left);' : ''}
for (; left > 0; left--) {
${item}
}
if (end >= 0) from.endBlock(end);
}
from.leave();
return into;`;
