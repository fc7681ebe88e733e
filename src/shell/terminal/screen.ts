/** stderr as one screen: plain lines, log lines and at most one progress line that is rewritten in
 *  place on a TTY.
 *
 *  Invariants: (1) a line that is printed while a progress line stands is printed above it; (2) a
 *  broken stderr never ends the process; (3) every text passes `hide`.
 */

export interface ScreenOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

const CLEAR_LINE = '\r\u001b[2K';

export class Screen {
  readonly isTty: boolean;
  private readonly output: ScreenOutput;
  private standing = '';
  /** Takes secrets out of a text. */
  hide: (text: string) => string = (text) => text;

  constructor(output: ScreenOutput) {
    this.output = output;
    this.isTty = output.isTTY === true;
  }

  /** Prints text that already ends in a line feed. */
  write(text: string): void {
    const shown = this.hide(text);
    if (this.standing === '') this.output.write(shown);
    else this.output.write(`${CLEAR_LINE}${shown}${this.standing}`);
  }

  line(text: string): void {
    this.write(`${text}\n`);
  }

  /** Replaces the progress line; only on a TTY. */
  stand(text: string): void {
    const room = (this.output.columns ?? 80) - 1;
    const shown = this.hide(text);
    this.standing = shown.length > room ? shown.slice(0, room) : shown;
    this.output.write(`${CLEAR_LINE}${this.standing}`);
  }

  /** Takes the progress line away. */
  clear(): void {
    if (this.standing === '') return;
    this.standing = '';
    this.output.write(CLEAR_LINE);
  }
}
