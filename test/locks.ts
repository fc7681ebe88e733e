/** Folder locks for tests of other subjects. test/contract/folder-lock.test.ts tests both lock
 *  drivers. */
import { flockDriver } from '../src/io/lock/flock.ts';

export const locks = flockDriver('native');
