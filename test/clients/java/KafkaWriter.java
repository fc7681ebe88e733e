import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records with the Java client: one request a line of stdin, one answer a line of stdout.
 *
 * <p>Argument: the brokers. Requests, with bytes as base64: send (a producer without transactions), begin, sendIn and end
 * (a transaction), quota (bytes that the clients of an id may read in a second).
 */
public final class KafkaWriter {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String brokers;
  private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

  private KafkaWriter(String brokers) {
    this.brokers = brokers;
  }

  public static void main(String[] args) throws Exception {
    KafkaWriter writer = new KafkaWriter(args[0]);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Map<String, String> answer = new HashMap<>();
      try {
        writer.handle(JSON.readTree(line));
      } catch (Exception failed) {
        answer.put("error", failed.toString());
      }
      out.println(JSON.writeValueAsString(answer));
    }
    for (KafkaProducer<byte[], byte[]> one : writer.producers.values()) one.close();
  }

  private void handle(JsonNode request) throws Exception {
    switch (request.get("op").asText()) {
      case "send" -> send(producer(request, null), request);
      case "begin" -> transactional(request).beginTransaction();
      case "sendIn" -> send(transactional(request), request);
      case "end" -> {
        if (request.get("commit").asBoolean()) transactional(request).commitTransaction();
        else transactional(request).abortTransaction();
      }
      case "quota" -> quota(request);
      default -> throw new IllegalArgumentException("unknown request " + request.get("op"));
    }
  }

  private KafkaProducer<byte[], byte[]> transactional(JsonNode request) {
    return producer(request, request.get("transactionalId").asText());
  }

  /** A new producer for each codec, batch size and transactional id. */
  private KafkaProducer<byte[], byte[]> producer(JsonNode request, String transactionalId) {
    String codec = request.get("codec").asText();
    String batchBytes = request.get("batchBytes").asText();
    return producers.computeIfAbsent(codec + " " + batchBytes + " " + transactionalId, key -> {
      Properties properties = new Properties();
      properties.put("bootstrap.servers", brokers);
      properties.put("compression.type", codec);
      properties.put("batch.size", batchBytes);
      properties.put("linger.ms", "5");
      if (transactionalId != null) properties.put("transactional.id", transactionalId);
      KafkaProducer<byte[], byte[]> made =
          new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
      if (transactionalId != null) made.initTransactions();
      return made;
    });
  }

  private static void send(KafkaProducer<byte[], byte[]> producer, JsonNode request) throws Exception {
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    for (JsonNode record : request.get("records")) {
      List<Header> headers = new ArrayList<>();
      for (JsonNode header : record.get("headers"))
        headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
      sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), record.get("partition").asInt(),
          Long.valueOf(record.get("timestamp").asText()), bytes(record.get("key")), bytes(record.get("value")), headers)));
    }
    producer.flush();
    for (Future<RecordMetadata> one : sent) one.get();
  }

  private static byte[] bytes(JsonNode text) {
    return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
  }

  private void quota(JsonNode request) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", brokers);
    try (Admin admin = Admin.create(properties)) {
      ClientQuotaEntity client =
          new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, request.get("clientId").asText()));
      ClientQuotaAlteration.Op most =
          new ClientQuotaAlteration.Op("consumer_byte_rate", request.get("bytesPerSecond").asDouble());
      admin.alterClientQuotas(List.of(new ClientQuotaAlteration(client, List.of(most)))).all().get();
    }
  }
}
