package peers;

import com.hazelcast.config.Config;
import com.hazelcast.config.JoinConfig;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.jet.aggregate.AggregateOperation;
import com.hazelcast.jet.aggregate.AggregateOperation1;
import com.hazelcast.jet.config.JobConfig;
import com.hazelcast.jet.config.ProcessingGuarantee;
import com.hazelcast.jet.datamodel.KeyedWindowResult;
import com.hazelcast.jet.kafka.KafkaSources;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.Sink;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.WindowDefinition;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Windows by Hazelcast Jet in an embedded member. Snapshots of Jet are held in the memory of the
 * members, so a single member has none to resume from: a restart reads the topic from its beginning.
 */
public final class JetWindows {
  private static final int QUEUE_EVENTS = 16_384;

  private static Job job;
  private static final ThreadLocal<Decoder> DECODER =
      ThreadLocal.withInitial(() -> new Decoder(job));

  private static Event decoded(int partition, long offset, byte[] value) {
    Event event = DECODER.get().decode(value, new Event());
    Progress.event(partition, offset);
    return event;
  }

  private static WindowDefinition windows() {
    long size = job.number("sizeMs");
    switch (job.text("kind")) {
      case "tumbling":
        return WindowDefinition.tumbling(size);
      case "sliding":
        return WindowDefinition.sliding(size, job.number("slideMs"));
      default:
        return WindowDefinition.session(size);
    }
  }

  private static Sink<KeyedWindowResult<Long, Sums>> rows() {
    String folder = job.folder().toString();
    return SinkBuilder.sinkBuilder("rows", context -> new Rows(Path.of(folder)))
        .<KeyedWindowResult<Long, Sums>>receiveFn(
            (rows, item) ->
                rows.add(
                    item.key(),
                    item.start(),
                    item.end(),
                    item.result().count,
                    item.result().sum))
        .destroyFn(Rows::close)
        .build();
  }

  private static Config config() {
    Config config = new Config();
    config.setProperty("hazelcast.phone.home.enabled", "false");
    config.setProperty("hazelcast.logging.type", "slf4j");
    config.getJetConfig().setEnabled(true).setCooperativeThreadCount(job.whole("threads"));
    // Its default of 1024 events makes the threads wait for each other on busy cores.
    config.getJetConfig().getDefaultEdgeConfig().setQueueSize(QUEUE_EVENTS);
    config.getNetworkConfig().setPort(job.whole("port")).setPortAutoIncrement(false);
    config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
    config.setProperty("hazelcast.socket.bind.any", "false");
    JoinConfig join = config.getNetworkConfig().getJoin();
    join.getAutoDetectionConfig().setEnabled(false);
    join.getMulticastConfig().setEnabled(false);
    join.getTcpIpConfig().setEnabled(false);
    return config;
  }

  public static void main(String[] args) throws Exception {
    job = Job.of(args);
    Progress.start(job.folder());
    HazelcastInstance member = Hazelcast.newHazelcastInstance(config());
    Properties kafka = new Properties();
    kafka.put("bootstrap.servers", job.text("brokers"));
    kafka.put("key.deserializer", ByteArrayDeserializer.class.getName());
    kafka.put("value.deserializer", ByteArrayDeserializer.class.getName());
    kafka.put("auto.offset.reset", "earliest");
    kafka.put("max.poll.records", job.text("pollRecords"));
    AggregateOperation1<Event, Sums, Sums> sums =
        AggregateOperation.withCreate(Sums::new)
            .<Event>andAccumulate((own, event) -> own.add(event))
            .andCombine((own, other) -> own.add(other))
            .andExportFinish(own -> new Sums().add(own));
    Pipeline pipeline = Pipeline.create();
    pipeline
        .readFrom(
            KafkaSources.<byte[], byte[], Event>kafka(
                kafka,
                record -> decoded(record.partition(), record.offset(), record.value()),
                job.text("topic")))
        .withTimestamps(event -> event.time, job.number("delayMs"))
        .groupingKey(event -> event.account)
        .window(windows())
        .aggregate(sums)
        .writeTo(rows());
    JobConfig options = new JobConfig().setProcessingGuarantee(ProcessingGuarantee.NONE);
    try {
      member.getJet().newJob(pipeline, options).join();
    } catch (Throwable error) {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }
}
