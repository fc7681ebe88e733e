/** Properties of a user's Kafka clients as Flink takes them in the options of a table. */
import { readFileSync } from 'node:fs';
import { coreError } from '../../../core/errors.ts';
import { HIDDEN } from '../../../core/secrets.ts';
import type { Properties } from '../../../core/settings.ts';
import { javaProperties } from '../../../io/kafka/config/java.ts';

/** Package in which the jar of Flink's Kafka connector has the classes of the Kafka client. */
const SHADED = 'org.apache.flink.kafka.shaded.';

type Texts = Readonly<Record<string, string>>;

/** Translates properties by the names of librdkafka or of the Java client.
 *  @throws bad_file for a PEM file that cannot be read, and errors of `javaProperties` */
export const flinkProperties = (properties: Properties): Texts =>
  javaProperties(properties, { textOf: fileText, packagePrefix: SHADED });

/** True if the value of a translated property must not be shown. */
export const isSecretProperty = (name: string): boolean => /jaas|key|password/.test(name);

/** The same properties with their secret values hidden. */
export const shownProperties = (properties: Texts): Texts =>
  Object.fromEntries(
    Object.entries(properties).map(([name, value]) => [name, isSecretProperty(name) ? HIDDEN : value]),
  );

function fileText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw coreError(
      'bad_file',
      `${path} of -broker-property cannot be read (${(cause as NodeJS.ErrnoException).code})`,
      {
        next: 'give the path of a PEM file',
        cause,
      },
    );
  }
}
