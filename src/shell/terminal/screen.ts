/** Multiplexes stderr: plain lines, log lines, and at most one block of lines that is rewritten in
 *  place on a TTY: a progress line, or a table above it.
 *  Invariants: (1) While a block is displayed, other lines are printed above it. (2) A broken
 *  stderr never ends the process. (3) Every text passes through `hide`. (4) A block is replaced in
 *  one write that overwrites its lines, so it does not flicker. (5) No mode of the terminal is
 *  changed: after `clear` the cursor is at the start of a line and nothing is left to restore. */

export interface ScreenOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  /** 0 or undefined: unknown. */
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

/** Size of the terminal in characters. */
export interface ScreenSize {
  readonly columns: number;
  readonly rows: number;
}

const CLEAR_LINE = '\r\u001b[2K';
const CLEAR_TO_LINE_END = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';
const COLUMNS_UNKNOWN = 80;
const ROWS_UNKNOWN = 24;

export class Screen {
  readonly isTty: boolean;
  private readonly output: ScreenOutput;
  /** Lines of the block, each shorter than the terminal was wide. */
  private block: readonly string[] = [];
  /** Removes secrets from a text. */
  hide: (text: string) => string = (text) => text;

  constructor(output: ScreenOutput) {
    this.output = output;
    this.isTty = output.isTTY === true;
  }

  get size(): ScreenSize {
    const { columns, rows } = this.output;
    return { columns: columns || COLUMNS_UNKNOWN, rows: rows || ROWS_UNKNOWN };
  }

  /** Prints text that already ends in a line feed. */
  write(text: string): void {
    const shown = this.hide(text);
    if (this.block.length === 0) this.output.write(shown);
    else this.output.write(`${this.erased()}${shown}${this.block.join('\n')}`);
  }

  line(text: string): void {
    this.write(`${text}\n`);
  }

  /** Replaces the block; only on a TTY. Lines are cut to the width, and the first ones are left out
   *  where the terminal has too few rows. */
  showBlock(lines: readonly string[]): void {
    const { columns, rows } = this.size;
    const next = lines.slice(-Math.max(1, rows - 1)).map((text) => {
      const shown = this.hide(text);
      return shown.length >= columns ? shown.slice(0, Math.max(1, columns - 1)) : shown;
    });
    const before = this.home();
    this.block = next;
    this.output.write(
      `${before}${this.block.join(`${CLEAR_TO_LINE_END}\n`)}${CLEAR_TO_LINE_END}${CLEAR_BELOW}`,
    );
  }

  /** Clears the block. */
  clear(): void {
    if (this.block.length === 0) return;
    this.output.write(this.erased());
    this.block = [];
  }

  /** Moves the cursor to the start of the block. A terminal that became narrower has wrapped it. */
  private home(): string {
    const { columns } = this.size;
    const height = this.block.reduce((sum, text) => sum + Math.max(1, Math.ceil(text.length / columns)), 0);
    return height > 1 ? `\r\u001b[${height - 1}A` : '\r';
  }

  private erased(): string {
    const start = this.home();
    return start === '\r' ? CLEAR_LINE : `${start}${CLEAR_BELOW}`;
  }
}
