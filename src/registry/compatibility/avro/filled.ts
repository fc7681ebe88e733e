/** Checks that a default can fill a field that was not written. The default must fit its type, and
 *  so must the nested defaults of fields that a record's default omits. The filled value must be
 *  finite. */
import {
  defaultBranch,
  FILL_DEPTH_MAX,
  FILL_VALUES_MAX,
  type Misfit,
  misfitOf,
} from '../../../formats/avro/syntax/default.ts';
import type { AvroField, AvroNode } from '../../../formats/avro/syntax/tree.ts';
import type { JsonNode } from '../../../formats/json/text.ts';

export interface Filled {
  readonly misfit: Misfit | undefined;
  /** Number of values visited. */
  readonly steps: number;
}

/** @param json the field's default */
export function filledBy({ type }: AvroField, json: JsonNode): Filled {
  const misfit = misfitOf(json, type);
  if (misfit !== undefined) return { misfit, steps: 1 };
  const filling = new Filling();
  filling.value(json, type, 0);
  const { why, values } = filling;
  return { misfit: why === undefined ? undefined : { why, at: json.at }, steps: values };
}

/** Walks a default with the same limits as the decoder that fills it in. */
class Filling {
  why: string | undefined;
  values = 0;

  /** Visits a JSON value that fits its type. */
  value(json: JsonNode, type: AvroNode, depth: number): void {
    if (this.why !== undefined) return;
    if (depth > FILL_DEPTH_MAX || ++this.values > FILL_VALUES_MAX) {
      this.why = `it has no end, or more than ${FILL_VALUES_MAX} values or ${FILL_DEPTH_MAX} inside each other`;
      return;
    }
    if (type.kind === 'union')
      this.value(json, type.branches[defaultBranch(json, type) ?? 0] as AvroNode, depth + 1);
    else if (type.kind === 'array' && json.kind === 'array')
      for (const item of json.items) this.value(item, type.items, depth + 1);
    else if (type.kind === 'map' && json.kind === 'object')
      for (const { value } of json.members.values()) this.value(value, type.values, depth + 1);
    else if (type.kind === 'record' && json.kind === 'object')
      for (const field of type.fields) {
        const member = json.members.get(field.name);
        if (member !== undefined) this.value(member.value, field.type, depth + 1);
        else this.field(field, depth + 1);
      }
  }

  private field({ name, type, defaultJson }: AvroField, depth: number): void {
    if (this.why !== undefined) return;
    const misfit = defaultJson === undefined ? undefined : misfitOf(defaultJson, type);
    if (defaultJson === undefined || misfit !== undefined)
      this.why = `in it the default of "${name}" does not fit: ${misfit?.why ?? 'there is none'}`;
    else if (
      type.kind !== 'primitive' ||
      defaultJson.kind !== 'string' ||
      !/^(float|double)$/.test(type.type)
    )
      this.value(defaultJson, type, depth);
  }
}
