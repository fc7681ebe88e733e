/** How much one answer says of what stands against a schema. */

/** Findings, and versions that refuse, named in one answer. */
export const MESSAGES_MAX = 200;
/** Characters of the findings of one answer: versions times findings would be megabytes. */
export const MESSAGES_CHARS_MAX = 256 << 10;

/** What one answer says of findings, bounded in number and characters; the rest is counted, and not
 *  made. */
export class Said {
  private readonly messages: string[] = [];
  private readonly met: Set<string> | undefined;
  private chars = 0;
  private more = 0;

  /** @param once says the same message once */
  constructor(once: boolean) {
    this.met = once ? new Set() : undefined;
  }

  add(make: () => string): void {
    // After one that did not fit none is said, so that what is said is the beginning.
    if (this.more > 0 || this.messages.length >= MESSAGES_MAX) {
      this.more++;
      return;
    }
    const made = make();
    if (this.met?.has(made)) return;
    this.met?.add(made);
    const isLong = this.messages.length === 0 && made.length > MESSAGES_CHARS_MAX;
    const message = isLong ? `${made.slice(0, MESSAGES_CHARS_MAX)}...` : made;
    if (!isLong && this.chars + message.length > MESSAGES_CHARS_MAX) {
      this.more++;
      return;
    }
    this.chars += message.length;
    this.messages.push(message);
  }

  all(): string[] {
    if (this.more === 0) return [...this.messages];
    return [
      ...this.messages,
      `and ${this.more} more, counted in each version, that are not listed: an answer holds ${MESSAGES_MAX} findings and ${MESSAGES_CHARS_MAX >> 10} Ki characters of them`,
    ];
  }
}
