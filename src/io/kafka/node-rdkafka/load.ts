/** Loads node-rdkafka, whose binary matches one ABI of Node.js. */
import { coreError } from '../../../core/errors.ts';

type Library = typeof import('node-rdkafka');

/** Loads the package on first use.
 *  @throws addon_missing when it was not compiled, or compiled for another Node.js */
export async function loadNodeRdkafka(
  load: () => Promise<{ readonly default: Library }> = () => import('node-rdkafka'),
): Promise<Library> {
  try {
    return (await load()).default;
  } catch (cause) {
    const why = (cause as Error).message.split('\n')[0];
    throw coreError('addon_missing', `node-rdkafka does not load in Node.js ${process.version}: ${why}`, {
      next: 'run `npm rebuild node-rdkafka` with this Node.js; in a clone run bin/bootstrap',
      cause,
    });
  }
}
