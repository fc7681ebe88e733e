/** Tombstones: facts that outlive versions deleted for good, in records that other registries skip.
 */
import type { Draft } from '../draft.ts';
import type { VersionEntry } from './model.ts';
import { contextOf } from './names.ts';

/** Writes the tombstones of versions before they are deleted for good: Protobuf field numbers and
 *  the greatest id.
 */
export function burn(draft: Draft, subject: string, versions: readonly VersionEntry[]): void {
  const context = contextOf(subject);
  const left = draft.state.versions(subject).length - versions.length;
  for (const [i, { stored }] of versions.entries()) {
    const { id, version, content } = stored;
    if (id === draft.state.maxId(context)) draft.put({ kind: 'maxId', context, value: id });
    if (content.format !== 'PROTOBUF') continue;
    const seq = (draft.state.burned(subject).at(-1)?.seq ?? 0) + 1;
    const { format, text, references } = content;
    const last = left === 0 && i === versions.length - 1;
    draft.put({ kind: 'burned', subject, seq, value: { version, format, text, references, last } });
  }
}
