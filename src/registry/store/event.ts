/** What happened to the registry, one event a line of its log. The state is nothing but these, applied in order. */

import { isLevel, type Level } from '../compatibility/modes.ts';
import { registryError } from '../errors.ts';
import { isSchemaFormat, type SchemaFormat } from '../schemas/format.ts';

export interface SchemaRegistered {
  readonly kind: 'schema';
  readonly subject: string;
  readonly version: number;
  readonly id: number;
  readonly format: SchemaFormat;
  /** Canonical text. */
  readonly text: string;
}

export interface LevelSet {
  readonly kind: 'level';
  /** Null: the level of every subject that has none of its own. */
  readonly subject: string | null;
  readonly level: Level;
}

export type RegistryEvent = SchemaRegistered | LevelSet;

/** Ids are unsigned 32-bit numbers on the wire; version numbers are positive 31-bit ones. */
export const SCHEMA_ID_MAX = 0xffff_ffff;
export const VERSION_MAX = 0x7fff_ffff;

const isCount = (value: unknown, max: number): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max;

export function encodeEvent(event: RegistryEvent): Uint8Array {
  return Buffer.from(JSON.stringify(event), 'utf8');
}

/** @throws store_corrupt for bytes that no version of this code has written */
export function decodeEvent(bytes: Uint8Array): RegistryEvent {
  let value: Record<string, unknown>;
  try {
    value = JSON.parse(Buffer.from(bytes).toString('utf8')) as Record<string, unknown>;
  } catch (cause) {
    throw registryError('store_corrupt', 'a record of the registry log is not JSON', { cause });
  }
  const { kind, subject, version, id, format, text, level } = value;
  if (
    kind === 'schema' &&
    typeof subject === 'string' &&
    isCount(version, VERSION_MAX) &&
    isCount(id, SCHEMA_ID_MAX) &&
    typeof format === 'string' &&
    isSchemaFormat(format) &&
    typeof text === 'string'
  ) {
    return { kind, subject, version, id, format, text };
  }
  if (kind === 'level' && (subject === null || typeof subject === 'string') && isLevel(level)) {
    return { kind, subject, level };
  }
  throw registryError(
    'store_corrupt',
    `a record of the registry log is of no known kind: ${JSON.stringify(kind)}`,
    {
      next: 'a newer release may have written it; run that one',
    },
  );
}
