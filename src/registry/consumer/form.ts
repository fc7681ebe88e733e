/** Form of the decoded values of one schema: their JSON text, and their fields by the names that
 *  the text shows. */
import { valueAt } from '../../core/filter/compile.ts';
import type { AvroJsonOptions } from '../../formats/avro/json/print.ts';
import { type JsonPrinter, jsonPrinter } from '../../formats/json-values.ts';
import { isDynamic, isSpecial } from '../../formats/protobuf/json/known.ts';
import { protoJsonPrinter } from '../../formats/protobuf/json/print.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../../formats/protobuf/tree.ts';
import type { ProtoSchema, Schema } from '../../formats/schema.ts';

type Steps = readonly (string | number)[];

export interface ValueForm {
  readonly print: JsonPrinter;
  /** Value of a field as the JSON text shows it; undefined where the value has none. 64-bit
   *  integers are bigint. */
  readonly field: (value: unknown, steps: Steps) => unknown;
}

/** Form of a tombstone. */
export const NULL_FORM: ValueForm = { print: () => 'null', field: () => undefined };

/** Makes the form of a schema's values. The printer is made when the first value is printed.
 *  @param path message indexes; ignored for Avro */
export function valueForm(schema: Schema, path: readonly number[], options: AvroJsonOptions): ValueForm {
  let made: JsonPrinter | undefined;
  const print: JsonPrinter = (value) => {
    made ??= jsonPrinter(schema, path, options);
    return made(value);
  };
  return { print, field: schema.format === 'PROTOBUF' ? protoField(schema, path) : avroField };
}

const avroField = (value: unknown, steps: Steps): unknown => {
  const found = valueAt(value, steps);
  return found instanceof Uint8Array ? Buffer.from(found).toString('latin1') : found;
};

/** Place of a field in decoded values. */
interface Place {
  readonly steps: Steps;
  /** Converts the value at the place to what the JSON text shows. */
  readonly shown: (value: unknown) => unknown;
}

function protoField(schema: ProtoSchema, path: readonly number[]): ValueForm['field'] {
  const key = path.join();
  const root = schema.tree.messages.find((message) => message.path.join() === key);
  const places = new Map<Steps, Place>();
  return (value, steps) => {
    const place = places.get(steps) ?? placeOf(schema, root, steps);
    places.set(steps, place);
    return place.shown(valueAt(value, place.steps));
  };
}

const base64 = (value: unknown): unknown =>
  value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;

/** Finds the place of a field that is named by its JSON name or by its name in the schema. */
function placeOf({ tree }: ProtoSchema, root: ProtoMessage | undefined, steps: Steps): Place {
  const inner: (string | number)[] = [];
  let message = root;
  let field: ProtoField | undefined;
  let isElement = false;
  for (const [at, step] of steps.entries()) {
    if (field !== undefined && !isElement && (field.repeated || field.mapKey !== undefined)) {
      inner.push(step);
      isElement = true;
      continue;
    }
    if (message !== undefined && isDynamic(message))
      return { steps: inner, shown: insideOf(tree, message, steps.slice(at)) };
    field = message?.fields.find(({ name, jsonName }) => name === step || jsonName === step);
    if (field === undefined) return { steps, shown: () => undefined };
    inner.push(field.name);
    isElement = false;
    message = field.message;
  }
  const isWhole = field !== undefined && (isElement || !(field.repeated || field.mapKey !== undefined));
  if (message === undefined || !isWhole || !isSpecial(message)) return { steps: inner, shown: base64 };
  const shown = insideOf(tree, message, []);
  // A 64-bit integer in its wrapper is a text in JSON, but a number for a filter.
  return {
    steps: inner,
    shown: (value) => {
      const wrapped = valueAt(value, ['value']);
      return typeof wrapped === 'bigint' ? wrapped : shown(value);
    },
  };
}

/** Reads the part of a message's JSON form at these steps. */
function insideOf(tree: ProtoFile, message: ProtoMessage, steps: Steps): Place['shown'] {
  let print: JsonPrinter | undefined;
  return (value) => {
    if (value === null || value === undefined) return undefined;
    print ??= protoJsonPrinter(tree, message);
    return valueAt(JSON.parse(print(value)), steps);
  };
}
