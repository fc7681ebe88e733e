/** Checks that protoc makes on a file whose names are resolved: numbers and names that are used
 *  twice or reserved, enums and defaults that do not fit, rules of a syntax. The references of a
 *  schema were checked when they were registered. */
import {
  ENUM_NUMBER_MAX,
  type EnumNode,
  FIELD_NUMBER_MAX,
  isSet,
  MAP_KEYS,
  type NumberRange,
  type Position,
  plainOption,
  type ReservedNode,
} from '../syntax/ast.ts';
import { protoFail } from '../syntax/lexer.ts';
import { checkDefault } from './default.ts';
import { hasPresence, isClosed, statedFeature } from './features.ts';
import {
  allEnums,
  allExtensions,
  allMessages,
  jsonNameOf,
  type LinkedEnum,
  type LinkedField,
  type LinkedFile,
  type LinkedMessage,
} from './model.ts';
import type { ProtoLink } from './resolve.ts';

/** Options messages that a proto3 file may extend. */
const OPTIONS =
  /^google\.protobuf\.(File|Message|Field|Enum|EnumValue|Service|Method|Oneof|ExtensionRange)Options$/;

/** Checks a file. @throws invalid_schema at the first violation */
export function checkProtoFile(link: ProtoLink): void {
  const file = link.root;
  // Decoded rows and the codec's namespaces are plain objects, which would lose such a name.
  if (file.node.package?.split('.').includes('__proto__')) {
    protoFail('__proto__ is a name that JavaScript objects cannot hold');
  }
  checkNames(namesOf(file), file.node.package ?? 'the file');
  for (const service of file.services) {
    checkNames(
      service.methods.map(({ name, node }) => ({ name, at: node.at })),
      service.name,
    );
  }
  for (const message of allMessages(file.messages)) {
    if (message.isMapEntry) checkMapEntry(message);
    else checkMessage(message);
  }
  for (const enumeration of allEnums(file)) checkEnum(enumeration);
  checkExtensions(link);
}

interface Named {
  readonly name: string;
  readonly at: Position;
}

/** The values of an enum are in the scope of the enum, not inside it. */
function namesOf(
  scope: Pick<LinkedMessage, 'messages' | 'enums' | 'extensions'> & {
    readonly services?: LinkedFile['services'];
  },
): Named[] {
  const shortNames = [...scope.messages, ...scope.enums, ...(scope.services ?? [])].map(
    ({ shortName, node }) => ({
      name: shortName,
      at: node.at,
    }),
  );
  const values = scope.enums.flatMap(({ node }) => node.values);
  return [...shortNames, ...values, ...scope.extensions];
}

function checkNames(names: readonly Named[], where: string): void {
  const seen = new Set<string>();
  for (const { name, at } of names) {
    if (name === '__proto__') protoFail('__proto__ is a name that JavaScript objects cannot hold', at);
    if (seen.has(name)) protoFail(`${JSON.stringify(name)} is defined twice in ${where}`, at);
    seen.add(name);
  }
}

/** Checks a map entry that is written as a message, as in a descriptor: a key of a permitted type,
 *  and a value. */
function checkMapEntry(message: LinkedMessage): void {
  const [key, value] = message.fields;
  const isKey = key?.name === 'key' && key.number === 1 && MAP_KEYS.has(key.type) && key.label === 'optional';
  const isValue = value?.name === 'value' && value.number === 2 && value.label === 'optional';
  if (!isKey || !isValue || message.fields.length !== 2) {
    protoFail(`${message.name} has the option map_entry and is no entry of a map`, message.node.at);
  }
}

function checkMessage(message: LinkedMessage): void {
  const oneofs = message.oneofs.flatMap(({ node }) => node ?? []);
  checkNames([...namesOf(message), ...message.fields, ...oneofs], message.name);
  for (const { name, fields, at } of oneofs)
    if (fields.length === 0) protoFail(`the oneof ${name} has no field`, at);
  const taken = new Map<number, string>();
  const [anyField] = message.fields;
  if (anyField !== undefined && isSet(message.options, 'message_set_wire_format')) {
    protoFail(`${message.name} has message_set_wire_format, so it has extensions and no fields`, anyField.at);
  }
  const reserved = checkReserved(message.reserved, message.name);
  const extended = new Ranges(message.extensionRanges.flatMap(({ ranges }) => ranges));
  const most = isSet(message.options, 'message_set_wire_format') ? ENUM_NUMBER_MAX - 1 : FIELD_NUMBER_MAX;
  for (const { ranges } of message.extensionRanges) {
    for (const { to, at } of ranges) {
      if (to > most) protoFail(`extension numbers of ${message.name} end at ${most}`, at);
    }
  }
  extended.refuseOverlap(message.name, 'extension ranges');
  reserved.ranges.refuseIntersection(extended, message.name);
  for (const field of message.fields) {
    const { name, number, at } = field;
    const shown = `${message.name}.${name}`;
    checkNumber(shown, number, at);
    const other = taken.get(number);
    if (other !== undefined)
      protoFail(`${message.name} gives number ${number} to ${other} and to ${name}`, at);
    taken.set(number, name);
    if (reserved.ranges.has(number)) protoFail(`${shown} uses number ${number}, which is reserved`, at);
    if (extended.has(number)) protoFail(`${shown} uses number ${number}, which is for extensions`, at);
    if (reserved.names.has(name)) protoFail(`${shown} uses a name that is reserved`, at);
    checkField(field);
  }
  checkJsonNames(message);
}

function checkNumber(shown: string, number: number, at: Position): void {
  if (number < 1 || number > FIELD_NUMBER_MAX)
    protoFail(`${shown} has number ${number}; numbers are 1 to ${FIELD_NUMBER_MAX}`, at);
  if (number >= 19000 && number <= 19999)
    protoFail(`${shown} uses number ${number}, which Protobuf keeps for itself`, at);
}

function checkField(field: LinkedField): void {
  const { node, at, fullName, file } = field;
  const written = plainOption(node.options, 'default');
  if (written !== undefined) {
    if (file.node.syntax === 'proto3')
      protoFail(`${fullName} has a default, which proto3 does not allow`, written.at);
    if (field.label === 'repeated' || field.type === 'message' || field.type === 'group') {
      protoFail(`${fullName} cannot have a default: it is no single value`, written.at);
    }
    if (!hasPresence(field))
      protoFail(`${fullName} cannot have a default: its presence is implicit`, written.at);
    checkDefault(field, written);
  }
  const json = plainOption(node.options, 'json_name');
  if (json !== undefined) {
    if (json.value.kind !== 'string') protoFail(`the json_name of ${fullName} is no string`, json.at);
    if (/^\[.*\]$/.test(field.jsonName)) {
      protoFail(`the json_name of ${fullName} is in brackets, which are for extensions`, json.at);
    }
    if (field.jsonName.includes('\0'))
      protoFail(`the json_name of ${fullName} holds a zero character`, json.at);
    if (field.extendeeName !== undefined)
      protoFail(`the extension ${fullName} cannot have a json_name`, json.at);
  }
  checkTypeOptions(field);
  checkFeatures(field);
  const target = field.target;
  if (target?.kind === 'enum' && field.label !== 'repeated' && !hasPresence(field) && isClosed(target)) {
    protoFail(`${fullName} needs an open enum, and ${target.name} is closed`, at);
  }
  if (target?.kind === 'message' && target.isMapEntry) {
    const value = target.fields[1]?.target;
    if (file.node.syntax === 'proto3' && value?.kind === 'enum' && isClosed(value)) {
      protoFail(`${fullName} needs an open enum, and ${value.name} is closed`, at);
    }
    const first = value?.kind === 'enum' ? value.node.values[0] : undefined;
    if (first !== undefined && first.number !== 0) {
      protoFail(`${fullName} needs an enum whose first value is zero`, at);
    }
  }
}

/** Repeated numbers can have packed encoding. */
const isRun = ({ label, type }: LinkedField): boolean =>
  label === 'repeated' && !/^(string|bytes|message|group)$/.test(type);

function holdsText({ type, target }: LinkedField): boolean {
  if (type === 'string') return true;
  return (
    target?.kind === 'message' && target.isMapEntry && target.fields.some((field) => field.type === 'string')
  );
}

/** Checks options that apply to one kind of field. */
function checkTypeOptions(field: LinkedField): void {
  const { node, type, fullName, file } = field;
  const packed = plainOption(node.options, 'packed');
  if (packed !== undefined && file.node.syntax === 'editions') {
    protoFail(
      `${fullName} cannot have the option packed in an edition; write features.repeated_field_encoding`,
      packed.at,
    );
  }
  if (packed !== undefined && isSet(node.options, 'packed') && !isRun(field)) {
    protoFail(`${fullName} cannot be packed: it is no repeated number`, packed.at);
  }
  const jstype = plainOption(node.options, 'jstype');
  const word = jstype?.value.kind === 'word' ? jstype.value.text : 'JS_NORMAL';
  if (jstype !== undefined && word !== 'JS_NORMAL' && !type.endsWith('64')) {
    protoFail(`${fullName} cannot have a jstype: it is no 64-bit integer`, jstype.at);
  }
  const lazy = plainOption(node.options, 'lazy');
  if (lazy !== undefined && isSet(node.options, 'lazy') && type !== 'message') {
    protoFail(`${fullName} cannot be lazy: it is no message`, lazy.at);
  }
}

/** Checks for features that a field cannot have. */
function checkFeatures(field: LinkedField): void {
  const { label, type, oneof, fullName, at } = field;
  const presence = statedFeature(field, 'field_presence');
  const isMessage = type === 'message' || type === 'group';
  const isMap = field.target?.kind === 'message' && field.target.isMapEntry;
  const refuse = (feature: string, why: string): never =>
    protoFail(`${fullName} cannot state features.${feature}: it is ${why}`, at);
  if (presence !== undefined && label === 'repeated') refuse('field_presence', 'repeated');
  if (presence !== undefined && oneof !== undefined) refuse('field_presence', 'in a oneof');
  if (presence !== undefined && field.extendeeName !== undefined) refuse('field_presence', 'an extension');
  if (presence === 'IMPLICIT' && isMessage) refuse('field_presence = IMPLICIT', 'a message');
  const encoding = statedFeature(field, 'repeated_field_encoding');
  if (encoding !== undefined && label !== 'repeated') refuse('repeated_field_encoding', 'not repeated');
  if (encoding === 'PACKED' && !isRun(field)) refuse('repeated_field_encoding = PACKED', 'no number');
  if (statedFeature(field, 'message_encoding') !== undefined && (!isMessage || isMap)) {
    refuse('message_encoding', 'no message');
  }
  if (statedFeature(field, 'utf8_validation') !== undefined && !holdsText(field)) {
    refuse('utf8_validation', 'no string');
  }
}

/** Checks JSON names: a JSON object has one value for each key. Two explicit names must differ in
 *  any syntax, two derived names only in proto3. */
function checkJsonNames(message: LinkedMessage): void {
  const seen = new Map<string, LinkedField>();
  for (const field of message.fields) {
    const held = seen.get(field.jsonName);
    seen.set(field.jsonName, field);
    if (held === undefined) continue;
    const isWritten = (one: LinkedField): boolean => one.jsonName !== jsonNameOf(one.name);
    if (message.file.node.syntax === 'proto2' && !(isWritten(field) && isWritten(held))) continue;
    if (isSet(message.options, 'deprecated_legacy_json_field_conflicts')) continue;
    protoFail(
      `${held.fullName} and ${field.fullName} have the same JSON name ${JSON.stringify(field.jsonName.slice(0, 64))}`,
      field.at,
    );
  }
}

function checkReserved(
  nodes: readonly ReservedNode[],
  where: string,
): { ranges: Ranges; names: Set<string> } {
  const ranges = new Ranges(nodes.flatMap((node) => node.ranges));
  ranges.refuseOverlap(where, 'reserved ranges');
  const names = new Set<string>();
  for (const node of nodes) {
    for (const name of node.names) {
      if (names.has(name)) protoFail(`${where} reserves the name ${JSON.stringify(name)} twice`, node.at);
      names.add(name);
    }
  }
  return { ranges, names };
}

/** Ranges sorted by their start, for a binary search of a number. */
class Ranges {
  private readonly sorted: readonly NumberRange[];

  constructor(ranges: readonly NumberRange[]) {
    this.sorted = [...ranges].sort((a, b) => a.from - b.from);
  }

  refuseOverlap(where: string, what: string): void {
    this.sorted.forEach((range, index) => {
      const before = this.sorted[index - 1];
      if (before !== undefined && before.to >= range.from) {
        protoFail(
          `${where} has ${what} that overlap: ${before.from} to ${before.to} and ${range.from}`,
          range.at,
        );
      }
    });
  }

  refuseIntersection(other: Ranges, where: string): void {
    for (const range of this.sorted) {
      const met = other.at(range.to);
      if (met !== undefined && met.to >= range.from) {
        protoFail(
          `${where} reserves numbers that are for extensions: ${range.from} to ${range.to}`,
          range.at,
        );
      }
    }
  }

  has(number: number): boolean {
    const range = this.at(number);
    return range !== undefined && number <= range.to;
  }

  /** Last range that begins at or before the number. */
  private at(number: number): NumberRange | undefined {
    let low = 0;
    let high = this.sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.sorted[middle] as NumberRange).from <= number) low = middle + 1;
      else high = middle;
    }
    return this.sorted[low - 1];
  }
}

function checkEnum({ node, name, file, ...rest }: LinkedEnum): void {
  const [first] = node.values;
  if (first === undefined) protoFail(`the enum ${name} has no value`, node.at);
  const closed = isClosed({ node, name, file, ...rest });
  if (!closed && first.number !== 0) {
    protoFail(`the first value of the enum ${name} must be zero`, first.at);
  }
  const alias = isSet(node.options, 'allow_alias');
  const taken = new Map<number, string>();
  const reserved = checkReserved(node.reserved, name);
  for (const value of node.values) {
    const other = taken.get(value.number);
    if (other !== undefined && !alias) {
      protoFail(
        `${name} gives number ${value.number} to ${other} and to ${value.name}; option allow_alias = true; allows that`,
        value.at,
      );
    }
    taken.set(value.number, value.name);
    if (reserved.ranges.has(value.number)) {
      protoFail(`${name}.${value.name} uses number ${value.number}, which is reserved`, value.at);
    }
    if (reserved.names.has(value.name))
      protoFail(`${name}.${value.name} uses a name that is reserved`, value.at);
  }
  checkEnumJson(node, name);
}

/** Checks enum values without the enum's name, which generated code drops: they must still differ.
 */
function checkEnumJson(node: EnumNode, name: string): void {
  const fold = (text: string): string => text.toLowerCase().replaceAll('_', '');
  const prefix = fold(node.name);
  const seen = new Map<string, EnumNode['values'][number]>();
  for (const value of node.values) {
    const whole = fold(value.name);
    const short =
      whole.startsWith(prefix) && whole.length > prefix.length ? whole.slice(prefix.length) : whole;
    const held = seen.get(short);
    if (held !== undefined && held.number !== value.number && held.name !== value.name) {
      if (!isSet(node.options, 'deprecated_legacy_json_field_conflicts')) {
        protoFail(
          `the values ${held.name} and ${value.name} of ${name} differ only in case or prefix`,
          value.at,
        );
      }
    }
    seen.set(short, value);
  }
}

function checkExtensions(link: ProtoLink): void {
  const taken = new Map<string, LinkedField>();
  for (const file of [...link.files.values(), link.root]) {
    for (const extension of allExtensions(file)) {
      const { extendee, number, at, fullName } = extension;
      if (extendee === undefined) continue;
      const key = `${extendee.name} ${number}`;
      const held = taken.get(key);
      taken.set(key, extension);
      if (file !== link.root) continue;
      if (file.node.syntax === 'proto3' && !OPTIONS.test(extendee.name)) {
        protoFail(`proto3 extends options alone, and ${extendee.name} is none`, at);
      }
      if (extension.label === 'required') protoFail(`the extension ${fullName} cannot be required`, at);
      const ranges = new Ranges(extendee.extensionRanges.flatMap((node) => node.ranges));
      if (!ranges.has(number))
        protoFail(`${extendee.name} has no extension range with ${number}, for ${fullName}`, at);
      if (held !== undefined) {
        protoFail(
          `${held.fullName} and ${fullName} extend ${extendee.name} with the same number ${number}`,
          at,
        );
      }
      checkField(extension);
    }
  }
}
