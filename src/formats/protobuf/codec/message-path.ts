/** Message indexes of a Protobuf frame: zigzag varints, first a count and then that many indexes; a
 *  count of 0 means [0]. */
import { FRAME } from '../../../core/layout/layouts.gen.ts';
import { formatError } from '../../errors.ts';

/** Reads the message indexes in `bytes[start, end)`. @throws bad_message_index */
export function readMessagePath(bytes: Uint8Array, start: number, end: number): readonly number[] {
  let at = start;
  const next = (): number => {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      if (at >= end) throw formatError('bad_message_index', 'the message indexes are cut short');
      const byte = bytes[at++] as number;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 128) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    throw formatError('bad_message_index', 'a message index is too long');
  };
  const count = next();
  if (count === 0) return [0];
  if (count < 0 || count > FRAME.MESSAGE_DEPTH_MAX) {
    throw formatError(
      'bad_message_index',
      `${count} message indexes; at most ${FRAME.MESSAGE_DEPTH_MAX} are taken`,
    );
  }
  return Array.from({ length: count }, () => {
    const index = next();
    if (index < 0) throw formatError('bad_message_index', `the message index ${index} is negative`);
    return index;
  });
}
