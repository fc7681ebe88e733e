/** Decoder of the fixed layout: one call of the kernel that decodes events of 256 bytes. */
import type { Kernels } from '../../../addon/surface.ts';
import type { InputDefinition } from './definition.ts';
import type { EventDecoder, EventInput } from './port.ts';

/** Definition of a job without an input of its own, as earlier versions saved it. */
export const BINARY256: InputDefinition = { format: 'binary256', inferred: ['format'] };

export function binary256Decoder(kernels: Pick<Kernels, 'decodeEvents'>): EventDecoder {
  return {
    decode(records, into) {
      kernels.decodeEvents(records, into);
    },
    describe: () => undefined,
  };
}

/** Input of a topic whose records have the fixed layout of 256 bytes.
 *  @example
 *  const input = binary256Input(kernels);
 */
export function binary256Input(kernels: Pick<Kernels, 'decodeEvents'>): EventInput {
  return {
    ...binary256Decoder(kernels),
    definition: BINARY256,
    resume() {},
    isReady: true,
    takeWaitedMs: () => 0,
  };
}
