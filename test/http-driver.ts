/** HTTP driver for tests of faster drivers: uWebSockets.js has no binary for every Node.js. */

import { wireDriver } from '../src/io/http/http1/server.ts';
import type { HttpDriver } from '../src/io/http/port.ts';
import { loadUws } from '../src/io/http/uws/load.ts';
import { uwsDriver } from '../src/io/http/uws/server.ts';

/** True when uWebSockets.js has a binary for this machine and this Node.js. */
export const uwsLoads = ((): boolean => {
  try {
    loadUws();
    return true;
  } catch {
    return false;
  }
})();

/** uWebSockets.js where it loads, otherwise the driver with Millrace's own HTTP parser. */
export const fastestDriver: HttpDriver = uwsLoads ? uwsDriver : wireDriver;
