/** Selects the codec kernels: the addon or the TypeScript reference implementation. */
import type { ColumnDecoder, ColumnKernels, ColumnProgram } from '../core/columns/kernel.ts';
import { coreError } from '../core/errors.ts';
import { callAddon, loadAddon, type NativeMode } from './load.ts';
import type { Addon, CodecHandle } from './raw.ts';
import { referenceColumnKernels } from './reference/codec/kernels.ts';

function opened(addon: Addon, { schema }: ColumnProgram, handle: CodecHandle): ColumnDecoder {
  return {
    decode({ bytes, start, length }, from, to, into, skips) {
      if (into.schema !== schema) throw coreError('layout_mismatch', 'into: another schema');
      return callAddon(() =>
        addon.codecDecode(handle, bytes, start, length, from, to, skips, into.buffer, into.state),
      );
    },
    close: () => callAddon(() => addon.codecClose(handle)),
  };
}

function nativeColumnKernels(addon: Addon): ColumnKernels {
  return {
    name: 'native',
    openAvro(program) {
      const { code, pool, schema } = program;
      return opened(
        addon,
        program,
        callAddon(() => addon.codecOpenAvro(code, pool, schema.table)),
      );
    },
    openProtobuf(program) {
      const { code, schema } = program;
      return opened(
        addon,
        program,
        callAddon(() => addon.codecOpenProtobuf(code, schema.table)),
      );
    },
  };
}

/** Selects the codec kernels. @throws addon_missing, addon_mismatch as `loadAddon` does */
export function loadColumnKernels(mode: NativeMode): ColumnKernels {
  return mode === 'native' ? nativeColumnKernels(loadAddon()) : referenceColumnKernels;
}
