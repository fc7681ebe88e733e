/** Settings of `millrace engine savepoint` and of a run that begins with a savepoint. */
import type { SettingsOf, SettingTable } from '../../../core/settings.ts';

export const SAVEPOINT_SETTINGS = {
  savepoint: {
    type: 'string',
    help: 'folder of a savepoint with which a run without a checkpoint begins; it is checked as a whole before -state-dir changes, and a restart resumes from -state-dir. A savepoint of another job is refused, as a checkpoint is (default: the run begins at -start)',
  },
  out: { type: 'string', help: 'folder that engine savepoint makes; it must not exist, or be empty' },
  url: {
    type: 'string',
    secret: true,
    plain: /^https?:\/\/[^@/?#]*\/?$/,
    help: 'address of the running engine whose state engine savepoint saves, such as http://127.0.0.1:8083, with user:password@ where it needs them (default: the engine of -state-dir is stopped)',
  },
  'url-token-file': { type: 'string', needs: ['url'], help: 'file with a bearer token for -url' },
  'url-ca': {
    type: 'string',
    needs: ['url'],
    help: 'PEM file of the authorities of an https -url (default: those of the system)',
  },
} as const satisfies SettingTable;

export type SavepointSettings = SettingsOf<typeof SAVEPOINT_SETTINGS>;

/** Flags of `engine savepoint` alone. */
export const SAVEPOINT_ACTION_FLAGS = ['out', 'url', 'url-token-file', 'url-ca'] as const;
