/** Finds the two schemas of a rollout and registers them. */
import { existsSync, readFileSync } from 'node:fs';
import { coreError, findMillraceError } from '../../core/errors.ts';
import { parseSchema, type Schema } from '../../formats/schema.ts';
import { type OrderFormat, orderSchema, orderShapeOf } from '../../gen/order-versions.ts';
import { isLevel, type Level } from '../../registry/compatibility/modes.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';

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
export interface RolloutSchema {
  readonly subject: string;
  readonly version: number;
  readonly id: number;
  readonly text: string;
}

/** Place of the new schema. mode: the subject of the old one, under the mode. none: that of the old
 *  one, set to NONE. apart: a subject of its own, because NONE refuses it too. */
export type RolloutPlace = 'mode' | 'none' | 'apart';

export interface RegisteredPair {
  readonly old: RolloutSchema;
  readonly new: RolloutSchema;
  readonly place: RolloutPlace;
}

/** Loads two registered versions. @throws bad_value for another text than a version;
 *  subject_not_found, version_not_found */
export async function versionPair(
  client: RegistryClient,
  subject: string,
  from: string,
  to: string,
): Promise<{ readonly from: Schema; readonly to: Schema; readonly pair: RegisteredPair }> {
  const load = async (flag: string, text: string): Promise<SubjectVersion> => {
    if (/^(\d+|latest)$/.test(text)) return client.version(subject, text);
    throw coreError('bad_value', `${flag}=${text} is not a version of ${subject}`, {
      next: 'give a number or latest, or leave -subject out',
    });
  };
  const [old, next] = [await load('-from-version', from), await load('-to-version', to)];
  const placed = ({ version, id, schema }: SubjectVersion): RolloutSchema => {
    return { subject, version, id, text: schema.source };
  };
  return {
    from: old.schema,
    to: next.schema,
    pair: { old: placed(old), new: placed(next), place: 'mode' },
  };
}

/** Compatibility level of a subject; undefined if the registry reports none of the known ones. */
export async function levelOf(client: RegistryClient, subject: string): Promise<Level | undefined> {
  const { compatibilityLevel: level } = await client.config(subject);
  return isLevel(level) ? level : undefined;
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

async function placeOf(client: RegistryClient, subject: string, schema: Schema): Promise<RolloutSchema> {
  const found = await client.findVersion(subject, schema.format, schema.source, []);
  if (found === undefined)
    throw coreError('internal', `${subject} does not hold the schema that was registered`);
  return { subject, ...found, text: schema.source };
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
    return { old: await placeOf(client, own, from), new: await placeOf(client, own, to), place: 'mode' };
  const none = `${name}-none-value`;
  await client.setLevel(none, 'NONE');
  await isRegistered(client, none, from);
  const old = await placeOf(client, none, from);
  if (await isRegistered(client, none, to))
    return { old, new: await placeOf(client, none, to), place: 'none' };
  const apart = `${name}-apart-value`;
  await client.setLevel(apart, 'NONE');
  await isRegistered(client, apart, to);
  return { old, new: await placeOf(client, apart, to), place: 'apart' };
}
