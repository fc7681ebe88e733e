/** Limits the messages about findings in one answer. */

/** Limit of findings, and of refusing versions, in one answer. */
export const MESSAGES_MAX = 200;
/** Limit of characters of the findings of one answer; versions times findings could be megabytes.
 */
export const MESSAGES_CHARS_MAX = 256 << 10;

/** Messages of one answer, limited in number and characters. Further messages are counted but not
 *  built. */
export class BoundedMessages {
  private readonly messages: string[] = [];
  private readonly seen: Set<string> | undefined;
  private chars = 0;
  private more = 0;

  /** @param unique drops a message that was already added */
  constructor(unique: boolean) {
    this.seen = unique ? new Set() : undefined;
  }

  add(make: () => string): void {
    // Once a message did not fit, add no other, so that the list is a prefix.
    if (this.more > 0 || this.messages.length >= MESSAGES_MAX) {
      this.more++;
      return;
    }
    const made = make();
    if (this.seen?.has(made)) return;
    this.seen?.add(made);
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
