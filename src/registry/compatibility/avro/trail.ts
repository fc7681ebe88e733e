/** Position of a comparison of two Avro schemas: the route of an event along the writer schema, the
 *  path for messages, and the places in both texts. Trails are linked lists that share their outer
 *  parts, so one more step costs one object. */
import type { AvroField, AvroNode, AvroRecordNode } from '../../../formats/avro/syntax/tree.ts';
import type { EventRoute, SchemaPlace, Step } from '../finding.ts';
import { isNamed } from './names.ts';

export interface Trail {
  readonly outer: Trail | undefined;
  readonly label: string;
  readonly route: EventRoute | undefined;
  /** Undefined at the root. */
  readonly reader: SchemaPlace | undefined;
  readonly writer: SchemaPlace | undefined;
}

export const rootTrail = (label: string): Trail => ({
  outer: undefined,
  label,
  route: undefined,
  reader: undefined,
  writer: undefined,
});

/** Extends a trail by one step. */
export function inward(
  outer: Trail,
  label: string,
  step: Step,
  places: Pick<Trail, 'reader' | 'writer'> = outer,
): Trail {
  return { outer, label, route: { outer: outer.route, step }, reader: places.reader, writer: places.writer };
}

/** Renders a path: `Order.items[].qty`. A branch of a union appears only before an inner part:
 *  `Order.paid(Card).number`. */
export function pathOf(trail: Trail): string {
  const labels: string[] = [];
  const inner = trail.label.startsWith('(') ? trail.outer : trail;
  for (let one: Trail | undefined = inner; one !== undefined; one = one.outer) labels.push(one.label);
  return labels.reverse().join('');
}

const placed = (at: number, from: string | undefined): { readonly at: number; readonly from?: string } =>
  from === undefined ? { at } : { at, from };

/** Place where a type is written or defined. */
export const placeOf = (node: AvroNode): SchemaPlace => placed(node.at, node.from);

export const fieldPlace = (record: AvroRecordNode, field: AvroField, at = field.at): SchemaPlace =>
  placed(at, record.from);

/** Place where a type is used: its holder, if the type is defined earlier or in another text, else
 *  the definition. */
export function usePlace(node: AvroNode, holder: SchemaPlace | undefined): SchemaPlace {
  if (holder === undefined || !('at' in holder) || !isNamed(node)) return placeOf(node);
  return node.from === holder.from && node.at >= holder.at ? placeOf(node) : holder;
}
