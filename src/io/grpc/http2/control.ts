/** Frames of the connection itself. Source: RFC 9113, sections 6.5, 6.7 and 6.8. */
import {
  ACK,
  frame,
  GOAWAY,
  SETTINGS,
  SETTINGS_INITIAL_WINDOW_SIZE,
  SETTINGS_MAX_CONCURRENT_STREAMS,
  SETTINGS_MAX_HEADER_LIST_SIZE,
} from './frames.ts';
import { HEADER_BYTES_MAX } from './hpack.ts';

export const SETTING_BYTES = 6;
/** Preface of a server without settings of its own. */
export const NO_SETTINGS = frame(SETTINGS, 0, 0, Buffer.alloc(0));
export const SETTINGS_ACK = frame(SETTINGS, ACK, 0, Buffer.alloc(0));
/** Payloads of the server's PINGs: keepalive, and the check that GOAWAY was read. */
export const ALIVE = Buffer.from('alive???', 'latin1');
export const LEAVING = Buffer.from('leaving?', 'latin1');

/** First SETTINGS of the server. @param window bytes that a client may send on a call before an
 *  update */
export function localSettings(streamsMax: number, window: number): Buffer {
  const settings: ReadonlyArray<readonly [id: number, value: number]> = [
    [SETTINGS_MAX_CONCURRENT_STREAMS, streamsMax],
    [SETTINGS_INITIAL_WINDOW_SIZE, window],
    [SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX],
  ];
  const payload = Buffer.alloc(SETTING_BYTES * settings.length);
  for (const [i, [id, value]] of settings.entries())
    payload.writeUInt32BE(value, payload.writeUInt16BE(id, SETTING_BYTES * i));
  return frame(SETTINGS, 0, 0, payload);
}

/** GOAWAY frame. @param last the highest stream that is handled */
export function goAway(last: number, code: number, why: string): Buffer {
  const text = Buffer.from(why, 'utf8');
  const payload = Buffer.alloc(8 + text.length);
  payload.set(text, payload.writeUInt32BE(code, payload.writeUInt32BE(last, 0)));
  return frame(GOAWAY, 0, 0, payload);
}
