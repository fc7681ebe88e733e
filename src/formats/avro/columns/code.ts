/** Writer of a program: instructions in blocks, and a pool of constants. */
import { COLUMN_LIMIT } from '../../../core/layout/layouts.gen.ts';
import { formatError } from '../../errors.ts';

/** Block of instructions that other blocks call. Its position is known when it has been written. */
export interface Block {
  at: number;
}

/** Bytes that a program's constants may have. */
const POOL_BYTES_MAX = 64 << 20;

export class Code {
  private readonly words: number[] = [];
  private readonly pool: Buffer[] = [];
  private poolBytes = 0;
  private readonly calls: Array<{ readonly at: number; readonly block: Block }> = [];

  /** Position of the next word. */
  get at(): number {
    return this.words.length;
  }

  /** @throws incompatible_schema when the program becomes too long */
  emit(...words: readonly number[]): void {
    if (this.words.length + words.length > COLUMN_LIMIT.PROGRAM_WORDS) throw programTooLong();
    for (const word of words) this.words.push(word);
  }

  /** Emits the position of a block, which may be written later. */
  emitBlock(block: Block): void {
    this.calls.push({ at: this.at, block });
    this.emit(0);
  }

  /** Emits a word that `patch` sets. @returns its position */
  hole(): number {
    this.emit(0);
    return this.at - 1;
  }

  patch(hole: number, word: number): void {
    this.words[hole] = word;
  }

  /** Adds bytes to the pool and returns their position. */
  constant(bytes: Buffer): number {
    const at = this.poolBytes;
    this.poolBytes += bytes.length;
    if (this.poolBytes > POOL_BYTES_MAX) throw programTooLong();
    this.pool.push(bytes);
    return at;
  }

  /** Completes the program: the positions of all blocks are known. */
  done(): { readonly code: Int32Array; readonly pool: Uint8Array } {
    for (const { at, block } of this.calls) this.words[at] = block.at;
    return { code: Int32Array.from(this.words), pool: Uint8Array.from(Buffer.concat(this.pool)) };
  }
}

/** Error of a pair whose program would exceed its limits. */
export const programTooLong = (): Error =>
  formatError('incompatible_schema', 'the schemas combine their types in too many ways for columns', {
    next: 'request fewer fields',
  });
