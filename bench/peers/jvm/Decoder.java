package peers;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Reads events: the fixed layout of 256 bytes, or framed Avro through Apache Avro's generic reader
 * with a reader schema of the three needed fields, so that it skips the others. One thread uses an
 * instance.
 */
public final class Decoder {
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle ID =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
  private static final int FIXED_BYTES = 256;
  private static final int FRAME_BYTES = 5;
  private static final List<String> FIELDS = List.of("account_id", "value", "event_ts");

  private final boolean isAvro;
  private final String registry;
  private GenericDatumReader<GenericRecord> reader;
  private int known;
  private BinaryDecoder binary;
  private GenericRecord reused;

  public Decoder(boolean isAvro, String registry) {
    this.isAvro = isAvro;
    this.registry = registry;
  }

  public Decoder(Job job) {
    this(job.isAvro(), job.text("registry"));
  }

  /** Reads a value into an event and returns it. */
  public Event decode(byte[] value, Event into) {
    if (isAvro) return framed(value, into);
    if (value.length != FIXED_BYTES) throw new IllegalArgumentException("an event has 256 bytes");
    into.account = (long) LONG.get(value, 0);
    into.value = (long) LONG.get(value, 8);
    into.time = (long) LONG.get(value, 16);
    return into;
  }

  private Event framed(byte[] value, Event into) {
    try {
      int id = (int) ID.get(value, 1);
      if (reader == null || id != known) open(id);
      binary =
          DecoderFactory.get()
              .binaryDecoder(value, FRAME_BYTES, value.length - FRAME_BYTES, binary);
      reused = reader.read(reused, binary);
      into.account = (Long) reused.get(0);
      into.value = (Long) reused.get(1);
      into.time = (Long) reused.get(2);
      return into;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void open(int id) throws IOException {
    try {
      HttpRequest request =
          HttpRequest.newBuilder(URI.create(registry + "/schemas/ids/" + id)).build();
      String body =
          HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
      Schema writer =
          new Schema.Parser().parse(new ObjectMapper().readTree(body).get("schema").asText());
      List<Schema.Field> fields = new ArrayList<>();
      for (String name : FIELDS) fields.add(new Schema.Field(name, writer.getField(name).schema()));
      Schema wanted =
          Schema.createRecord(writer.getName(), null, writer.getNamespace(), false, fields);
      reader = new GenericDatumReader<>(writer, wanted);
      reused = null;
      known = id;
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
  }
}
