/** Named changes of a Protobuf schema. Each returns a function that changes a copy of the file. */
import {
  everyMessage,
  type Field,
  isNumber,
  KEYS,
  type MessageType,
  SCALARS,
  type Syntax,
  scalar,
} from './proto-model.ts';
import {
  anyMessage,
  type Change,
  FAMILIES,
  fieldLike,
  freeNumber,
  isPlainMessage,
  isScalar,
  isSingle,
  nameOf,
  newEntry,
  newMessage,
  nothing,
  ofEnum,
  ofField,
  ofMessage,
  others,
  PLAIN,
  removed,
  removeMessage,
  retyped,
  severalFields,
  someOneof,
  toMessage,
  WIRES,
} from './proto-spots.ts';

export const PROTO_CHANGES = {
  unchanged: () => nothing,
  field_added: ofMessage((message, generator) => void generator.field(message, 3)),
  required_field_added: ofMessage((message, generator) => {
    Object.assign(generator.field(message, 3), { label: 'required', oneof: undefined });
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
    (field, generator) => {
      field.name = generator.word('n');
    },
  ),
  field_renumbered: ofField(
    () => true,
    nothing,
    (field, generator, owner) => {
      field.number = generator.number(owner);
    },
  ),
  names_swapped: (generator) => {
    const { fields } = severalFields(generator, 2);
    return (copy) => {
      const [one, other] = fields.map((field) => copy.of(field)) as [Field, Field];
      [one.name, other.name] = [other.name, one.name];
    };
  },
  // In these two changes an earlier change may have removed the field and reused its number.
  field_moved_and_replaced: ofField(
    () => true,
    nothing,
    (field, generator, owner) => {
      if (!owner.fields.includes(field)) return;
      const { number } = field;
      field.number = generator.number(owner);
      generator.field(owner, 3).number = number;
    },
  ),
  fields_reordered: ofMessage((message) => void message.fields.reverse()),
  number_reused: ofField(
    () => true,
    nothing,
    (field, generator, owner) => {
      if (!owner.fields.includes(field)) return;
      removed(owner, field, false);
      generator.field(owner, 3).number = field.number;
    },
  ),
  retyped_within_family: retyped(FAMILIES),
  retyped_within_wire_type: retyped(WIRES),
  retyped_across_wire_types: retyped([SCALARS]),
  text_and_bytes_swapped: retyped([['string', 'bytes']]),
  scalar_to_message: ofField(isScalar, nothing, (field, generator, owner) => {
    field.type = newMessage(generator, owner);
    if (field.label === 'implicit') field.label = 'optional';
  }),
  message_to_scalar: ofField(isPlainMessage, toMessage, (field, generator) => {
    field.type = generator.chance.maybe(0.4) ? scalar('bytes') : generator.scalar();
  }),
  message_to_other_message: ofField(isPlainMessage, toMessage, (field, generator, owner, to) => {
    const held = everyMessage(to).filter((message) => message !== field.type);
    field.type =
      held.length > 0 && generator.chance.maybe(0.5)
        ? generator.chance.pick(held)
        : newMessage(generator, owner);
  }),
  message_to_copy: ofField(isPlainMessage, toMessage, (field, generator, owner) => {
    const duplicate = { ...(field.type as MessageType), name: generator.word('M'), messages: [], enums: [] };
    owner.messages.push({
      ...duplicate,
      fields: duplicate.fields.map((one) => ({ ...one })),
      extensions: [],
    });
    field.type = owner.messages.at(-1) as MessageType;
  }),
  known_type_changed: ofField(
    ({ type }) => type.kind === 'known',
    (field, generator) => {
      field.type = generator.known();
    },
    (field, generator) => {
      field.type = generator.known();
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
    (field, generator) => {
      field.label = 'repeated';
      if (generator.chance.maybe(0.4)) field.type = newMessage(generator, anyMessage(generator));
    },
    (field, generator) => {
      field.label = generator.chance.pick(['implicit', 'optional']);
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
    (field, generator) => {
      field.label = generator.chance.pick(['implicit', 'optional']);
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
    (field, generator) => {
      field.label = generator.chance.pick(['implicit', 'optional']);
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
  one_field_into_oneof: (generator) => {
    const { fields } = severalFields(generator, 1);
    const name = generator.word('o');
    return (copy) => {
      copy.of(fields[0] as Field).oneof = name;
    };
  },
  several_fields_into_oneof: (generator) => {
    const { fields } = severalFields(generator, 2 + generator.chance.below(2));
    const name = generator.word('o');
    return (copy) => {
      for (const field of fields) copy.of(field).oneof = name;
    };
  },
  field_into_existing_oneof: (generator) => {
    const { owner, oneof } = someOneof(generator);
    const field = generator.field(owner, Number.POSITIVE_INFINITY);
    Object.assign(field, {
      oneof: undefined,
      label: generator.chance.pick(['implicit', 'optional', 'repeated']),
    });
    return (copy) => {
      const moved = copy.of(field);
      Object.assign(moved, { oneof, label: 'optional' });
    };
  },
  field_added_to_oneof: (generator) => {
    const { owner, oneof } = someOneof(generator);
    return (copy) => {
      Object.assign(generator.field(copy.of(owner), 3), { oneof, label: 'optional' });
    };
  },
  field_out_of_oneof: (generator) => {
    const { fields } = someOneof(generator);
    return (copy) => {
      Object.assign(copy.of(fields[0] as Field), {
        oneof: undefined,
        label: generator.chance.pick(['implicit', 'optional']),
      });
    };
  },
  oneof_dissolved: (generator) => {
    const { fields } = someOneof(generator);
    return (copy) => {
      for (const field of fields) Object.assign(copy.of(field), { oneof: undefined, label: 'optional' });
    };
  },
  map_key_retyped: ofField(
    ({ label }) => label === 'map',
    (field) => {
      field.label = 'map';
    },
    (field, generator) => {
      const family = generator.chance.maybe(0.6)
        ? FAMILIES.find((list) => list.includes(field.key))
        : undefined;
      field.key = generator.chance.pick(others(family ?? KEYS, field.key));
    },
  ),
  map_value_retyped: ofField(
    ({ label }) => label === 'map',
    (field) => {
      field.label = 'map';
    },
    (field, generator) => {
      const name = nameOf(field.type);
      const family = generator.chance.maybe(0.6) ? FAMILIES.find((list) => list.includes(name)) : undefined;
      field.type = scalar(generator.chance.pick(others(family ?? SCALARS, name)));
    },
  ),
  map_to_entries: ofField(
    ({ label }) => label === 'map',
    (field) => {
      field.label = 'map';
    },
    (field, generator, owner) => {
      field.type = newEntry(generator, owner, field.key, field.type);
      field.label = generator.chance.maybe(0.8) ? 'repeated' : 'optional';
    },
  ),
  entries_to_map: (generator) => {
    const { owner, field } = fieldLike(
      generator,
      () => false,
      () => undefined,
    );
    const [key, value] = [
      generator.chance.pick(KEYS),
      generator.chance.maybe(0.7) ? generator.scalar() : generator.placedEnum(owner),
    ];
    field.type = newEntry(generator, owner, key, value);
    field.label = generator.chance.maybe(0.8) ? 'repeated' : 'optional';
    return (copy) => {
      Object.assign(copy.of(field), { label: 'map', key, type: copy.of(value), oneof: undefined });
    };
  },
  enum_value_added: ofEnum((one, generator) => {
    one.values.push([generator.word(`${one.name}_N`), freeNumber(one)]);
  }),
  enum_value_removed: ofEnum((one, generator) => {
    if (one.values.length > 1) one.values.splice(generator.chance.below(one.values.length), 1);
    else one.values.push([generator.word(`${one.name}_N`), freeNumber(one)]);
  }),
  enum_value_renamed: ofEnum((one, generator) => {
    generator.chance.pick(one.values)[0] = generator.word(`${one.name}_N`);
  }),
  enum_value_renumbered: ofEnum((one, generator) => {
    generator.chance.pick(one.values)[1] = freeNumber(one);
  }),
  enum_closed_changed: ofEnum((one) => {
    one.closed = !one.closed;
  }),
  enum_to_other_enum: ofField(
    ({ type }) => type.kind === 'enum',
    (field, generator) => {
      field.type = generator.placedEnum(anyMessage(generator));
    },
    (field, generator, owner) => {
      field.type = generator.enumeration();
      owner.enums.push(field.type);
    },
  ),
  enum_to_integer: ofField(
    ({ type }) => type.kind === 'enum',
    (field, generator) => {
      field.type = generator.placedEnum(anyMessage(generator));
    },
    (field, generator) => {
      field.type = scalar(generator.chance.pick([...PLAIN, ...PLAIN, 'sint32', 'fixed32', 'string']));
    },
  ),
  integer_to_enum: ofField(
    (field) => (PLAIN as readonly string[]).includes(nameOf(field.type)),
    (field, generator) => {
      field.type = scalar(generator.chance.pick(PLAIN));
    },
    (field, generator, owner) => {
      field.type = generator.enumeration();
      owner.enums.push(field.type);
    },
  ),
  group_changed: (generator) => {
    const owner = anyMessage(generator);
    const field = generator.field(owner, Number.POSITIVE_INFINITY);
    Object.assign(field, { type: newMessage(generator, owner), delimited: generator.chance.maybe(0.5) });
    field.label = generator.chance.pick(['optional', 'repeated']);
    return (copy) => {
      const changed = copy.of(field);
      changed.delimited = !changed.delimited;
    };
  },
  message_added: ofMessage((message, generator) => void newMessage(generator, message)),
  message_removed: ofMessage((message, _, to) => {
    if (to.messages.length > 1 || to.messages[0] !== message) removeMessage(to, message);
  }),
  message_renamed: ofMessage((message, generator) => {
    message.name = generator.word('N');
  }),
  message_moved: (generator) => {
    const outer = anyMessage(generator);
    const inner = newMessage(generator, outer);
    const field = generator.field(outer, Number.POSITIVE_INFINITY);
    Object.assign(field, { type: inner, delimited: false });
    return (copy, to) => {
      removeMessage(to, copy.of(inner));
      to.messages.push(copy.of(inner));
    };
  },
  messages_reordered: (generator) => {
    if (generator.file.messages.length < 2) generator.file.messages.push(generator.message(3));
    return (_, to) => void to.messages.reverse();
  },
  package_changed: () => (_, to) => {
    to.package = to.package === '' ? 'moved' : '';
  },
  syntax_changed: (generator) => (_, to) => {
    to.syntax = generator.chance.pick(
      (['proto2', 'proto3', '2023'] as const).filter((one) => one !== to.syntax),
    );
  },
  extension_added: ofMessage((message, generator) => void generator.extension(message)),
  extension_removed: (generator) => {
    const owner = anyMessage(generator);
    const extension = generator.extension(owner);
    return (copy) => {
      const to = copy.of(owner);
      to.extensions = to.extensions.filter((one) => one !== copy.of(extension));
    };
  },
  extension_retyped: (generator) => {
    const extension = generator.extension(anyMessage(generator));
    return (copy) => {
      copy.of(extension).type = generator.scalar();
    };
  },
  extension_to_field: (generator) => {
    const owner = anyMessage(generator);
    generator.extension(owner);
    return (copy) => {
      const to = copy.of(owner);
      to.fields.push(...to.extensions);
      to.extensions = [];
    };
  },
  recursion_added: ofMessage((message, generator) => generator.self(message)),
} satisfies Readonly<Record<string, Change>>;

export type ProtoChange = keyof typeof PROTO_CHANGES;
export const PROTO_CHANGE_NAMES = Object.keys(PROTO_CHANGES) as readonly ProtoChange[];

/** Syntaxes that can express a change; a change that is not listed works in all. */
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
