/** Texts of a Protobuf schema other than the stored one. */
import type { ResolvedReference } from '../content.ts';
import type { TextForm } from '../options.ts';
import { descriptorBytes } from './descriptor/to-descriptor.ts';
import { withoutExtensions } from './syntax/plain.ts';
import { printProto } from './syntax/print.ts';
import type { ProtoFile } from './tree.ts';

/** Input of a form. */
export interface ProtoSource {
  readonly text: string;
  readonly tree: ProtoFile;
  readonly references: readonly ResolvedReference[];
}

/** File name in a descriptor, which requires one; a schema in a registry has none. */
const FILE_NAME = 'default';

/** Text of a schema in another form.
 *  @throws invalid_schema where a reference lacks a type that the form requires */
export function protoTextForm({ text, tree }: ProtoSource, form: TextForm): string {
  const { link } = tree;
  if (form === 'serialized') return descriptorBytes(link, link.root, FILE_NAME, 'all').toString('base64');
  if (form === 'ignore_extensions') return printProto(withoutExtensions(link.root.node));
  return text;
}
