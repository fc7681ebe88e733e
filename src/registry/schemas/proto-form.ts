/** The texts of a Protobuf schema other than the stored one. */
import { registryError } from '../errors.ts';
import type { ResolvedReference } from './content.ts';
import type { TextForm } from './options.ts';
import type { ProtoFile } from './proto-tree.ts';

/** What a form is made from. */
export interface ProtoSource {
  readonly text: string;
  readonly tree: ProtoFile;
  readonly references: readonly ResolvedReference[];
}

/** @throws invalid_schema where a reference lacks what the form needs */
export function protoTextForm(schema: ProtoSource, form: TextForm): string {
  if (form === 'serialized')
    throw registryError('invalid_schema', 'this Protobuf schema has no serialized form here');
  return schema.text;
}
