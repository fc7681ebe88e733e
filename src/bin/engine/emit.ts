/** `-emit` of `millrace engine`: final results alone, or early results of open windows too. */
import { coreError } from '../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';

export const EMIT_SETTINGS = {
  emit: {
    type: 'string',
    choices: ['final', 'updates'],
    default: 'final',
    help: 'final: a window is written when it fires. updates: windows that are open and have changed are also written every -emit-interval, with final = false, and replaced by their final result; for tumbling and sliding windows, and every sink but parquet and kafka with -sink-format=binary',
  },
  'emit-interval': {
    type: 'duration',
    default: '10s',
    min: 100,
    max: 86_400_000,
    needs: ['emit=updates'],
    help: 'time between two rounds of early results; a round also begins when 131,072 keys of windows have changed',
  },
} as const satisfies SettingTable;

type Settings = SettingsOf<typeof EMIT_SETTINGS> & {
  readonly window: readonly string[];
  readonly bounded: boolean;
  readonly sink: string;
  readonly 'sink-format': string;
};

/** True if early results are written. @throws usage where they cannot be */
export function hasUpdates(settings: Settings): boolean {
  if (settings.emit !== 'updates') return false;
  const obstacle = obstacleOf(settings);
  if (obstacle === undefined) return true;
  const [why, next] = obstacle;
  throw coreError('usage', `-emit=updates ${why}`, { next, details: { setting: 'emit' } });
}

function obstacleOf({ window, bounded, sink, ...settings }: Settings): readonly [string, string] | undefined {
  const without = 'leave -emit out';
  if (window.includes('session'))
    return [
      'has no meaning for -window=session: the bounds of a session, by which its result is replaced, are known when it ends',
      `${without}, give -window=tumbling or sliding, or of several windows NAME=session:GAP:emit=final`,
    ];
  if (bounded)
    return [
      'changes nothing with -bounded, which fires every open window',
      `${without}, or give -exit-at-end`,
    ];
  if (/^parquet(:|$)/.test(sink))
    return ['cannot write to parquet, whose files are closed windows', `${without}, or give another -sink`];
  if (sink.startsWith('kafka:') && settings['sink-format'] === 'binary')
    return [
      'cannot write the binary records of -sink=kafka:TOPIC, which have no place for the mark of an early result',
      'give -sink-format=avro|protobuf|json with -registry',
    ];
  return undefined;
}
