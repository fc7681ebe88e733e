/** Selects the kernel of the ids of variable-length keys: the addon or the TypeScript reference
 *  implementation. */
import type { KeyKernel, KeyKernels } from './key-surface.ts';
import { callAddon, loadAddon, type NativeMode } from './load.ts';
import { type Addon, batchBytes } from './raw.ts';
import { demandHeader } from './reference/check.ts';
import { referenceKeyKernels } from './reference/keys.ts';

function nativeKeys(addon: Addon, secret: Uint8Array): KeyKernel {
  const view = new DataView(secret.buffer, secret.byteOffset, 8);
  const words = Uint32Array.of(view.getUint32(0, true), view.getUint32(4, true));
  return {
    probe(events, { at, length, words: keys }, from, { slots, ring }, generation, bytesMax, { rest, state }) {
      demandHeader(events, 'events');
      const batch = batchBytes(events);
      callAddon(() =>
        addon.probeKeys(batch, at, length, keys, from, words, slots, ring, generation, bytesMax, rest, state),
      );
    },
    copy(ids, from, to, { slots, ring }, generations, { bytes, ends, missing, state }) {
      const { words, first, rowWords } = ids;
      return callAddon(() =>
        addon.copyKeys(
          ...([words, first, rowWords, from, to, slots, ring] as const),
          ...([generations, bytes, ends, missing, state] as const),
        ),
      );
    },
  };
}

/** Selects the kernel. @throws addon_missing, addon_mismatch as `loadAddon` does */
export function loadKeyKernels(mode: NativeMode): KeyKernels {
  if (mode !== 'native') return referenceKeyKernels;
  const addon = loadAddon();
  return { name: 'native', open: (secret) => nativeKeys(addon, secret) };
}
