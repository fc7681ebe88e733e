/** Where a comparison stands: how an event gets there along the writer's schema, what that is called for a person, and
 *  the places in both texts that hold it. Trails share what leads to them, so one more step costs one object.
 */
import type { AvroField, AvroNode, AvroRecordNode } from '../../../formats/avro/syntax/tree.ts';
import type { Place, Route, Step } from '../finding.ts';
import { isNamed } from './names.ts';

export interface Trail {
  readonly outer: Trail | undefined;
  readonly label: string;
  readonly route: Route | undefined;
  /** Undefined at the root. */
  readonly reader: Place | undefined;
  readonly writer: Place | undefined;
}

export const rootTrail = (label: string): Trail => ({
  outer: undefined,
  label,
  route: undefined,
  reader: undefined,
  writer: undefined,
});

/** Into a part that stands in its text where it is used, or in a field. */
export function inward(
  outer: Trail,
  label: string,
  step: Step,
  places: Pick<Trail, 'reader' | 'writer'> = outer,
): Trail {
  return { outer, label, route: { outer: outer.route, step }, reader: places.reader, writer: places.writer };
}

/** `Order.items[].qty`; a branch of a union, as in `Order.paid(Card).number`, where something inside it is meant. */
export function pathOf(trail: Trail): string {
  const labels: string[] = [];
  const inner = trail.label.startsWith('(') ? trail.outer : trail;
  for (let one: Trail | undefined = inner; one !== undefined; one = one.outer) labels.push(one.label);
  return labels.reverse().join('');
}

const placed = (at: number, from: string | undefined): { readonly at: number; readonly from?: string } =>
  from === undefined ? { at } : { at, from };

/** Where a type stands, or is defined. */
export const placeOf = (node: AvroNode): Place => placed(node.at, node.from);

export const fieldPlace = (record: AvroRecordNode, field: AvroField, at = field.at): Place =>
  placed(at, record.from);

/** Where a type is used: what names one that is defined before it, or in another text, is its holder. */
export function usePlace(node: AvroNode, holder: Place | undefined): Place {
  if (holder === undefined || !('at' in holder) || !isNamed(node)) return placeOf(node);
  return node.from === holder.from && node.at >= holder.at ? placeOf(node) : holder;
}
