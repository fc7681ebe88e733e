/** Finds the two schemas of a rollout and registers them. */
import { existsSync, readFileSync } from 'node:fs';
import { coreError, findMillraceError } from '../../core/errors.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import { type OrderFormat, orderSchema, orderShapeOf } from '../../gen/order-versions.ts';
import type { Level } from '../../registry/compatibility/modes.ts';
import type { RegistryClient } from '../../serde/client.ts';

/** Schema text of a version of Order, or of a file. @throws bad_value, bad_file, invalid_schema */
export function schemaOf(flag: string, text: string, format: OrderFormat): Schema {
  const kind = format === 'avro' ? 'AVRO' : 'PROTOBUF';
  if (!existsSync(text)) return parseSchema(kind, orderSchema(shapeOf(flag, text), format));
  try {
    return parseSchema(kind, readFileSync(text, 'utf8'));
  } catch (cause) {
    const known = findMillraceError(cause);
    const why = known?.message ?? (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw coreError('bad_file', `${flag}=${text} is not a schema file: ${why}`, {
      next: `give a file with an ${format === 'avro' ? 'Avro' : 'Protobuf'} schema, or set -format`,
      cause,
    });
  }
}

function shapeOf(flag: string, text: string): ReturnType<typeof orderShapeOf> {
  try {
    return orderShapeOf(text);
  } catch (cause) {
    throw coreError('bad_value', `${flag}=${text} is neither a version of Order nor a file`, {
      next: findMillraceError(cause)?.next ?? 'give 1 to 6',
      cause,
    });
  }
}

/** Place of a registered schema. */
export interface Registered {
  readonly subject: string;
  readonly version: number;
  readonly text: string;
}

export interface RegisteredPair {
  readonly old: Registered;
  readonly new: Registered;
  /** The mode accepted the new schema. */
  readonly accepted: boolean;
}

async function isRegistered(client: RegistryClient, subject: string, schema: Schema): Promise<boolean> {
  try {
    await client.register(subject, schema.format, schema.source);
    return true;
  } catch (thrown) {
    if (findMillraceError(thrown)?.code === 'incompatible') return false;
    throw thrown;
  }
}

async function placeOf(client: RegistryClient, subject: string, schema: Schema): Promise<Registered> {
  const version = await client.find(subject, schema.format, schema.source, []);
  if (version === undefined)
    throw coreError('internal', `${subject} does not hold the schema that was registered`);
  return { subject, version, text: schema.source };
}

/** Registers both schemas under the mode. A refused new schema goes to a subject set to NONE, and
 *  one that NONE refuses too to a subject without the old one. */
export async function registerPair(
  client: RegistryClient,
  name: string,
  mode: Level,
  from: Schema,
  to: Schema,
): Promise<RegisteredPair> {
  const own = `${name}-value`;
  await client.setLevel(own, mode);
  await isRegistered(client, own, from);
  if (await isRegistered(client, own, to))
    return { old: await placeOf(client, own, from), new: await placeOf(client, own, to), accepted: true };
  const none = `${name}-none-value`;
  await client.setLevel(none, 'NONE');
  await isRegistered(client, none, from);
  const old = await placeOf(client, none, from);
  if (await isRegistered(client, none, to))
    return { old, new: await placeOf(client, none, to), accepted: false };
  const apart = `${name}-apart-value`;
  await client.setLevel(apart, 'NONE');
  await isRegistered(client, apart, to);
  return { old, new: await placeOf(client, apart, to), accepted: false };
}
