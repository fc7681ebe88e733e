/** Reduces a reader's schema to the fields that one finding concerns: each record on the finding's
 *  route keeps only the field of the route. So an event shows that finding, and no other finding of
 *  the same records. */

import type { AvroField, AvroNode, AvroRecordNode } from '../../../formats/avro/syntax/tree.ts';
import { type Finding, type Step, stepsOf } from '../../compatibility/finding.ts';

const namesOf = ({ name, aliases }: AvroField): readonly string[] => [name, ...aliases];

/** Keeps the field of that name, and the fields that may read the same written field. */
function keepField(node: AvroRecordNode, name: string): AvroRecordNode {
  const field = node.fields.find((one) => one.name === name);
  if (field === undefined) return node;
  const names = new Set(namesOf(field));
  return { ...node, fields: node.fields.filter((one) => namesOf(one).some((each) => names.has(each))) };
}

class Cut {
  private readonly steps: readonly Step[];
  private readonly last: string | undefined;
  /** Reduced types, by the number of steps that lead to a type: branches of unions may occur
   *  repeatedly. */
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
    // A branch step concerns the writer's union only.
    if (step.kind === 'branch') return inside(node);
    if (step.kind === 'field' && node.kind === 'record') {
      const { key } = step;
      // If two fields read it, the second one is another finding.
      const field = node.fields.find((one) => namesOf(one).includes(String(key)));
      return { ...node, fields: field === undefined ? [] : [{ ...field, type: inside(field.type) }] };
    }
    if (step.kind === 'item' && node.kind === 'array') return { ...node, items: inside(node.items) };
    if (step.kind === 'value' && node.kind === 'map') return { ...node, values: inside(node.values) };
    return node;
  }
}

/** Most steps of a route that are followed. */
const STEPS_MAX = 120;

/** Returns reduced schemas, the narrowest first. The last part of the path names a field only if
 *  the finding is about a field that is not written. */
export function readersAlone(reader: AvroNode, { route, path }: Finding): readonly AvroNode[] {
  const steps = stepsOf(route);
  if (steps.length > STEPS_MAX) return [];
  return [path.slice(path.lastIndexOf('.') + 1), undefined].map((last) => new Cut(steps, last).of(reader));
}
