/** `millrace bench engine-soak-avro`: the soak with registered Avro events and text keys. */
import { AVRO_TEXT } from './engine/soak-layout.ts';
import { soakBench } from './engine-soak.ts';

export const bench = soakBench({
  ...{ name: 'engine-soak-avro', events: 'Avro events with text keys', layout: AVRO_TEXT },
  ...{ rate: 200_000, durationMs: 85 * 60_000 },
});
