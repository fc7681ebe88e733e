/** Preloaded into a service of a chaos run (`node --import`): SIGUSR2 steps the wall clock of
 *  the process by the number of ms in the environment, and the next SIGUSR2 steps it back.
 *  Monotonic time and the clocks of libraries outside JavaScript do not change.
 *
 *  Invariant: a date of a given time is untouched; only the current time is shifted. */
import { CLOCK_STEP_LINE, CLOCK_STEP_VARIABLE } from './clock-step.ts';

const RealDate = Date;
const stepMs = Number(process.env[CLOCK_STEP_VARIABLE] ?? 0);
let offsetMs = 0;

const now = (): number => RealDate.now() + offsetMs;

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args: unknown[], newTarget) =>
    Reflect.construct(target, args.length === 0 ? [now()] : args, newTarget) as Date,
  get: (target, name, receiver) => (name === 'now' ? now : (Reflect.get(target, name, receiver) as unknown)),
});

process.on('SIGUSR2', () => {
  offsetMs = offsetMs === 0 ? stepMs : 0;
  process.stderr.write(`{"msg":"${CLOCK_STEP_LINE}","ms":${offsetMs}}\n`);
});
