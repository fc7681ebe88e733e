package peers;

/** Event of the topic. The public fields and the constructor make it a POJO for Flink's serializer. */
public final class Event {
  public long account;
  public long value;
  /** Event time in ms since the epoch. */
  public long time;

  public Event() {}
}
