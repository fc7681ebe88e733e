/** Columns to Avro frames: both kernels against each other, the encoder of data and the decoder. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ColumnBatch } from '../../src/core/columns/batch.ts';
import { decodeColumns, type PayloadSpans } from '../../src/core/columns/kernel.ts';
import { COLUMN_STATUS, ENCODE_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { type CompiledColumns, compileColumns } from '../../src/formats/avro/columns/compile.ts';
import { compileEncode } from '../../src/formats/avro/columns/encode.ts';
import type { AvroNode } from '../../src/formats/avro/syntax/tree.ts';
import { drawingFrom, numbers } from '../property/registry-avro-decoder-kit.ts';
import { avroSchema } from '../property/registry-avro-kit.ts';
import { runs } from '../tier.ts';
import { bytesOf, columnKernels, eventsOf, mutated, parse, spansOf } from './avro-columns-kit.ts';
import {
  checkStatuses,
  corrupt,
  encodedBy,
  type OpenEncoder,
  payloadOf,
  spansOfFrames,
} from './encode-kit.ts';

const open: OpenEncoder = (kernels, program) => kernels.openAvroEncoder(program);

function batchOf({ program }: CompiledColumns, spans: PayloadSpans): ColumnBatch {
  const decoder = (columnKernels[1] as (typeof columnKernels)[number]).openAvro(program);
  const batch = ColumnBatch.create(program.schema, Math.max(1, spans.start.length));
  expect(decodeColumns(decoder, spans, 0, spans.start.length, batch)).toBe(spans.start.length);
  decoder.close();
  return batch;
}

const compiledOf = (tree: AvroNode): CompiledColumns => compileColumns(tree, tree, new Map());

describe('Avro frames of columns of random schemas', () => {
  it('columns of events are written as the encoder of data wrote the events', () => {
    let frames = 0;
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const { tree } = parse(json);
        const events = eventsOf(tree, drawingFrom(drawn), 8);
        const batch = batchOf(compiledOf(tree), spansOf([...events, null]));
        const encoded = encodedBy(open, compileEncode(tree).program, batch);
        events.forEach((event, row) => {
          expect(payloadOf(encoded, row)).toEqual(event);
          frames++;
        });
        expect(encoded.status[events.length]).toBe(ENCODE_STATUS.NULL_VALUE);
      }),
      { numRuns: runs(600) },
    );
    expect(frames).toBeGreaterThan(runs(2500));
  });

  it('columns of mutated events are read back from their frames unchanged', () => {
    let kept = 0;
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const next = drawingFrom(drawn);
        const { tree } = parse(json);
        const compiled = compiledOf(tree);
        const events = eventsOf(tree, next, 10).map((event) => mutated(event, next));
        const batch = batchOf(compiled, spansOf(events));
        const encoded = encodedBy(open, compileEncode(tree).program, batch);
        checkStatuses(batch, encoded);
        const read = batchOf(compiled, spansOfFrames(encoded));
        const good = [...batch.status].filter((status) => status === COLUMN_STATUS.OK).length;
        kept += good;
        // Rows that were not read are nulls in both batches.
        expect(bytesOf(read).slice(1)).toEqual(bytesOf(batch).slice(1));
      }),
      { numRuns: runs(600) },
    );
    expect(kept).toBeGreaterThan(runs(1500));
  });

  it('both kernels give hostile columns the same verdicts, and frames that can be read', () => {
    const seen = new Set<number>();
    fc.assert(
      fc.property(avroSchema, numbers, (json, drawn) => {
        const next = drawingFrom(drawn);
        const { tree } = parse(json);
        const compiled = compiledOf(tree);
        const batch = batchOf(compiled, spansOf(eventsOf(tree, next, 8)));
        if (batch.rowCount === 0 || batch.schema.all.length === 0) return;
        corrupt(batch, next);
        const encoded = encodedBy(open, compileEncode(tree).program, batch);
        for (const status of encoded.status) seen.add(status);
        const read = batchOf(compiled, spansOfFrames(encoded));
        for (let row = 0; row < encoded.rowCount; row++)
          if (encoded.status[row] === ENCODE_STATUS.OK) expect(read.status[row]).toBe(COLUMN_STATUS.OK);
      }),
      { numRuns: runs(1500) },
    );
    expect([...seen].sort()).toEqual([ENCODE_STATUS.OK, ENCODE_STATUS.REFUSED, ENCODE_STATUS.BROKEN]);
  });
});
