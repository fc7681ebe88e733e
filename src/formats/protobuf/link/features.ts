/** Features that a syntax or an edition sets for a field or an enum; proto2 and proto3 are fixed
 *  sets of the same features. Source: protobuf.dev, "Feature Settings for Editions". */
import type { OptionNode, OptionValue } from '../syntax/ast.ts';
import type { LinkedEnum, LinkedField, LinkedFile, LinkedMessage } from './model.ts';

/** Value that options set for a feature; the innermost statement has priority. */
function featureOf(name: string, levels: ReadonlyArray<readonly OptionNode[]>): string | undefined {
  for (const options of levels) {
    for (const option of options) {
      const [first, second] = option.name;
      if (first?.name !== 'features' || first.extension) continue;
      if (option.name.length === 2 && second?.name === name && !second.extension) return wordOf(option.value);
      if (option.name.length !== 1 || option.value.kind !== 'message') continue;
      const entry = option.value.entries.find(({ key }) => key === name);
      if (entry !== undefined) return wordOf(entry.value);
    }
  }
  return undefined;
}

/** Feature that the options of the field itself set. */
export function statedFeature(field: LinkedField, name: string): string | undefined {
  return featureOf(name, [field.node.options]);
}

const wordOf = (value: OptionValue): string | undefined => (value.kind === 'word' ? value.text : undefined);

function levelsOf(message: LinkedMessage | undefined, file: LinkedFile): Array<readonly OptionNode[]> {
  const levels: Array<readonly OptionNode[]> = [];
  for (let one = message; one !== undefined; one = one.parent) levels.push(one.options);
  return [...levels, file.node.options];
}

function fieldFeature(field: LinkedField, name: string): string | undefined {
  const oneof = field.oneof === undefined ? undefined : field.parent?.oneofs[field.oneof]?.node;
  return featureOf(name, [field.node.options, oneof?.options ?? [], ...levelsOf(field.parent, field.file)]);
}

/** True when an absent field differs from the default value. */
export function hasPresence(field: LinkedField): boolean {
  if (field.label === 'repeated') return false;
  if (field.oneof !== undefined || field.type === 'message' || field.type === 'group') return true;
  if (field.extendeeName !== undefined) return true;
  const { syntax } = field.file.node;
  if (syntax === 'proto3') return false;
  return syntax === 'proto2' || fieldFeature(field, 'field_presence') !== 'IMPLICIT';
}

/** True for a closed enum: readers do not store an unknown number in the field. */
export function isClosed(enumeration: LinkedEnum): boolean {
  const { syntax } = enumeration.file.node;
  if (syntax !== 'editions') return syntax === 'proto2';
  const levels = [enumeration.node.options, ...levelsOf(enumeration.parent, enumeration.file)];
  return featureOf('enum_type', levels) === 'CLOSED';
}

const PACKABLE = /^(u?int|sint|s?fixed|bool|float|double|enum)/;

/** True when a repeated field has packed encoding. */
export function isPacked(field: LinkedField): boolean {
  if (field.label !== 'repeated' || !PACKABLE.test(field.type)) return false;
  const { syntax } = field.file.node;
  if (syntax === 'editions') return fieldFeature(field, 'repeated_field_encoding') !== 'EXPANDED';
  const written = field.node.options.find(({ name }) => name.length === 1 && name[0]?.name === 'packed');
  return written === undefined ? syntax === 'proto3' : wordOf(written.value) === 'true';
}

/** True when a message field is encoded between group tags. */
export function isDelimited(field: LinkedField): boolean {
  if (field.type === 'group') return true;
  return (
    field.type === 'message' &&
    field.file.node.syntax === 'editions' &&
    fieldFeature(field, 'message_encoding') === 'DELIMITED' &&
    !(field.target?.kind === 'message' && field.target.isMapEntry)
  );
}
