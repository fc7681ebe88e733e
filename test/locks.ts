/** Folder locks for tests that are about something else; test/contract/folder-lock.test.ts is about both drivers. */
import { flockDriver } from '../src/io/lock/flock.ts';

export const locks = flockDriver('native');
