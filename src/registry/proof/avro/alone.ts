/** A reader's schema cut down to what one finding is about: the records that lead there keep the one field that leads
 *  on. So an event shows that finding, and no other that breaks the same records. */

import type { AvroField, AvroNode, AvroRecordNode } from '../../../formats/avro/syntax/tree.ts';
import { type Finding, type Step, stepsOf } from '../../compatibility/finding.ts';

const namesOf = ({ name, aliases }: AvroField): readonly string[] => [name, ...aliases];

/** Keeps the field of that name, and those that may read the same written one. */
function keepField(node: AvroRecordNode, name: string): AvroRecordNode {
  const field = node.fields.find((one) => one.name === name);
  if (field === undefined) return node;
  const names = new Set(namesOf(field));
  return { ...node, fields: node.fields.filter((one) => namesOf(one).some((each) => names.has(each))) };
}

class Cut {
  private readonly steps: readonly Step[];
  private readonly last: string | undefined;
  /** By the number of steps that lead to a type: branches of unions may meet again and again. */
  private readonly made: Array<Map<AvroNode, AvroNode>> = [];

  constructor(steps: readonly Step[], last: string | undefined) {
    this.steps = steps;
    this.last = last;
  }

  of(node: AvroNode, at = 0): AvroNode {
    this.made[at] ??= new Map();
    const known = this.made[at].get(node) ?? this.make(node, at);
    this.made[at].set(node, known);
    return known;
  }

  private make(node: AvroNode, at: number): AvroNode {
    if (node.kind === 'union')
      return { ...node, branches: node.branches.map((branch) => this.of(branch, at)) };
    const { steps, last } = this;
    const step = steps[at];
    if (step === undefined)
      return node.kind === 'record' && last !== undefined ? keepField(node, last) : node;
    const inside = (type: AvroNode): AvroNode => this.of(type, at + 1);
    // The union is the writer's alone.
    if (step.kind === 'branch') return inside(node);
    if (step.kind === 'field' && node.kind === 'record') {
      const { key } = step;
      // Where two read it, the second is another finding.
      const field = node.fields.find((one) => namesOf(one).includes(String(key)));
      return { ...node, fields: field === undefined ? [] : [{ ...field, type: inside(field.type) }] };
    }
    if (step.kind === 'item' && node.kind === 'array') return { ...node, items: inside(node.items) };
    if (step.kind === 'value' && node.kind === 'map') return { ...node, values: inside(node.values) };
    return node;
  }
}

/** Steps of a route that are followed. */
const STEPS_MAX = 120;

/** The narrowest first: the last part of the path names a field where the finding is about one that is not written. */
export function readersAlone(reader: AvroNode, { route, path }: Finding): readonly AvroNode[] {
  const steps = stepsOf(route);
  if (steps.length > STEPS_MAX) return [];
  return [path.slice(path.lastIndexOf('.') + 1), undefined].map((last) => new Cut(steps, last).of(reader));
}
