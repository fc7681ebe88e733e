/** Multiplexes stderr: plain lines, log lines, and at most one progress line that is rewritten in
 *  place on a TTY.
 *  Invariants: (1) While a progress line is displayed, other lines are printed above it. (2) A
 *  broken stderr never ends the process. (3) Every text passes through `hide`. */

export interface ScreenOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

const CLEAR_LINE = '\r\u001b[2K';

export class Screen {
  readonly isTty: boolean;
  private readonly output: ScreenOutput;
  private progressLine = '';
  /** Removes secrets from a text. */
  hide: (text: string) => string = (text) => text;

  constructor(output: ScreenOutput) {
    this.output = output;
    this.isTty = output.isTTY === true;
  }

  /** Prints text that already ends in a line feed. */
  write(text: string): void {
    const shown = this.hide(text);
    if (this.progressLine === '') this.output.write(shown);
    else this.output.write(`${CLEAR_LINE}${shown}${this.progressLine}`);
  }

  line(text: string): void {
    this.write(`${text}\n`);
  }

  /** Replaces the progress line; only on a TTY. */
  showProgress(text: string): void {
    const room = (this.output.columns ?? 80) - 1;
    const shown = this.hide(text);
    this.progressLine = shown.length > room ? shown.slice(0, room) : shown;
    this.output.write(`${CLEAR_LINE}${this.progressLine}`);
  }

  /** Clears the progress line. */
  clear(): void {
    if (this.progressLine === '') return;
    this.progressLine = '';
    this.output.write(CLEAR_LINE);
  }
}
