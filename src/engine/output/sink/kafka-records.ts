/** Port of the form of records in a topic of results that is not the binary one. */
import type { WindowResult } from '../../window/accumulator.ts';
import type { ResultShape } from '../columns.ts';

export interface ResultRecords {
  /** Makes the form known outside of the topic, before the first record.
   *  @throws sink_refused, and errors of the registry */
  register(shape: ResultShape): Promise<void>;
  /** Checks that the form is known. @throws sink_missing, and errors of the registry */
  find(shape: ResultShape): Promise<void>;
  /** Encodes a result. Equal keys and windows have equal record keys. */
  encode(result: WindowResult): { readonly key: Uint8Array; readonly value: Uint8Array };
  /** Decodes a value; undefined: it is no result. */
  decode(value: Uint8Array): Promise<WindowResult | undefined>;
  /** Shape of the results that were decoded; undefined before the first. */
  readonly readShape: ResultShape | undefined;
}
