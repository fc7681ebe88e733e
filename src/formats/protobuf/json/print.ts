/** Prints decoded Protobuf messages as ProtoJSON: keys in lowerCamelCase, 64-bit integers as texts,
 *  bytes as base64, enums by name, and forms of their own for the types of google.protobuf. Fields
 *  without presence are printed with their defaults; absent fields with presence are left out.
 *  A value that ProtoJSON cannot express, such as a Timestamp of the year 20000, is printed by its
 *  fields. Source: protobuf.dev, "ProtoJSON Format". */
import { doubleText, floatText } from '../../json/number.ts';
import { protoDecoder } from '../codec/decoder.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../tree.ts';
import { base64Of } from './base64.ts';
import { ANY, isSpecial, NULL_VALUE, reachable, typeOfUrl, VALUE, WRAPPERS } from './known.ts';
import { durationText, fieldMaskText, type Seconds, timestampText } from './times.ts';

type Print = (value: unknown) => string;
type Fields = Readonly<Record<string, unknown>>;

/** Makes the printer of a message's decoded values (see codec/decoder.ts for their form). */
export function protoJsonPrinter(file: ProtoFile, message: ProtoMessage): Print {
  return new Printers(file).of(message);
}

const quoted: Print = (value) => JSON.stringify(value);

function scalarPrinter(type: string): Print {
  if (type.endsWith('64')) return (value) => `"${value}"`;
  if (type === 'double') return (value) => doubleText(value as number);
  if (type === 'float') return (value) => floatText(value as number);
  if (type === 'bytes') return (value) => `"${base64Of(value as Uint8Array)}"`;
  return type === 'string' ? quoted : String;
}

class Printers {
  private readonly file: ProtoFile;
  private readonly printers = new Map<ProtoMessage, Print>();
  private types: ReadonlyMap<string, ProtoMessage> | undefined;

  constructor(file: ProtoFile) {
    this.file = file;
  }

  of(message: ProtoMessage): Print {
    const known = this.printers.get(message);
    if (known !== undefined) return known;
    // A recursive type finds this function while its own printer is made.
    let made: Print | undefined;
    this.printers.set(message, (value) => (made as Print)(value));
    made = this.special(message) ?? this.fields(message);
    this.printers.set(message, made);
    return made;
  }

  private fields(message: ProtoMessage): Print {
    const fields = message.fields.map((field) => {
      return { name: field.name, key: `${quoted(field.jsonName)}:`, print: this.field(field) };
    });
    return (value) => {
      let text = '';
      for (const { name, key, print } of fields) {
        const given = (value as Fields)[name];
        if (given === null || given === undefined) continue;
        text += `${text === '' ? '' : ','}${key}${print(given)}`;
      }
      return `{${text}}`;
    };
  }

  private field(field: ProtoField): Print {
    const one = this.value(field);
    if (field.mapKey !== undefined)
      return (value) => {
        const entries = Object.entries(value as Fields).map(([key, item]) => `${quoted(key)}:${one(item)}`);
        return `{${entries.join(',')}}`;
      };
    if (field.repeated) return (value) => `[${(value as readonly unknown[]).map(one).join(',')}]`;
    return one;
  }

  private value({ type, message, enumeration }: ProtoField): Print {
    if (message !== undefined) return message.unknown ? quoted : (value) => this.of(message)(value);
    if (enumeration === undefined) return scalarPrinter(type);
    return enumeration.name === NULL_VALUE ? () => 'null' : quoted;
  }

  /** Printer of a type of google.protobuf; undefined for any other message. */
  private special(message: ProtoMessage): Print | undefined {
    const { name } = message;
    if (name === ANY) return (value) => this.any(value as { type_url: string; value: Uint8Array });
    if (!isSpecial(message)) return undefined;
    const plain = this.fields(message);
    const orPlain = (form: (value: Fields) => string | undefined): Print => {
      return (value) => {
        const text = form(value as Fields);
        return text === undefined ? plain(value) : quoted(text);
      };
    };
    if (WRAPPERS.has(name)) {
      const print = this.value(message.fields[0] as ProtoField);
      return (value) => print((value as Fields)['value']);
    }
    switch (name) {
      case 'google.protobuf.Timestamp':
        return orPlain((value) => timestampText(value as unknown as Seconds));
      case 'google.protobuf.Duration':
        return orPlain((value) => durationText(value as unknown as Seconds));
      case 'google.protobuf.FieldMask':
        return orPlain((value) => fieldMaskText(value['paths'] as readonly string[]));
      case VALUE:
        return (value) => this.dynamic(message, value as Fields);
      default: {
        // Struct and ListValue have one field.
        const [field] = message.fields as [ProtoField];
        const print = this.field(field);
        return (value) => print((value as Fields)[field.name]);
      }
    }
  }

  /** Prints a google.protobuf.Value. A value without a kind is null. */
  private dynamic(message: ProtoMessage, value: Fields): string {
    const set = message.fields.find(({ name }) => value[name] !== null && value[name] !== undefined);
    return set === undefined ? 'null' : this.field(set)(value[set.name]);
  }

  /** Prints an Any with the fields of its message; with its bytes where the schema lacks the type,
   *  or the bytes are no message of it. */
  private any({ type_url: url, value }: { readonly type_url: string; readonly value: Uint8Array }): string {
    if (url === '' && value.length === 0) return '{}';
    const head = `{"@type":${quoted(url)}`;
    this.types ??= reachable(this.file);
    const message = this.types.get(typeOfUrl(url));
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    if (message !== undefined) {
      try {
        const text = this.of(message)(protoDecoder(message)(bytes, 0, bytes.length));
        if (isSpecial(message) || message.name === ANY) return `${head},"value":${text}}`;
        return text === '{}' ? `${head}}` : `${head},${text.slice(1)}`;
      } catch {
        // The bytes are printed.
      }
    }
    return `${head},"value":"${base64Of(value)}"}`;
  }
}
