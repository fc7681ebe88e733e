/** Names under which a line may have the member that is its key. */
import { writtenMessage } from '../../formats/protobuf/codec/record-codec.ts';
import type { ProtoMessage } from '../../formats/protobuf/tree.ts';
import type { Schema } from '../../formats/schema.ts';

/** Names of each member of a path. A field of Protobuf has two, its JSON name and its name in the
 *  schema, and a line may use either.
 *  @param name full name of the Protobuf message; default: the first of the file
 *  @throws invalid_schema */
export function keyNames(
  schema: Schema,
  path: readonly string[],
  name?: string,
): ReadonlyArray<readonly string[]> {
  let message: ProtoMessage | undefined =
    schema.format === 'PROTOBUF' ? writtenMessage(schema, name) : undefined;
  return path.map((step) => {
    const field = message?.fields.find((one) => one.name === step || one.jsonName === step);
    message = field?.message;
    return field === undefined ? [step] : [field.jsonName, field.name];
  });
}
