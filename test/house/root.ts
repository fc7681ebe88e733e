import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Folder of package.json. */
export const projectRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
