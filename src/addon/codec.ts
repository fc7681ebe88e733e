/** Selects the codec kernels: the addon or the TypeScript reference implementation. */
import type {
  ColumnDecoder,
  ColumnEncoder,
  ColumnKernels,
  ColumnProgram,
  EncodeProgram,
} from '../core/columns/kernel.ts';
import { coreError } from '../core/errors.ts';
import { callAddon, chooseNative, loadAddon, type NativeMode } from './load.ts';
import type { Addon, CodecHandle, EncoderHandle } from './raw.ts';
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

function openedEncoder(addon: Addon, { schema }: EncodeProgram, handle: EncoderHandle): ColumnEncoder {
  return {
    encode(columns, from, to, prefix, into, skips) {
      if (!schema.equals(columns.schema)) throw coreError('layout_mismatch', 'columns: another schema');
      const { buffer, offsets, status, errorColumn, state } = into;
      return callAddon(() =>
        addon.codecEncode(
          handle,
          columns.buffer,
          columns.state,
          from,
          to,
          prefix,
          skips,
          buffer,
          offsets,
          status,
          errorColumn,
          state,
        ),
      );
    },
    close: () => callAddon(() => addon.codecCloseEncoder(handle)),
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
    openAvroEncoder(program) {
      const { code, tables, schema } = program;
      return openedEncoder(
        addon,
        program,
        callAddon(() => addon.codecOpenAvroEncoder(code, tables, schema.table)),
      );
    },
    openProtobufEncoder(program) {
      const { code, tables, schema } = program;
      return openedEncoder(
        addon,
        program,
        callAddon(() => addon.codecOpenProtobufEncoder(code, tables, schema.table)),
      );
    },
  };
}

/** Selects the codec kernels. @throws addon_missing, addon_mismatch as `loadAddon` does */
export function loadColumnKernels(mode: NativeMode): ColumnKernels {
  return mode === 'native' ? nativeColumnKernels(loadAddon()) : referenceColumnKernels;
}

/** Use of the addon by a library: `on` demands it, `off` never loads it, `auto` uses it where it is
 *  built. */
export type NativeSetting = 'auto' | 'on' | 'off';

/** Selects the codec kernels by a setting. @throws addon_missing, addon_mismatch */
export const chooseColumnKernels = (setting: NativeSetting = 'auto'): ColumnKernels =>
  loadColumnKernels(chooseNative(setting).mode);
