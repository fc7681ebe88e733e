/** Changes of a proposed text, and what they are looked for by. */

import type { Schema } from '../../../formats/schema.ts';
import type { Finding } from '../../compatibility/finding.ts';

export interface Edit {
  /** UTF-16 units of the proposed source; what stands there gives way to `text`. */
  readonly at: number;
  readonly end: number;
  readonly text: string;
}

export interface Fix {
  readonly words: string;
  /** In order, none within another; empty: the words alone. */
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
  /** Every schema the subject ever had, oldest first: what no fix may bring back. */
  readonly ever: readonly Schema[];
  readonly policy: 'PROVEN' | 'STRICT';
}
