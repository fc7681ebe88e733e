/** Changes of a proposed text, and the context of the search for them. */

import type { Schema } from '../../../formats/schema.ts';
import type { Finding } from '../../compatibility/finding.ts';

export interface Edit {
  /** UTF-16 units of the proposed source; `text` replaces this range. */
  readonly at: number;
  readonly end: number;
  readonly text: string;
}

export interface Fix {
  readonly words: string;
  /** In order, none within another; empty: `words` only gives advice. */
  readonly edits: readonly Edit[];
}

export interface Change {
  readonly words: string;
  readonly edits: readonly Edit[];
}

export interface FixContext {
  readonly finding: Finding;
  readonly direction: 'BACKWARD' | 'FORWARD' | 'HISTORY';
  readonly proposed: Schema;
  readonly other: Schema | undefined;
  /** Every schema the subject ever had, oldest first: a fix must be compatible with their history
   *  of numbers. */
  readonly ever: readonly Schema[];
  readonly policy: 'PROVEN' | 'STRICT';
}
