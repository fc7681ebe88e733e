/** Locations of changes in a Protobuf schema: finds or creates the fields, messages and enums that
 *  a change needs, so that no class of changes is rare. */
import type { Copy } from './avro-model.ts';
import {
  type EnumType,
  everyField,
  everyMessage,
  type Field,
  type Found,
  isRepeated,
  type MessageType,
  type ProtoFileModel,
  type ProtoGenerator,
  scalar,
  type Type,
} from './proto-model.ts';

export type Apply = (copy: Copy, to: ProtoFileModel) => void;
export type Change = (generator: ProtoGenerator) => Apply;

export const PLAIN = ['int32', 'int64', 'uint32', 'uint64', 'bool'] as const;
/** Groups of types that the specification declares compatible with each other. */
export const FAMILIES: readonly (readonly string[])[] = [
  PLAIN,
  ['sint32', 'sint64'],
  ['fixed32', 'sfixed32'],
  ['fixed64', 'sfixed64'],
];
/** Groups of types that have the same wire type. */
export const WIRES: readonly (readonly string[])[] = [
  [...PLAIN, 'sint32', 'sint64'],
  ['fixed32', 'sfixed32', 'float'],
  ['fixed64', 'sfixed64', 'double'],
];

export const isScalar = ({ type }: Field): boolean => type.kind === 'scalar';
export const isSingle = (field: Field): boolean => !isRepeated(field);
export const others = (list: readonly string[], name: string): string[] => list.filter((one) => one !== name);
export const nameOf = (type: Type): string => (type.kind === 'scalar' ? type.name : '');

export const anyMessage = (generator: ProtoGenerator): MessageType => generator.pickMessage() as MessageType;

/** Finds a field that fits, or creates one. */
export function fieldLike(
  generator: ProtoGenerator,
  fits: (found: Found) => boolean,
  make: (field: Field) => void,
): Found {
  const found = everyField(generator.file).filter(fits);
  if (found.length > 0 && generator.chance.maybe(0.8)) {
    const [one, other] = [generator.chance.pick(found), generator.chance.pick(found)];
    const spot = other.owner.depth > one.owner.depth ? other : one;
    generator.picked(spot.owner);
    return spot;
  }
  const owner = anyMessage(generator);
  const field = generator.field(owner, Number.POSITIVE_INFINITY);
  field.type = generator.scalar();
  field.oneof = undefined;
  field.delimited = false;
  field.fallback = undefined;
  make(field);
  return { owner, field };
}

/** Change of one field, which is found or created. */
export function ofField(
  fits: (field: Field) => boolean,
  make: (field: Field, generator: ProtoGenerator) => void,
  change: (field: Field, generator: ProtoGenerator, owner: MessageType, to: ProtoFileModel) => void,
): Change {
  return (generator) => {
    const { owner, field } = fieldLike(
      generator,
      (found) => fits(found.field),
      (made) => make(made, generator),
    );
    return (copy, to) => {
      const copied = copy.of(field);
      // An earlier change of the same pair may have altered the field.
      if (fits(copied)) change(copied, generator, copy.of(owner), to);
    };
  };
}

/** Changes a scalar type to another type of its list. */
export const retyped = (lists: readonly (readonly string[])[]): Change =>
  ofField(
    (field) => lists.some((list) => list.includes(nameOf(field.type))),
    (field, generator) => {
      field.type = scalar(generator.chance.pick(generator.chance.pick(lists)));
    },
    (field, generator) => {
      const name = nameOf(field.type);
      const list = lists.find((one) => one.includes(name));
      if (list !== undefined) field.type = scalar(generator.chance.pick(others(list, name)));
    },
  );

/** Creates a message below `owner` that no other field uses. */
export function newMessage(generator: ProtoGenerator, owner: MessageType): MessageType {
  const made = generator.bare(owner.depth + 1);
  owner.messages.push(made);
  const count = 1 + generator.chance.below(3);
  for (let i = 0; i < count; i++) {
    const field = generator.field(made, Number.POSITIVE_INFINITY);
    field.type = generator.scalar();
    if (generator.chance.maybe(0.7) && field.label === 'required') field.label = 'optional';
  }
  return made;
}

/** Creates a message with a key and a value, like the entry of a map. */
export function newEntry(
  generator: ProtoGenerator,
  owner: MessageType,
  key: string,
  value: Type,
): MessageType {
  const made = generator.bare(owner.depth + 1);
  owner.messages.push(made);
  const label = generator.chance.pick(['implicit', 'implicit', 'optional'] as const);
  for (const type of [scalar(key), value]) {
    const field = generator.field(made, Number.POSITIVE_INFINITY);
    Object.assign(field, { number: made.fields.length, type, oneof: undefined, delimited: false });
    field.label = label;
    field.fallback = undefined;
  }
  made.next = 3;
  return made;
}

export const ofEnum =
  (change: (one: EnumType, generator: ProtoGenerator) => void): Change =>
  (generator) => {
    const { field } = fieldLike(
      generator,
      (found) => found.field.type.kind === 'enum',
      (made) => {
        made.type = generator.placedEnum(anyMessage(generator));
      },
    );
    const one = field.type as EnumType;
    return (copy) => change(copy.of(one), generator);
  };

export const freeNumber = ({ values }: EnumType): number => {
  let number = 1;
  while (values.some(([, held]) => held === number)) number++;
  return number;
};

export function removed(owner: MessageType, field: Field, isReserved: boolean): void {
  owner.fields = owner.fields.filter((one) => one !== field);
  if (isReserved) owner.reserved.push(field.number);
}

/** At least `count` singular fields of one message outside of oneofs. */
export function severalFields(
  generator: ProtoGenerator,
  count: number,
): { owner: MessageType; fields: Field[] } {
  const free = (message: MessageType): Field[] =>
    message.fields.filter(
      (field) => isSingle(field) && field.oneof === undefined && field.label !== 'required',
    );
  const owner = generator.pickMessage((message) => free(message).length >= count) ?? anyMessage(generator);
  while (free(owner).length < count) {
    const field = generator.field(owner, Number.POSITIVE_INFINITY);
    Object.assign(field, { oneof: undefined, label: 'optional' });
  }
  return { owner, fields: free(owner).slice(0, count) };
}

/** Creates a oneof with at least two fields. */
export function someOneof(generator: ProtoGenerator): { owner: MessageType; fields: Field[]; oneof: string } {
  const { owner, fields } = severalFields(generator, 2 + generator.chance.below(2));
  const oneof = generator.word('o');
  for (const field of fields) field.oneof = oneof;
  return { owner, fields, oneof };
}

export const ofMessage =
  (change: (message: MessageType, generator: ProtoGenerator, to: ProtoFileModel) => void): Change =>
  (generator) => {
    const message = anyMessage(generator);
    return (copy, to) => change(copy.of(message), generator, to);
  };

export function removeMessage(to: ProtoFileModel, message: MessageType): void {
  for (const holder of [to, ...everyMessage(to)])
    holder.messages = holder.messages.filter((one) => one !== message);
}

export const isPlainMessage = (field: Field): boolean =>
  field.type.kind === 'message' && field.label !== 'map';
export const toMessage = (field: Field, generator: ProtoGenerator): void => {
  field.type = newMessage(generator, anyMessage(generator));
};
export const nothing = (): void => undefined;
