package peers;

/** Accumulator of a window: the aggregates that Millrace computes by default. */
public final class Sums {
  public long account;
  public long count;
  public long sum;
  public long min = Long.MAX_VALUE;
  public long max = Long.MIN_VALUE;
  /** Greatest event time. */
  public long last = Long.MIN_VALUE;

  public Sums() {}

  public Sums add(Event event) {
    account = event.account;
    count++;
    sum += event.value;
    min = Math.min(min, event.value);
    max = Math.max(max, event.value);
    last = Math.max(last, event.time);
    return this;
  }

  public Sums add(Sums other) {
    if (other.count > 0) account = other.account;
    count += other.count;
    sum += other.sum;
    min = Math.min(min, other.min);
    max = Math.max(max, other.max);
    last = Math.max(last, other.last);
    return this;
  }
}
