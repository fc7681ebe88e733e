// Appends to a registry file that is compacted all the time, until it is killed. Reports the
// records that it found, then each append that settled.
// node registry-file.worker.mjs DIST FOLDER KEYS
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [dist, dir, keys] = process.argv.slice(2);
const load = (...path) => import(pathToFileURL(join(dist, 'src', ...path)));
const { FileLog } = await load('registry', 'store', 'file', 'log.js');
const { openDisk } = await load('io', 'disk', 'node.js');
const { flockDriver } = await load('io', 'lock', 'flock.js');
const { silentLogger } = await load('core', 'log.js');

const report = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const log = {
  ...silentLogger,
  info: (fields, text) => report({ text, bytes: fields.bytes }),
  warn: (fields, text) => report({ warning: text, error: fields.error }),
};
const found = {};
const file = new FileLog({ dir, openDisk, locks: flockDriver('reference'), log, compactBytesMin: 16 << 10 });
await file.open({
  apply: (records) => {
    for (const { key, value } of records) found[Buffer.from(key)] = Number.parseInt(Buffer.from(value), 10);
  },
  summary: () => [],
});
report({ found });
const value = Buffer.alloc(2_000, ' ');
for (let i = Math.max(0, ...Object.values(found)) + 1; ; i++) {
  value.write(`${i}`.padEnd(12));
  await file.append([{ key: Buffer.from(`k${i % Number(keys)}`), value }]);
  report({ settled: i });
}
