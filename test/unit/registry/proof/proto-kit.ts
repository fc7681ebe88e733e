/** Projection of Protobuf events for tests, without their encoding. */
import { expect } from 'vitest';
import type { ProtoDatum, ProtoFieldDatum } from '../../../../src/formats/datum.ts';
import { type ProtoMessage, parseProto } from '../../../../src/formats/protobuf/tree.ts';
import { projectProto } from '../../../../src/registry/proof/protobuf/projection.ts';
import { sameValue } from '../../../../src/registry/proof/same.ts';
import type { Projection } from '../../../../src/registry/proof/trial.ts';

export const PROTO3 = 'syntax = "proto3"; enum Color { RED = 0; GREEN = 1; BLUE = -3; }';
export const PROTO2 = 'syntax = "proto2"; enum Color { RED = 0; GREEN = 1; }';

/** Projects a message M of one file to the message M of another. */
export function project(
  writer: string,
  reader: string,
  fields: Readonly<Record<number, ProtoFieldDatum>>,
): Projection {
  const written = parseProto(writer).tree.byName.get('M') as ProtoMessage;
  return projectProto(datum(fields), written, parseProto(reader).tree);
}

export const datum = (fields: Readonly<Record<number, ProtoFieldDatum>>): ProtoDatum =>
  new Map(Object.entries(fields).map(([number, value]) => [Number(number), value]));

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
export const hex = (text: string): Buffer => Buffer.from(text, 'hex');

export function expectValue(projection: Projection, value: unknown, lossless: boolean): void {
  if (projection.kind === 'none') expect.fail(projection.why);
  expect({ value: projection.value, same: sameValue(projection.value, value) }).toMatchObject({ same: true });
  expect({ value, lossless: projection.lossless }).toEqual({ value, lossless });
}

export const both = (a: string, b: string, fields: Readonly<Record<number, ProtoFieldDatum>>): Projection =>
  project(`${PROTO3} ${a}`, `${PROTO3} ${b}`, fields);
export const both2 = (a: string, b: string, fields: Readonly<Record<number, ProtoFieldDatum>>): Projection =>
  project(`${PROTO2} ${a}`, `${PROTO2} ${b}`, fields);
