/** `millrace bench engine-soak-avro`: the soak with registered Avro events and text keys. */
import { AVRO_TEXT } from './engine/soak-layout.ts';
import { soakBench } from './engine-soak.ts';

export const bench = soakBench({
  ...{ name: 'engine-soak-avro', events: 'Avro events with text keys', layout: AVRO_TEXT },
  ...{ rate: 300_000, durationMs: 3_600_000 },
});
