/** Profiles of decoding and encoding records, without a broker or a database. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startOurs } from '../bench/registry-server.ts';
import { coreError } from '../src/core/errors.ts';
import { packageRoot } from '../src/shell/package.ts';
import type { Sizes } from './profile.ts';
import { type Recorder, save } from './profile-recorder.ts';

/** Profile of a process that needs no servers. */
export type LocalProfile = (sizes: Sizes, recorder: Recorder) => Promise<void>;

const serde =
  (work: 'decode' | 'encode'): LocalProfile =>
  async ({ seconds }, recorder) => {
    const registry = await startOurs('memory');
    const program = join(packageRoot(), 'dist', 'bench', 'serde-child.js');
    const child = fork(program, [work, registry.url], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      execArgv: [],
    });
    const ended = once(child, 'exit');
    try {
      const first = await Promise.race([once(child, 'message'), ended]);
      if (first[0] !== 'warm')
        throw coreError('unreachable', `the process of the profile ended with ${String(first[0])}`, {
          next: 'see its error above',
        });
      const recording = recorder.record(child.pid as number);
      await sleep(seconds * 1000);
      await save(recorder, recording, `serde-${work}`, `bench serde: ${work} records of about 512 B`);
    } finally {
      if (child.connected) child.disconnect();
      await ended;
      await registry.stop();
    }
  };

export const SERDE_PROFILES: Readonly<Record<string, LocalProfile>> = {
  'serde-decode': serde('decode'),
  'serde-encode': serde('encode'),
};
