/** Writes a union's value: the index of the branch that the value belongs to, and the value.
 *
 *  A plain value belongs to the branch of its JavaScript type. A bigint is a long. Among several
 *  number types a number goes to the narrowest branch that holds it exactly, in the order int,
 *  float, double, so it is read back unchanged. Where none of these holds it, a long accepts a safe
 *  integer, and a float rounds. A wrapped number, `{"int":5}`, names its branch. */

import type { Sink } from '../../sink.ts';
import { ValueRefusal } from '../../value-refusal.ts';
import { type AvroNode, type AvroUnionNode, avroTypeName } from '../syntax/tree.ts';
import { branchKey, isWrapped } from './branch.ts';

interface Slot {
  readonly put: (sink: Sink, value: unknown) => void;
}
type Put = Slot['put'];

/** Type in a message. */
export function wordOf(node: AvroNode): string {
  if (node.kind === 'union') return `one of ${node.branches.map(wordOf).join(', ')}`;
  return node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed'
    ? `${node.kind} ${node.name}`
    : avroTypeName(node);
}

export function unionPut(union: AvroUnionNode, slots: readonly Slot[]): Put {
  return isWrapped(union) ? wrappedPut(union, slots) : plainPut(union, slots);
}

function wrappedPut(union: AvroUnionNode, slots: readonly Slot[]): Put {
  const indexes = new Map<string, number>();
  let nullIndex = -1;
  union.branches.forEach((branch, index) => {
    const key = branchKey(branch);
    if (key === 'null') nullIndex = index;
    if (!indexes.has(key)) indexes.set(key, index);
  });
  const [named = ''] = [...indexes.keys()].filter((key) => key !== 'null');
  const example = `{${JSON.stringify(named)}: …}`;
  return (sink, value) => {
    if (value === null && nullIndex >= 0) {
      sink.zigzag(nullIndex);
      return;
    }
    const key = onlyKey(value);
    const index = key === undefined ? undefined : indexes.get(key);
    if (key === undefined || index === undefined)
      throw ValueRefusal.of(value, `${wordOf(union)}, by the name of its branch, such as ${example}`);
    putWrapped(sink, slots, index, key, value);
  };
}

function putWrapped(sink: Sink, slots: readonly Slot[], index: number, key: string, value: unknown): void {
  sink.zigzag(index);
  try {
    slots[index]?.put(sink, (value as Readonly<Record<string, unknown>>)[key]);
  } catch (thrown) {
    throw ValueRefusal.inProperty(key, thrown);
  }
}

/** The key of an object that has one key only. */
function onlyKey(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const [key, more] = Object.keys(value);
  return more === undefined ? key : undefined;
}

/** Index of the branch of each JavaScript type; -1 for none. */
class PlainBranches {
  private null = -1;
  private boolean = -1;
  private string = -1;
  private buffer = -1;
  private array = -1;
  private object = -1;
  private int = -1;
  private long = -1;
  private float = -1;
  private double = -1;
  /** True when a number has a choice. */
  readonly hasNumbers: boolean;
  /** Number branches by their key. */
  readonly numbers: ReadonlyMap<string, number>;

  constructor(union: AvroUnionNode) {
    const numbers = new Map<string, number>();
    union.branches.forEach((branch, index) => {
      const type = avroTypeName(branch);
      if (branch.kind === 'array') this.array = index;
      else if (branch.kind === 'record' || branch.kind === 'map') this.object = index;
      else if (branch.kind === 'enum' || type === 'string') this.string = index;
      else if (branch.kind === 'fixed' || type === 'bytes') this.buffer = index;
      else if (type === 'null') this.null = index;
      else if (type === 'boolean') this.boolean = index;
      else numbers.set(type, index);
    });
    this.int = numbers.get('int') ?? -1;
    this.long = numbers.get('long') ?? -1;
    this.float = numbers.get('float') ?? -1;
    this.double = numbers.get('double') ?? -1;
    this.numbers = numbers;
    this.hasNumbers = numbers.size > 1;
  }

  /** Branch of a number. */
  ofNumber(value: number): number {
    if (!this.hasNumbers) return Math.max(this.int, this.long, this.float, this.double);
    if (this.int >= 0 && value === (value | 0) && !Object.is(value, -0)) return this.int;
    if (this.float >= 0 && Object.is(Math.fround(value), value)) return this.float;
    if (this.double >= 0) return this.double;
    if (this.long >= 0 && Number.isSafeInteger(value)) return this.long;
    return this.float;
  }

  ofObject(value: object): number {
    if (Array.isArray(value)) return this.array;
    return ArrayBuffer.isView(value) ? this.buffer : this.object;
  }

  of(value: unknown): number {
    switch (typeof value) {
      case 'string':
        return this.string;
      case 'number':
        return this.ofNumber(value);
      case 'bigint':
        return this.long;
      case 'boolean':
        return this.boolean;
      case 'object':
        return value === null ? this.null : this.ofObject(value);
      default:
        return -1;
    }
  }
}

function plainPut(union: AvroUnionNode, slots: readonly Slot[]): Put {
  const branches = new PlainBranches(union);
  return (sink, value) => {
    if (branches.hasNumbers && typeof value === 'object') {
      const key = onlyKey(value);
      const wrapped = key === undefined ? undefined : branches.numbers.get(key);
      if (key !== undefined && wrapped !== undefined) {
        putWrapped(sink, slots, wrapped, key, value);
        return;
      }
    }
    const index = branches.of(value);
    if (index < 0) throw ValueRefusal.of(value, wordOf(union));
    sink.zigzag(index);
    (slots[index] as Slot).put(sink, value);
  };
}
