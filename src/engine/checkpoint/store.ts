/** Checkpoints in a folder: written whole, found again newest first, never trusted without their checksums.
 *
 *  Invariants: (1) files are immutable and durable before the manifest that names them appears by one rename; (2) a
 *  restore names everything it refuses, and falls back to the checkpoint before; (3) where manifests exist and none
 *  verifies, it refuses to start empty: that would lose results silently.
 */
import { crc32 } from 'node:zlib';
import type { Logger } from '../../core/log.ts';
import type { Disk } from '../../io/disk/port.ts';
import { engineError } from '../errors.ts';
import {
  decodeManifest,
  encodeManifest,
  type FileEntry,
  MANIFEST_FORMAT,
  MANIFEST_VERSION,
  type Manifest,
  manifestId,
  manifestName,
} from './manifest.ts';
import { decodeSections, encodeSections, type Section } from './sections.ts';

/** Checkpoints kept: the newest and those to fall back to. */
export const CHECKPOINTS_KEPT = 3;

/** What a checkpoint holds, cut at one batch boundary. */
export type Cut = Omit<Manifest, 'format' | 'version' | 'id' | 'files'> & {
  readonly state: readonly Section[];
  /** Windows fired since the cut before. */
  readonly fired: readonly Section[];
  /** Files of fired windows whose last window ends at or before this go. */
  readonly forgetBefore: number;
};

export interface Restored {
  readonly manifest: Manifest;
  readonly state: readonly Section[];
  /** Fired windows still kept, in the order they fired. */
  readonly fired: readonly Section[];
  /** What was refused on the way, one line each. */
  readonly refused: readonly string[];
}

export class CheckpointStore {
  private readonly disk: Disk;
  private readonly log: Logger;
  /** Verified or written by us, oldest first. */
  private readonly kept: Manifest[] = [];
  private lastId = 0;

  constructor(disk: Disk, log: Logger) {
    this.disk = disk;
    this.log = log;
  }

  get newest(): Manifest | undefined {
    return this.kept.at(-1);
  }

  /** The newest checkpoint that verifies; undefined where there never was one. @throws state_corrupt */
  async restore(): Promise<Restored | undefined> {
    const names = await this.disk.list();
    const ids = names.flatMap((name) => manifestId(name) ?? []).sort((a, b) => b - a);
    for (const name of names) {
      const id = /^(?:state|fired|checkpoint)-(\d+)\./.exec(name)?.[1];
      if (id !== undefined) this.lastId = Math.max(this.lastId, Number(id));
    }
    const refused: string[] = [];
    let found: Restored | undefined;
    for (const id of ids) {
      const verified = await this.verify(id);
      if ('fault' in verified) {
        if (found === undefined) refused.push(verified.fault);
        this.log.warn({ checkpoint: id, fault: verified.fault }, 'checkpoint refused');
        continue;
      }
      this.kept.unshift(verified.manifest);
      found ??= { ...verified, refused };
    }
    if (found === undefined && ids.length > 0) {
      throw engineError(
        'state_corrupt',
        `no checkpoint in ${this.disk.where} can be restored: ${refused.join('; ')}`,
        {
          next: 'put the files back from a copy, or give an empty -state-dir to compute everything again',
          details: { refused },
        },
      );
    }
    return found;
  }

  /** Writes a checkpoint; it exists when this settles. */
  async write(cut: Cut): Promise<Manifest> {
    const id = ++this.lastId;
    const { state, fired, forgetBefore, ...rest } = cut;
    const files: FileEntry[] = (this.newest?.files ?? []).filter(
      (file) => file.kind === 'fired' && (file.lastEnd as number) > forgetBefore,
    );
    files.push(await this.writeFile('state', id, state));
    if (fired.length > 0) files.push(await this.writeFile('fired', id, fired));
    const manifest: Manifest = { format: MANIFEST_FORMAT, version: MANIFEST_VERSION, id, ...rest, files };
    await this.disk.write(manifestName(id), [encodeManifest(manifest)]);
    this.kept.push(manifest);
    await this.prune();
    return manifest;
  }

  private async writeFile(
    kind: FileEntry['kind'],
    id: number,
    sections: readonly Section[],
  ): Promise<FileEntry> {
    const name = `${kind}-${String(id).padStart(8, '0')}.rows`;
    const chunks = encodeSections(sections);
    let bytes = 0;
    let crc = 0;
    for (const chunk of chunks) {
      bytes += chunk.length;
      crc = crc32(chunk, crc);
    }
    await this.disk.write(name, chunks);
    const lastEnd = kind === 'fired' ? Math.max(...sections.map((section) => section.windowEnd)) : null;
    return { name, bytes, crc32: crc, kind, lastEnd };
  }

  private async verify(id: number): Promise<Omit<Restored, 'refused'> | { readonly fault: string }> {
    const name = manifestName(id);
    const bytes = await this.disk.read(name);
    if (bytes === undefined) return { fault: `${name} is missing` };
    const decoded = decodeManifest(bytes);
    if ('fault' in decoded) return { fault: `${name} ${decoded.fault}` };
    const { manifest } = decoded;
    const state: Section[] = [];
    const fired: Section[] = [];
    for (const file of manifest.files) {
      const content = await this.disk.read(file.name);
      if (content === undefined) return { fault: `${file.name} of ${name} is missing` };
      if (content.length !== file.bytes)
        return { fault: `${file.name} of ${name} has ${content.length} bytes instead of ${file.bytes}` };
      const read = decodeSections(content);
      if ('fault' in read) return { fault: `${file.name} of ${name} ${read.fault}` };
      if (crc32(content) !== file.crc32)
        return { fault: `${file.name} of ${name} has changed since it was written` };
      for (const section of read.sections) (file.kind === 'state' ? state : fired).push(section);
    }
    return { manifest, state, fired };
  }

  /** Removes checkpoints beyond those kept, and files that none of them names. */
  private async prune(): Promise<void> {
    while (this.kept.length > CHECKPOINTS_KEPT) this.kept.shift();
    const oldest = (this.kept[0] as Manifest).id;
    const named = new Set(this.kept.flatMap((manifest) => manifest.files.map((file) => file.name)));
    for (const name of await this.disk.list()) {
      const id = manifestId(name);
      const goes =
        id !== undefined ? id < oldest : /^(state|fired)-\d+\.rows(\.tmp)?$/.test(name) && !named.has(name);
      if (goes) await this.disk.remove(name);
    }
  }
}
