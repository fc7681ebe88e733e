/** Renders a written Avro value in Avro's JSON encoding: a union names the type of its branch,
 *  bytes are `\u00ff` texts, longs keep their digits. Source: Apache Avro 1.12 specification, "JSON
 *  Encoding". */
import { type AvroNode, avroTypeName } from '../../../formats/avro/syntax/tree.ts';
import type { AvroBranchDatum, AvroDatum, AvroRecordDatum } from '../../../formats/datum.ts';
import { bytesText, floatText } from '../same.ts';

export function avroJson(datum: AvroDatum, type: AvroNode): string {
  switch (type.kind) {
    case 'primitive':
      if (type.type === 'bytes') return bytesText(datum as Uint8Array);
      if (type.type === 'float' || type.type === 'double') return floatText(datum as number);
      return type.type === 'string' ? JSON.stringify(datum) : String(datum);
    case 'fixed':
      return bytesText(datum as Uint8Array);
    case 'enum':
      return JSON.stringify(datum);
    case 'array':
      return `[${(datum as readonly AvroDatum[]).map((item) => avroJson(item, type.items)).join(',')}]`;
    case 'map': {
      const entries = [...(datum as ReadonlyMap<string, AvroDatum>)].map(
        ([key, value]) => `${JSON.stringify(key)}:${avroJson(value, type.values)}`,
      );
      return `{${entries.join(',')}}`;
    }
    case 'union': {
      const { branch, value } = datum as AvroBranchDatum;
      const chosen = type.branches[branch] as AvroNode;
      if (value === null) return 'null';
      return `{${JSON.stringify(avroTypeName(chosen))}:${avroJson(value, chosen)}}`;
    }
    case 'record': {
      const { fields } = datum as AvroRecordDatum;
      const members = type.fields.map(
        (field, i) => `${JSON.stringify(field.name)}:${avroJson(fields[i] as AvroDatum, field.type)}`,
      );
      return `{${members.join(',')}}`;
    }
  }
}
