package peers;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Windows by Kafka Streams, each result once when its window is closed. Exactly-once processing keeps
 * the counts right through a SIGKILL; the static member id lets a restart take its partitions without
 * the session timeout of the killed process.
 */
public final class StreamsWindows {
  private static final long RETENTION_MS = 20L * 365 * 24 * 3600 * 1000;

  private static Job job;
  private static final ThreadLocal<Decoder> DECODER =
      ThreadLocal.withInitial(() -> new Decoder(job));
  private static final ThreadLocal<Rows> ROWS =
      ThreadLocal.withInitial(
          () -> {
            try {
              return new Rows(job.folder());
            } catch (IOException e) {
              throw new UncheckedIOException(e);
            }
          });

  static final class SumsSerde
      implements Serde<Sums>, Serializer<Sums>, Deserializer<Sums> {
    private static final int BYTES = 48;

    @Override
    public Serializer<Sums> serializer() {
      return this;
    }

    @Override
    public Deserializer<Sums> deserializer() {
      return this;
    }

    @Override
    public byte[] serialize(String topic, Sums sums) {
      if (sums == null) return null;
      byte[] bytes = new byte[BYTES];
      ByteBuffer.wrap(bytes)
          .putLong(sums.account)
          .putLong(sums.count)
          .putLong(sums.sum)
          .putLong(sums.min)
          .putLong(sums.max)
          .putLong(sums.last);
      return bytes;
    }

    @Override
    public Sums deserialize(String topic, byte[] bytes) {
      if (bytes == null) return null;
      ByteBuffer from = ByteBuffer.wrap(bytes);
      Sums sums = new Sums();
      sums.account = from.getLong();
      sums.count = from.getLong();
      sums.sum = from.getLong();
      sums.min = from.getLong();
      sums.max = from.getLong();
      sums.last = from.getLong();
      return sums;
    }

    @Override
    public void configure(java.util.Map<String, ?> configs, boolean isKey) {}

    @Override
    public void close() {}
  }

  /** Event time of the head of a partition's queue, the next record to be processed. */
  private static long timeOf(ConsumerRecord<Object, Object> record) {
    Progress.event(record.partition(), record.offset());
    return ((Event) record.value()).time;
  }

  private static Properties properties() throws IOException {
    Properties values = new Properties();
    values.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + job.text("run"));
    values.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, job.text("brokers"));
    values.put(StreamsConfig.STATE_DIR_CONFIG, job.folder().resolve("state").toString());
    values.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, job.whole("threads"));
    values.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    values.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, job.number("checkpointMs"));
    values.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, job.number("cacheBytes"));
    values.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    // Changelog records have event times, which are old; a broker would delete them within minutes.
    values.put(
        StreamsConfig.WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG, RETENTION_MS);
    values.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    values.put(StreamsConfig.consumerPrefix("max.poll.records"), job.whole("pollRecords"));
    values.put(StreamsConfig.mainConsumerPrefix("group.instance.id"), "streams");
    values.put(StreamsConfig.producerPrefix("linger.ms"), 100);
    // With the default of 10 s a broker on busy cores fences the threads in the middle of a run.
    values.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 60_000);
    values.put(StreamsConfig.producerPrefix("compression.type"), "lz4");
    return values;
  }

  private static Event decoded(byte[] bytes) {
    return bytes == null ? null : DECODER.get().decode(bytes, new Event());
  }

  private static void write(long account, long start, long end, Sums sums) {
    try {
      ROWS.get().add(account, start, end, sums.count, sums.sum);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void topology(StreamsBuilder builder) {
    Duration grace = Duration.ofMillis(job.number("delayMs"));
    Duration size = Duration.ofMillis(job.number("sizeMs"));
    Serde<Event> events =
        Serdes.serdeFrom((topic, event) -> null, (topic, bytes) -> decoded(bytes));
    // The records have their keys already, so no repartition topic is needed.
    KGroupedStream<byte[], Event> byKey =
        builder
            .stream(
                job.text("topic"),
                Consumed.with(Serdes.ByteArray(), events)
                    .withTimestampExtractor((record, before) -> timeOf(record)))
            .groupByKey(Grouped.with(Serdes.ByteArray(), events));
    // The name is part of the name of its changelog topic, which the benchmark deletes.
    Suppressed<Windowed<?>> closed =
        Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("closed");
    if (job.text("kind").equals("session")) {
      // Kafka Streams joins events that are exactly a gap apart; the end of its session is its last
      // event.
      long gap = job.number("sizeMs");
      KTable<Windowed<byte[]>, Sums> table =
          byKey
              .windowedBy(
                  SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(gap - 1), grace))
              .aggregate(
                  Sums::new,
                  (key, event, sums) -> sums.add(event),
                  (key, a, b) -> new Sums().add(a).add(b),
                  Materialized.<byte[], Sums, SessionStore<Bytes, byte[]>>as("windows")
                      .withKeySerde(Serdes.ByteArray())
                      .withValueSerde(new SumsSerde()));
      table
          .suppress(closed)
          .toStream()
          .foreach(
              (key, sums) -> {
                // A tombstone: the session was merged into another one.
                if (sums != null)
                  write(sums.account, key.window().start(), key.window().end() + gap, sums);
              });
      return;
    }
    TimeWindows windows = TimeWindows.ofSizeAndGrace(size, grace);
    if (job.text("kind").equals("sliding"))
      windows = windows.advanceBy(Duration.ofMillis(job.number("slideMs")));
    byKey
        .windowedBy(windows)
        .aggregate(
            Sums::new,
            (key, event, sums) -> sums.add(event),
            Materialized.<byte[], Sums, WindowStore<Bytes, byte[]>>as("windows")
                .withKeySerde(Serdes.ByteArray())
                .withValueSerde(new SumsSerde()))
        .suppress(closed)
        .toStream()
        .foreach(
            (key, sums) -> write(sums.account, key.window().start(), key.window().end(), sums));
  }

  public static void main(String[] args) throws Exception {
    job = Job.of(args);
    Progress.start(job.folder());
    StreamsBuilder builder = new StreamsBuilder();
    topology(builder);
    KafkaStreams streams = new KafkaStreams(builder.build(), properties());
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          // A supervisor would start the process again; the benchmark reports the end.
          Runtime.getRuntime().halt(1);
          return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
    streams.start();
    Thread.currentThread().join();
  }
}
