/** Plants a fault into the compiled checker and searches for a random pair on which verdict and
 *  live decode disagree. Arguments: folder of the build, format, maximum number of pairs, the fault
 *  as JSON (or null). Prints the number of the pair. */
import { register } from 'node:module';
import { pathToFileURL } from 'node:url';

const [dist, format, pairs, fault] = process.argv.slice(2);
const planted = JSON.parse(fault);
if (planted !== null) register('./hooks.mjs', { parentURL: import.meta.url, data: planted });
const from = (path) => import(pathToFileURL(`${dist}/bench/compatibility/${path}.js`).href);
const [make, judge] =
  format === 'AVRO'
    ? [(await from('avro-pairs')).avroPair, (await from('avro-verdicts')).judgeAvroPair]
    : [(await from('proto-pairs')).protoPair, (await from('proto-verdicts')).judgeProtoPair];
for (let n = 0; n < Number(pairs); n++) {
  if (judge(make(n)).disagreement === undefined) continue;
  process.stdout.write(String(n));
  break;
}
