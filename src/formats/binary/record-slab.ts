/** Buffers of single records, which share slabs of memory: a buffer of its own for each record, and
 *  a copy into it, take as long as writing a short record.
 *
 *  Invariant: bytes of a returned record are never written again. As with `Buffer.allocUnsafe`, a
 *  record keeps its slab in memory. */
import { formatError } from '../errors.ts';
import { Payloads } from '../payloads.ts';

const SLAB_BYTES = 32 << 10;
/** Greatest length of a record in a slab; a longer one is copied into memory of its own. */
const SHARED_BYTES_MAX = SLAB_BYTES >> 3;
/** Bytes that must be left of a slab for the next record. */
const ROOM_BYTES = SLAB_BYTES >> 4;

export class RecordSlab extends Payloads {
  private begun = 0;
  private isOpen = false;

  constructor() {
    super(1, SLAB_BYTES);
  }

  /** Begins a record with its prefix. @throws value_refused while another record is written, by a
   *  property of its value */
  begin(prefix: Uint8Array): void {
    if (this.isOpen)
      throw formatError(
        'value_refused',
        'a property of the value writes another value with this serializer',
        {
          next: 'use a serializer of its own for it',
        },
      );
    this.isOpen = true;
    if (this.bytes.length - this.used < ROOM_BYTES) {
      this.bytes = Buffer.allocUnsafeSlow(SLAB_BYTES);
      this.used = 0;
    }
    this.begun = this.used;
    this.count = 0;
    const { bytes, begun } = this;
    for (let i = 0; i < prefix.length; i++) bytes[begun + i] = prefix[i] as number;
    this.used = begun + prefix.length;
  }

  /** Ends the record whose payload was pushed. Returns its bytes. */
  end(): Buffer {
    this.isOpen = false;
    const { bytes, begun, used } = this;
    const record = bytes.subarray(begun, used);
    if (bytes.length === SLAB_BYTES && used - begun <= SHARED_BYTES_MAX) return record;
    // A buffer that grew is not kept for the sake of a short record.
    if (bytes.length > SLAB_BYTES && used - begun <= SHARED_BYTES_MAX)
      this.bytes = Buffer.allocUnsafeSlow(SLAB_BYTES);
    this.used = bytes === this.bytes ? begun : 0;
    return Buffer.from(record);
  }

  /** Ends a record that was refused. */
  abandon(): void {
    this.isOpen = false;
    this.used = this.begun;
  }
}
