/** Runnable: downloads the broker's jars during set-up. Prints a line on success; on failure prints
 *  the error line and exits with its code. */
import { EXIT, findMillraceError } from '../core/errors.ts';
import { fetchKafka } from './kafka/jars.ts';

try {
  const jars = await fetchKafka();
  process.stderr.write(
    `Apache Kafka ${jars.version}: jars ${jars.fetched ? 'downloaded to' : 'in'} ${jars.folder}\n`,
  );
} catch (thrown) {
  const known = findMillraceError(thrown);
  process.stderr.write(`${known === undefined ? String(thrown) : known.toLine()}\n`);
  process.exitCode = known?.row.exit ?? EXIT.internal;
}
