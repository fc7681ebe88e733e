/** Changes that people make to a Protobuf schema, each with a name. A change first finds, or makes, what it needs in the
 *  old file, so that no class is rare; what it returns changes a copy of the file.
 */
import type { Copy } from './avro-model.ts';
import {
  type EnumType,
  everyField,
  everyMessage,
  type Field,
  type Found,
  isNumber,
  isRepeated,
  KEYS,
  type MessageType,
  type ProtoFileModel,
  type ProtoWorld,
  SCALARS,
  type Syntax,
  scalar,
  type Type,
} from './proto-model.ts';

type Apply = (copy: Copy, to: ProtoFileModel) => void;
type Change = (world: ProtoWorld) => Apply;

const PLAIN = ['int32', 'int64', 'uint32', 'uint64', 'bool'] as const;
/** Types that a specification lets change into one another, and types that only look alike on the wire. */
const FAMILIES: readonly (readonly string[])[] = [
  PLAIN,
  ['sint32', 'sint64'],
  ['fixed32', 'sfixed32'],
  ['fixed64', 'sfixed64'],
];
const WIRES: readonly (readonly string[])[] = [
  [...PLAIN, 'sint32', 'sint64'],
  ['fixed32', 'sfixed32', 'float'],
  ['fixed64', 'sfixed64', 'double'],
];

const isScalar = ({ type }: Field): boolean => type.kind === 'scalar';
const isSingle = (field: Field): boolean => !isRepeated(field);
const others = (list: readonly string[], name: string): string[] => list.filter((one) => one !== name);
const nameOf = (type: Type): string => (type.kind === 'scalar' ? type.name : '');

const anyMessage = (world: ProtoWorld): MessageType => world.pickMessage() as MessageType;

/** A field that fits, or one that is made to. */
function fieldLike(world: ProtoWorld, fits: (found: Found) => boolean, make: (field: Field) => void): Found {
  const found = everyField(world.file).filter(fits);
  if (found.length > 0 && world.chance.maybe(0.8)) {
    const [one, other] = [world.chance.pick(found), world.chance.pick(found)];
    const spot = other.owner.depth > one.owner.depth ? other : one;
    world.picked(spot.owner);
    return spot;
  }
  const owner = anyMessage(world);
  const field = world.field(owner, Number.POSITIVE_INFINITY);
  field.type = world.scalar();
  field.oneof = undefined;
  field.delimited = false;
  field.fallback = undefined;
  make(field);
  return { owner, field };
}

/** A change of one field that is there or is made. */
function ofField(
  fits: (field: Field) => boolean,
  make: (field: Field, world: ProtoWorld) => void,
  change: (field: Field, world: ProtoWorld, owner: MessageType, to: ProtoFileModel) => void,
): Change {
  return (world) => {
    const { owner, field } = fieldLike(
      world,
      (found) => fits(found.field),
      (made) => make(made, world),
    );
    return (copy, to) => {
      const copied = copy.of(field);
      // An earlier change of the same pair may have made something else of it.
      if (fits(copied)) change(copied, world, copy.of(owner), to);
    };
  };
}

/** A scalar that becomes another one of its list. */
const retyped = (lists: readonly (readonly string[])[]): Change =>
  ofField(
    (field) => lists.some((list) => list.includes(nameOf(field.type))),
    (field, world) => {
      field.type = scalar(world.chance.pick(world.chance.pick(lists)));
    },
    (field, world) => {
      const name = nameOf(field.type);
      const list = lists.find((one) => one.includes(name));
      if (list !== undefined) field.type = scalar(world.chance.pick(others(list, name)));
    },
  );

/** A message that no other field uses, below this one. */
function newMessage(world: ProtoWorld, owner: MessageType): MessageType {
  const made = world.bare(owner.depth + 1);
  owner.messages.push(made);
  const count = 1 + world.chance.below(3);
  for (let i = 0; i < count; i++) {
    const field = world.field(made, Number.POSITIVE_INFINITY);
    field.type = world.scalar();
    if (world.chance.maybe(0.7) && field.label === 'required') field.label = 'optional';
  }
  return made;
}

/** A key and a value, as a map's entry has them. */
function newEntry(world: ProtoWorld, owner: MessageType, key: string, value: Type): MessageType {
  const made = world.bare(owner.depth + 1);
  owner.messages.push(made);
  const label = world.chance.pick(['implicit', 'implicit', 'optional'] as const);
  for (const type of [scalar(key), value]) {
    const field = world.field(made, Number.POSITIVE_INFINITY);
    Object.assign(field, { number: made.fields.length, type, oneof: undefined, delimited: false });
    field.label = label;
    field.fallback = undefined;
  }
  made.next = 3;
  return made;
}

const ofEnum =
  (change: (one: EnumType, world: ProtoWorld) => void): Change =>
  (world) => {
    const { field } = fieldLike(
      world,
      (found) => found.field.type.kind === 'enum',
      (made) => {
        made.type = world.placedEnum(anyMessage(world));
      },
    );
    const one = field.type as EnumType;
    return (copy) => change(copy.of(one), world);
  };

const freeNumber = ({ values }: EnumType): number => {
  let number = 1;
  while (values.some(([, held]) => held === number)) number++;
  return number;
};

function removed(owner: MessageType, field: Field, isReserved: boolean): void {
  owner.fields = owner.fields.filter((one) => one !== field);
  if (isReserved) owner.reserved.push(field.number);
}

/** Two and more single fields of one message, outside of oneofs. */
function severalFields(world: ProtoWorld, count: number): { owner: MessageType; fields: Field[] } {
  const free = (message: MessageType): Field[] =>
    message.fields.filter(
      (field) => isSingle(field) && field.oneof === undefined && field.label !== 'required',
    );
  const owner = world.pickMessage((message) => free(message).length >= count) ?? anyMessage(world);
  while (free(owner).length < count) {
    const field = world.field(owner, Number.POSITIVE_INFINITY);
    Object.assign(field, { oneof: undefined, label: 'optional' });
  }
  return { owner, fields: free(owner).slice(0, count) };
}

/** A oneof with at least two fields. */
function someOneof(world: ProtoWorld): { owner: MessageType; fields: Field[]; oneof: string } {
  const { owner, fields } = severalFields(world, 2 + world.chance.below(2));
  const oneof = world.word('o');
  for (const field of fields) field.oneof = oneof;
  return { owner, fields, oneof };
}

const ofMessage =
  (change: (message: MessageType, world: ProtoWorld, to: ProtoFileModel) => void): Change =>
  (world) => {
    const message = anyMessage(world);
    return (copy, to) => change(copy.of(message), world, to);
  };

function takeOut(to: ProtoFileModel, message: MessageType): void {
  for (const holder of [to, ...everyMessage(to)])
    holder.messages = holder.messages.filter((one) => one !== message);
}

const isPlainMessage = (field: Field): boolean => field.type.kind === 'message' && field.label !== 'map';
const toMessage = (field: Field, world: ProtoWorld): void => {
  field.type = newMessage(world, anyMessage(world));
};
const nothing = (): void => undefined;

export const PROTO_CHANGES = {
  unchanged: () => nothing,
  field_added: ofMessage((message, world) => void world.field(message, 3)),
  required_field_added: ofMessage((message, world) => {
    Object.assign(world.field(message, 3), { label: 'required', oneof: undefined });
  }),
  field_removed: ofField(
    () => true,
    nothing,
    (field, _, owner) => removed(owner, field, false),
  ),
  field_removed_and_reserved: ofField(
    () => true,
    nothing,
    (field, _, owner) => removed(owner, field, true),
  ),
  field_renamed: ofField(
    () => true,
    nothing,
    (field, world) => {
      field.name = world.word('n');
    },
  ),
  field_renumbered: ofField(
    () => true,
    nothing,
    (field, world, owner) => {
      field.number = world.number(owner);
    },
  ),
  names_swapped: (world) => {
    const { fields } = severalFields(world, 2);
    return (copy) => {
      const [one, other] = fields.map((field) => copy.of(field)) as [Field, Field];
      [one.name, other.name] = [other.name, one.name];
    };
  },
  fields_reordered: ofMessage((message) => void message.fields.reverse()),
  number_reused: ofField(
    () => true,
    nothing,
    (field, world, owner) => {
      removed(owner, field, false);
      world.field(owner, 3).number = field.number;
    },
  ),
  retyped_within_family: retyped(FAMILIES),
  retyped_within_wire_type: retyped(WIRES),
  retyped_across_wire_types: retyped([SCALARS]),
  text_and_bytes_swapped: retyped([['string', 'bytes']]),
  scalar_to_message: ofField(isScalar, nothing, (field, world, owner) => {
    field.type = newMessage(world, owner);
    if (field.label === 'implicit') field.label = 'optional';
  }),
  message_to_scalar: ofField(isPlainMessage, toMessage, (field, world) => {
    field.type = world.chance.maybe(0.4) ? scalar('bytes') : world.scalar();
  }),
  message_to_other_message: ofField(isPlainMessage, toMessage, (field, world, owner, to) => {
    const held = everyMessage(to).filter((message) => message !== field.type);
    field.type =
      held.length > 0 && world.chance.maybe(0.5) ? world.chance.pick(held) : newMessage(world, owner);
  }),
  message_to_twin: ofField(isPlainMessage, toMessage, (field, world, owner) => {
    const twin = { ...(field.type as MessageType), name: world.word('M'), messages: [], enums: [] };
    owner.messages.push({ ...twin, fields: twin.fields.map((one) => ({ ...one })), extensions: [] });
    field.type = owner.messages.at(-1) as MessageType;
  }),
  known_type_changed: ofField(
    ({ type }) => type.kind === 'known',
    (field, world) => {
      field.type = world.known();
    },
    (field, world) => {
      field.type = world.known();
    },
  ),
  single_to_repeated: ofField(
    isSingle,
    (field) => {
      field.label = 'optional';
    },
    (field) => {
      field.label = 'repeated';
    },
  ),
  repeated_to_single: ofField(
    ({ label }) => label === 'repeated',
    (field, world) => {
      field.label = 'repeated';
      if (world.chance.maybe(0.4)) field.type = newMessage(world, anyMessage(world));
    },
    (field, world) => {
      field.label = world.chance.pick(['implicit', 'optional']);
    },
  ),
  packed_changed: ofField(
    ({ label, type }) => label === 'repeated' && isNumber(type),
    (field) => {
      field.label = 'repeated';
      field.type = scalar('int32');
    },
    (field) => {
      field.packed = field.packed !== true;
    },
  ),
  presence_changed: ofField(
    (field) => field.label === 'implicit' || field.label === 'optional',
    (field, world) => {
      field.label = world.chance.pick(['implicit', 'optional']);
    },
    (field) => {
      field.label = field.label === 'implicit' ? 'optional' : 'implicit';
    },
  ),
  made_required: ofField(
    (field) => isSingle(field) && field.label !== 'required',
    (field) => {
      field.label = 'optional';
    },
    (field) => Object.assign(field, { label: 'required', oneof: undefined }),
  ),
  required_removed: ofField(
    ({ label }) => label === 'required',
    (field) => {
      field.label = 'required';
    },
    (field, world) => {
      field.label = world.chance.pick(['implicit', 'optional']);
    },
  ),
  default_changed: ofField(
    (field) => isSingle(field) && isScalar(field),
    (field) => {
      field.label = 'optional';
    },
    (field) => {
      field.fallback = field.fallback === undefined ? 'set' : undefined;
    },
  ),
  one_field_into_oneof: (world) => {
    const { fields } = severalFields(world, 1);
    const name = world.word('o');
    return (copy) => {
      copy.of(fields[0] as Field).oneof = name;
    };
  },
  several_fields_into_oneof: (world) => {
    const { fields } = severalFields(world, 2 + world.chance.below(2));
    const name = world.word('o');
    return (copy) => {
      for (const field of fields) copy.of(field).oneof = name;
    };
  },
  field_into_existing_oneof: (world) => {
    const { owner, oneof } = someOneof(world);
    const field = world.field(owner, Number.POSITIVE_INFINITY);
    Object.assign(field, {
      oneof: undefined,
      label: world.chance.pick(['implicit', 'optional', 'repeated']),
    });
    return (copy) => {
      const moved = copy.of(field);
      Object.assign(moved, { oneof, label: 'optional' });
    };
  },
  field_added_to_oneof: (world) => {
    const { owner, oneof } = someOneof(world);
    return (copy) => {
      Object.assign(world.field(copy.of(owner), 3), { oneof, label: 'optional' });
    };
  },
  field_out_of_oneof: (world) => {
    const { fields } = someOneof(world);
    return (copy) => {
      Object.assign(copy.of(fields[0] as Field), {
        oneof: undefined,
        label: world.chance.pick(['implicit', 'optional']),
      });
    };
  },
  oneof_dissolved: (world) => {
    const { fields } = someOneof(world);
    return (copy) => {
      for (const field of fields) Object.assign(copy.of(field), { oneof: undefined, label: 'optional' });
    };
  },
  map_key_retyped: ofField(
    ({ label }) => label === 'map',
    (field) => {
      field.label = 'map';
    },
    (field, world) => {
      const family = world.chance.maybe(0.6) ? FAMILIES.find((list) => list.includes(field.key)) : undefined;
      field.key = world.chance.pick(others(family ?? KEYS, field.key));
    },
  ),
  map_value_retyped: ofField(
    ({ label }) => label === 'map',
    (field) => {
      field.label = 'map';
    },
    (field, world) => {
      const name = nameOf(field.type);
      const family = world.chance.maybe(0.6) ? FAMILIES.find((list) => list.includes(name)) : undefined;
      field.type = scalar(world.chance.pick(others(family ?? SCALARS, name)));
    },
  ),
  map_to_entries: ofField(
    ({ label }) => label === 'map',
    (field) => {
      field.label = 'map';
    },
    (field, world, owner) => {
      field.type = newEntry(world, owner, field.key, field.type);
      field.label = world.chance.maybe(0.8) ? 'repeated' : 'optional';
    },
  ),
  entries_to_map: (world) => {
    const { owner, field } = fieldLike(
      world,
      () => false,
      () => undefined,
    );
    const [key, value] = [
      world.chance.pick(KEYS),
      world.chance.maybe(0.7) ? world.scalar() : world.placedEnum(owner),
    ];
    field.type = newEntry(world, owner, key, value);
    field.label = world.chance.maybe(0.8) ? 'repeated' : 'optional';
    return (copy) => {
      Object.assign(copy.of(field), { label: 'map', key, type: copy.of(value), oneof: undefined });
    };
  },
  enum_value_added: ofEnum((one, world) => {
    one.values.push([world.word(`${one.name}_N`), freeNumber(one)]);
  }),
  enum_value_removed: ofEnum((one, world) => {
    if (one.values.length > 1) one.values.splice(world.chance.below(one.values.length), 1);
    else one.values.push([world.word(`${one.name}_N`), freeNumber(one)]);
  }),
  enum_value_renamed: ofEnum((one, world) => {
    world.chance.pick(one.values)[0] = world.word(`${one.name}_N`);
  }),
  enum_value_renumbered: ofEnum((one, world) => {
    world.chance.pick(one.values)[1] = freeNumber(one);
  }),
  enum_closed_changed: ofEnum((one) => {
    one.closed = !one.closed;
  }),
  enum_to_other_enum: ofField(
    ({ type }) => type.kind === 'enum',
    (field, world) => {
      field.type = world.placedEnum(anyMessage(world));
    },
    (field, world, owner) => {
      field.type = world.enumeration();
      owner.enums.push(field.type);
    },
  ),
  enum_to_integer: ofField(
    ({ type }) => type.kind === 'enum',
    (field, world) => {
      field.type = world.placedEnum(anyMessage(world));
    },
    (field, world) => {
      field.type = scalar(world.chance.pick([...PLAIN, ...PLAIN, 'sint32', 'fixed32', 'string']));
    },
  ),
  integer_to_enum: ofField(
    (field) => (PLAIN as readonly string[]).includes(nameOf(field.type)),
    (field, world) => {
      field.type = scalar(world.chance.pick(PLAIN));
    },
    (field, world, owner) => {
      field.type = world.enumeration();
      owner.enums.push(field.type);
    },
  ),
  group_changed: (world) => {
    const owner = anyMessage(world);
    const field = world.field(owner, Number.POSITIVE_INFINITY);
    Object.assign(field, { type: newMessage(world, owner), delimited: world.chance.maybe(0.5) });
    field.label = world.chance.pick(['optional', 'repeated']);
    return (copy) => {
      const changed = copy.of(field);
      changed.delimited = !changed.delimited;
    };
  },
  message_added: ofMessage((message, world) => void newMessage(world, message)),
  message_removed: ofMessage((message, _, to) => {
    if (to.messages.length > 1 || to.messages[0] !== message) takeOut(to, message);
  }),
  message_renamed: ofMessage((message, world) => {
    message.name = world.word('N');
  }),
  message_moved: (world) => {
    const outer = anyMessage(world);
    const inner = newMessage(world, outer);
    const field = world.field(outer, Number.POSITIVE_INFINITY);
    Object.assign(field, { type: inner, delimited: false });
    return (copy, to) => {
      takeOut(to, copy.of(inner));
      to.messages.push(copy.of(inner));
    };
  },
  messages_reordered: (world) => {
    if (world.file.messages.length < 2) world.file.messages.push(world.message(3));
    return (_, to) => void to.messages.reverse();
  },
  package_changed: () => (_, to) => {
    to.package = to.package === '' ? 'moved' : '';
  },
  syntax_changed: (world) => (_, to) => {
    to.syntax = world.chance.pick((['proto2', 'proto3', '2023'] as const).filter((one) => one !== to.syntax));
  },
  extension_added: ofMessage((message, world) => void world.extension(message)),
  extension_removed: (world) => {
    const owner = anyMessage(world);
    const extension = world.extension(owner);
    return (copy) => {
      const to = copy.of(owner);
      to.extensions = to.extensions.filter((one) => one !== copy.of(extension));
    };
  },
  extension_retyped: (world) => {
    const extension = world.extension(anyMessage(world));
    return (copy) => {
      copy.of(extension).type = world.scalar();
    };
  },
  extension_to_field: (world) => {
    const owner = anyMessage(world);
    world.extension(owner);
    return (copy) => {
      const to = copy.of(owner);
      to.fields.push(...to.extensions);
      to.extensions = [];
    };
  },
  recursion_added: ofMessage((message, world) => world.self(message)),
} satisfies Readonly<Record<string, Change>>;

export type ProtoChange = keyof typeof PROTO_CHANGES;
export const PROTO_CHANGE_NAMES = Object.keys(PROTO_CHANGES) as readonly ProtoChange[];

/** Syntaxes in which a change can be said at all; the others can say each. */
const ONLY_IN: Readonly<Partial<Record<ProtoChange, readonly Syntax[]>>> = {
  required_field_added: ['proto2', '2023'],
  made_required: ['proto2', '2023'],
  required_removed: ['proto2', '2023'],
  default_changed: ['proto2', '2023'],
  presence_changed: ['proto3', '2023'],
  enum_closed_changed: ['2023'],
  group_changed: ['proto2', '2023'],
  extension_added: ['proto2', '2023'],
  extension_removed: ['proto2', '2023'],
  extension_retyped: ['proto2', '2023'],
  extension_to_field: ['proto2', '2023'],
};

export const syntaxesOf = (change: ProtoChange): readonly Syntax[] =>
  ONLY_IN[change] ?? ['proto2', 'proto3', 'proto3', '2023'];
