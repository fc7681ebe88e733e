/** Codec kernels in TypeScript, written for clarity; the addon's kernels produce the same bytes. */
import type { ColumnKernels } from '../../../core/columns/kernel.ts';
import { openAvroEncoder } from '../encode/avro.ts';
import { openProtobufEncoder } from '../encode/protobuf.ts';
import { openAvro } from './avro.ts';
import { openProtobuf } from './protobuf.ts';

export const referenceColumnKernels: ColumnKernels = {
  name: 'reference',
  openAvro,
  openProtobuf,
  openAvroEncoder,
  openProtobufEncoder,
};
