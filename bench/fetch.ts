/** `millrace bench fetch`: reading a topic into window tables, by each client of the broker.
 *
 *  Two bare C++ loops read the topic and update a hash table: one by librdkafka's batch calls, one
 *  by a minimal fetch client that walks record batches in place and checks nothing. Part `client`
 *  compares them with both drivers, whose batches are decoded, admitted and accumulated by the
 *  engine's kernels in this process; part `engine` with the whole engine over both drivers. All
 *  sides must have the same results. The bare fetch client speaks plaintext alone. */
import { openParts, type Part } from './effects/parts.ts';
import type { World } from './effects/world.ts';
import { Readers } from './engine/readers.ts';
import type { Bench } from './harness.ts';

function parts(): Readonly<Record<string, Part>> {
  let shared: Readers | undefined;
  const readers = (world: World): Readers => {
    shared ??= new Readers(world);
    return shared;
  };
  return {
    client: (world) => readers(world).client(),
    engine: (world) => readers(world).engine(),
  };
}

export const bench: Bench = {
  name: 'fetch',
  summary:
    'Reading a topic into window tables: the direct client and librdkafka beside bare C++ loops, and the engine over both.',
  run: (context) => openParts(context, parts()),
};
