/** Settings of `millrace engine verify`. */
import type { SettingTable } from '../../../core/settings.ts';

export const VERIFY_SETTINGS = {
  'verify-from': {
    type: 'string',
    help: 'least window_start that engine verify compares: ms since the epoch, or ISO 8601 with a zone (default: all)',
  },
  'verify-to': {
    type: 'string',
    help: 'greatest window_end that engine verify compares, in the same form (default: the last final window)',
  },
  'verify-window': {
    type: 'string',
    help: 'window that engine verify compares, of a run with several (default: all, one after the other)',
  },
  'verify-windows-max': {
    type: 'int',
    default: '1000000',
    min: 1,
    max: 100_000_000,
    help: 'windows, session events, identifiers and values of percentiles that engine verify keeps in memory, about 400 bytes each; a range with more is refused',
  },
} as const satisfies SettingTable;

/** Flags of `engine verify` alone. */
export const VERIFY_FLAGS = Object.keys(VERIFY_SETTINGS);
