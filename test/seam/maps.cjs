// Preloaded into a process: when the process ends, prints on stderr the addons and client libraries
// that it had mapped.
const { readFileSync, writeSync } = require('node:fs');
process.on('exit', () => {
  const mapped = readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .map((line) => line.slice(line.indexOf('/')))
    .filter((path) => /millrace\.node|librdkafka[^/]*\.so|node-librdkafka\.node/.test(path));
  writeSync(2, `mapped=${JSON.stringify([...new Set(mapped)])}\n`);
});
