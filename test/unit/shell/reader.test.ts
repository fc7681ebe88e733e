import { expect, it } from 'vitest';
import { onReaderGone } from '../../../src/shell/terminal/reader.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';

it('the reader of stdout is checked until it is gone, and the action runs once', async () => {
  const clock = new VirtualClock();
  let isOpen = true;
  let checks = 0;
  let acts = 0;
  onReaderGone(
    clock,
    () => acts++,
    (fd) => {
      expect(fd).toBe(1);
      checks++;
      return isOpen;
    },
  );
  await clock.advance(1000);
  expect([checks, acts]).toEqual([4, 0]);
  isOpen = false;
  await clock.advance(1000);
  expect([checks, acts]).toEqual([5, 1]);
});

it('a cancelled check of the reader runs no action', async () => {
  const clock = new VirtualClock();
  const cancel = onReaderGone(
    clock,
    () => expect.unreachable(),
    () => false,
  );
  cancel();
  await clock.advance(1000);
});
