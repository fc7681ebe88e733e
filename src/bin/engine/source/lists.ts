/** Source of the events of a job: records whose first decide the input, and their lists. */
import type { Clock } from '../../../core/clock.ts';
import type { EventSource } from '../../../engine/source/events.ts';
import { FirstRecordsSource } from '../../../engine/source/first/source.ts';
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

/** Leaves the records to the source that decodes them. */
const UNREAD: Pick<EventInput, 'decode' | 'isReady'> = { decode() {}, isReady: true };

/** Opens the source of the events. @param open opens the source of the records */
export function openEvents(
  input: TopicInput,
  settings: Settings & { readonly bounded: boolean; readonly 'exit-at-end': boolean },
  { stages, clock }: { readonly stages: Pick<Stages, 'enter'>; readonly clock: Clock },
  open: (input: Pick<EventInput, 'decode' | 'isReady'>) => EventSource,
): EventSource {
  const decoder = input.list === undefined ? input : UNREAD;
  const hasEnd = settings.bounded || settings['exit-at-end'];
  const source = input.isDecided
    ? open(decoder)
    : new FirstRecordsSource({ ...{ source: open(UNREAD), input, decoder, stages, clock }, hasEnd });
  if (input.list === undefined) return source;
  return new ListSource({
    ...{ source, input, stages },
    rowCapacity: listRowCapacity(settings['batch-rows']),
    arenaBytes: settings['batch-bytes'],
  });
}

/** Rows of the largest batch of events. */
export const batchRows = (settings: Settings): number =>
  listIn(askedInput(settings)) === undefined
    ? settings['batch-rows']
    : listRowCapacity(settings['batch-rows']);
