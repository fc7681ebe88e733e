/** `-chaos`: the process kills itself by SIGKILL after a number of events or at a step of its
 *  changelog and checkpoints. */
import { coreError } from '../../core/errors.ts';
import {
  CHECKPOINT_ACTIONS,
  type CheckpointStep,
  SPILL_ACTIONS,
  type StepHook,
} from '../../engine/durability/checkpoint/steps.ts';

export const CHAOS_SETTING = {
  type: 'string',
  help: 'the process kills itself: kill-after=N after N events; at-barrier after a checkpoint barrier; before-STEP or after-STEP, with STEP one of changelog-sync, base-write, base-sync, base-rename, run-write, run-sync, run-rename, manifest-write, manifest-sync, manifest-rename, removal, spill-write, spill-ingest; append @N for the Nth time',
} as const;

export interface Chaos {
  readonly onConsumed: (events: number) => void;
  readonly onStep: StepHook;
}

const nameOf = (step: CheckpointStep): string => step.replaceAll(' ', '-');
const STEPS = new Map(
  [...CHECKPOINT_ACTIONS, ...SPILL_ACTIONS]
    .flatMap((action) => [`before ${action}`, `after ${action}`] as const)
    .map((step) => [nameOf(step), step] as const),
);
/** The barrier has passed and nothing of the checkpoint is written yet. */
STEPS.set('at-barrier', 'before manifest write');

const die = (): void => {
  process.kill(process.pid, 'SIGKILL');
};

/** @throws bad_value */
export function chaosOf(text: string | undefined): Chaos {
  const noFault: Chaos = { onConsumed: () => {}, onStep: () => {} };
  if (text === undefined) return noFault;
  const events = /^kill-after=(\d{1,15})$/.exec(text)?.[1];
  if (events !== undefined) {
    const after = Number(events);
    return {
      ...noFault,
      onConsumed: (consumed) => {
        if (consumed >= after) die();
      },
    };
  }
  const [, name = '', times] = /^([a-z-]{1,40})(?:@([1-9]\d{0,8}))?$/.exec(text) ?? [];
  const step = STEPS.get(name);
  if (step === undefined) {
    throw coreError('bad_value', `-chaos=${text.slice(0, 80)} is not a fault`, {
      next: `give kill-after=N with N events, or one of ${[...STEPS.keys()].join(', ')}, with @N for the Nth time`,
    });
  }
  let left = Number(times ?? 1);
  return {
    ...noFault,
    onStep: (at) => {
      if (at === step && --left === 0) die();
    },
  };
}
