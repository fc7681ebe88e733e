/** Subject name strategies: the subject of a schema from its topic and the full name of its record.
 *  Source: the strategies TopicName, RecordName and TopicRecordName of the existing serializers.
 */
import type { Schema } from '../../formats/schema.ts';
import { registryError } from '../errors.ts';
import { demandText } from './options.ts';

/** Input of a strategy. */
export interface SubjectContext {
  readonly topic: string;
  /** True for the schema of keys. */
  readonly isKey: boolean;
  /** Full name of the record or message; undefined while the schema is unknown, and for schemas
   *  without a name. */
  readonly recordName: string | undefined;
}

export type SubjectStrategy =
  | 'TopicName'
  | 'RecordName'
  | 'TopicRecordName'
  | ((context: SubjectContext) => string);

/** Subject of a schema.
 *  @throws bad_option where the strategy needs a name and there is none, or a function returns no
 *    text */
export function subjectOf(strategy: SubjectStrategy, context: SubjectContext): string {
  const { topic, isKey, recordName } = context;
  if (typeof strategy === 'function') {
    const subject: unknown = strategy(context);
    demandText('the result of the subject function', subject, 'the subject as a text, not as a promise');
    return subject as string;
  }
  if (strategy === 'TopicName') return `${topic}-${isKey ? 'key' : 'value'}`;
  if (recordName === undefined)
    throw registryError('bad_option', `the subject strategy ${strategy} needs the full name of a record`, {
      next: 'give the schema, which must be a record or a message, or use TopicName',
    });
  return strategy === 'RecordName' ? recordName : `${topic}-${recordName}`;
}

/** Full name of the record, enum, fixed or message that a schema defines; undefined without one.
 *  @param message full name of the Protobuf message; default: the first of the file
 */
export function recordNameOf(schema: Schema, message?: string): string | undefined {
  if (schema.format === 'PROTOBUF') return message ?? schema.tree.messages[0]?.name;
  if (schema.format === 'JSON') return undefined;
  const { tree } = schema;
  return tree.kind === 'record' || tree.kind === 'enum' || tree.kind === 'fixed' ? tree.name : undefined;
}
