// Locks a folder and reports the outcome on one line. Then starts a child process that outlives it,
// and keeps running.
//   node folder-lock.worker.mjs DIST MODE FOLDER
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [dist, mode, folder] = process.argv.slice(2);
const { flockDriver } = await import(pathToFileURL(join(dist, 'src', 'io', 'lock', 'flock.js')));
const outcome = await flockDriver(mode).tryLock(folder);
if ('holder' in outcome) console.log(`refused: ${outcome.holder}`);
else {
  const child = spawn('sleep', ['3600'], { stdio: 'ignore', detached: true });
  child.unref();
  console.log(`locked ${process.pid} ${child.pid}`);
  setInterval(() => {}, 1 << 30);
}
