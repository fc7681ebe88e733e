/** Source of a job that folds the elements of a list. */
import type { EventSource } from '../../../engine/source/events.ts';
import { listIn } from '../../../engine/source/input/definition.ts';
import type { EventInput } from '../../../engine/source/input/port.ts';
import type { TopicInput } from '../../../engine/source/input/topic-input.ts';
import { ListSource, listRowCapacity } from '../../../engine/source/list/source.ts';
import type { Stages } from '../../../engine/stages.ts';
import { askedInput } from '../input.ts';

type Settings = Parameters<typeof askedInput>[0] & {
  readonly 'batch-rows': number;
  readonly 'batch-bytes': number;
};

/** Leaves the records to the source of their elements. */
const UNREAD: Pick<EventInput, 'decode' | 'isReady'> = { decode() {}, isReady: true };

/** Opens the source of the events. @param open opens the source of the records */
export function openEvents(
  input: TopicInput,
  settings: Settings,
  stages: Pick<Stages, 'enter'>,
  open: (input: Pick<EventInput, 'decode' | 'isReady'>) => EventSource,
): EventSource {
  if (input.list === undefined) return open(input);
  return new ListSource({
    ...{ source: open(UNREAD), input, stages },
    rowCapacity: listRowCapacity(settings['batch-rows']),
    arenaBytes: settings['batch-bytes'],
  });
}

/** Rows of the largest batch of events. */
export const batchRows = (settings: Settings): number =>
  listIn(askedInput(settings)) === undefined
    ? settings['batch-rows']
    : listRowCapacity(settings['batch-rows']);
