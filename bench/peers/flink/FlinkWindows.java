package peers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Windows by Flink's DataStream API in one process, which holds the job manager and the task manager.
 * A restart resumes at the newest checkpoint.
 */
public final class FlinkWindows {
  /** Result of a window. */
  public static final class Row {
    public long account;
    public long start;
    public long end;
    public long count;
    public long sum;

    public Row() {}
  }

  static final class Events implements KafkaRecordDeserializationSchema<Event> {
    private final boolean isAvro;
    private final String registry;
    private transient Decoder decoder;
    // The event is serialized towards its key before the next one is read.
    private transient Event reused;

    Events(Job job) {
      isAvro = job.isAvro();
      registry = job.text("registry");
    }

    @Override
    public void open(DeserializationSchema.InitializationContext context) {
      decoder = new Decoder(isAvro, registry);
      reused = new Event();
    }

    @Override
    public void deserialize(
        org.apache.kafka.clients.consumer.ConsumerRecord<byte[], byte[]> record,
        Collector<Event> out) {
      out.collect(decoder.decode(record.value(), reused));
      Progress.event(record.partition(), record.offset());
    }

    @Override
    public TypeInformation<Event> getProducedType() {
      return TypeInformation.of(Event.class);
    }
  }

  static final class Aggregate implements AggregateFunction<Event, Sums, Sums> {
    @Override
    public Sums createAccumulator() {
      return new Sums();
    }

    @Override
    public Sums add(Event event, Sums sums) {
      return sums.add(event);
    }

    @Override
    public Sums getResult(Sums sums) {
      return sums;
    }

    @Override
    public Sums merge(Sums a, Sums b) {
      return a.add(b);
    }
  }

  static final class ToRow extends ProcessWindowFunction<Sums, Row, Long, TimeWindow> {
    private final long endPlusMs;

    ToRow(long endPlusMs) {
      this.endPlusMs = endPlusMs;
    }

    @Override
    public void process(Long account, Context context, Iterable<Sums> all, Collector<Row> out) {
      Sums sums = all.iterator().next();
      Row row = new Row();
      row.account = account;
      row.start = context.window().getStart();
      row.end = context.window().getEnd() + endPlusMs;
      row.count = sums.count;
      row.sum = sums.sum;
      out.collect(row);
    }
  }

  static final class RowsSink implements Sink<Row> {
    private final String folder;

    RowsSink(Path folder) {
      this.folder = folder.toString();
    }

    @Override
    public SinkWriter<Row> createWriter(WriterInitContext context) throws IOException {
      Rows rows = new Rows(Path.of(folder));
      return new SinkWriter<>() {
        @Override
        public void write(Row row, Context context) throws IOException {
          rows.add(row.account, row.start, row.end, row.count, row.sum);
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() throws IOException {
          rows.close();
        }
      };
    }
  }

  /** Newest completed checkpoint below the folder. */
  private static Optional<Path> newestCheckpoint(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) return Optional.empty();
    try (Stream<Path> all = Files.walk(folder, 3)) {
      return all.filter(path -> path.endsWith("_metadata"))
          .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
          .map(Path::getParent);
    }
  }

  private static Configuration configuration(Job job) throws IOException {
    Path checkpoints = job.folder().resolve("checkpoints");
    Configuration conf = new Configuration();
    conf.setString("state.backend.type", job.text("backend"));
    conf.setString("execution.checkpointing.incremental", "true");
    conf.setString("execution.checkpointing.interval", job.number("checkpointMs") + " ms");
    conf.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
    conf.setString(
        "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    conf.setString("state.backend.rocksdb.localdir", job.folder().resolve("rocksdb").toString());
    conf.setString("taskmanager.memory.managed.size", job.text("managed"));
    conf.setString("io.tmp.dirs", job.folder().toString());
    conf.setString("rest.bind-address", "127.0.0.1");
    conf.setString("restart-strategy.type", "none");
    Optional<Path> newest = newestCheckpoint(checkpoints);
    if (newest.isPresent())
      conf.setString("execution.state-recovery.path", newest.get().toUri().toString());
    return conf;
  }

  private static WindowAssigner<Object, TimeWindow> windows(Job job) {
    switch (job.text("kind")) {
      case "tumbling":
        return TumblingEventTimeWindows.of(Duration.ofMillis(job.number("sizeMs")));
      case "sliding":
        return SlidingEventTimeWindows.of(
            Duration.ofMillis(job.number("sizeMs")), Duration.ofMillis(job.number("slideMs")));
      default:
        // Flink joins sessions that touch; a gap less one millisecond makes them those of Millrace.
        return EventTimeSessionWindows.withGap(Duration.ofMillis(job.number("sizeMs") - 1));
    }
  }

  public static void main(String[] args) throws Exception {
    Job job = Job.of(args);
    Progress.start(job.folder());
    StreamExecutionEnvironment env =
        StreamExecutionEnvironment.getExecutionEnvironment(configuration(job));
    env.setParallelism(job.whole("threads"));
    env.getConfig().enableObjectReuse();
    KafkaSource<Event> source =
        KafkaSource.<Event>builder()
            .setBootstrapServers(job.text("brokers"))
            .setTopics(job.text("topic"))
            .setGroupId("flink-" + job.text("topic"))
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new Events(job))
            .setProperty("max.poll.records", job.text("pollRecords"))
            .build();
    WatermarkStrategy<Event> times =
        WatermarkStrategy.<Event>forBoundedOutOfOrderness(
                Duration.ofMillis(job.number("delayMs")))
            .withTimestampAssigner((event, before) -> event.time);
    boolean isSession = job.text("kind").equals("session");
    env.fromSource(source, times, "events")
        .uid("events")
        .keyBy(event -> event.account)
        .window(windows(job))
        .aggregate(new Aggregate(), new ToRow(isSession ? 1 : 0))
        .uid("windows")
        .sinkTo(new RowsSink(job.folder()))
        .uid("rows");
    env.execute("windows");
  }
}
