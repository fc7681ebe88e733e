import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericEnumSymbol;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/**
 * Prints the values that Apache Avro reads. Input line: writer schema, reader schema and payloads,
 * each in base64, separated by spaces. Output line: for each payload the value in a form that both
 * sides can print, or `!` and the error; or `?` and the error if Avro refuses the schemas.
 */
public final class AvroOracle {
  private static final HexFormat HEX = HexFormat.of();

  /** The library's list of doubles rounds each value to a float: PrimitivesArrays.DoubleArray.add of 1.12.0. */
  private static final GenericData PLAIN_LISTS =
      new GenericData() {
        @Override
        public Object newArray(Object old, int size, Schema schema) {
          return new ArrayList<>();
        }
      };

  private AvroOracle() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
    for (String line = in.readLine(); line != null; line = in.readLine()) out.println(answer(line.split(" ", -1)));
    out.flush();
  }

  private static String answer(String[] words) {
    Schema reader;
    GenericDatumReader<Object> datums;
    try {
      Schema writer = parse(words[0]);
      reader = parse(words[1]);
      datums = new GenericDatumReader<>(writer, reader, PLAIN_LISTS);
    } catch (RuntimeException refused) {
      return "?" + refused.getClass().getSimpleName();
    }
    StringBuilder said = new StringBuilder();
    for (int i = 2; i < words.length; i++) {
      if (i > 2) said.append(' ');
      try {
        BinaryDecoder bytes = DecoderFactory.get().binaryDecoder(Base64.getDecoder().decode(words[i]), null);
        Object datum = datums.read(null, bytes);
        said.append(bytes.isEnd() ? print(reader, datum) : "!left-over");
      } catch (Exception refused) {
        said.append('!').append(refused.getClass().getSimpleName());
      }
    }
    return said.toString();
  }

  private static Schema parse(String text) {
    return new Schema.Parser().parse(new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8));
  }

  private static String print(Schema schema, Object datum) {
    switch (schema.getType()) {
      case NULL:
        return "null";
      case BOOLEAN:
        return datum.toString();
      case LONG:
        return datum + "n";
      case INT:
      case FLOAT:
      case DOUBLE:
        return HEX.toHexDigits(Double.doubleToLongBits(((Number) datum).doubleValue()));
      case STRING:
        return "s" + text(datum.toString());
      case ENUM:
        return "s" + text(((GenericEnumSymbol<?>) datum).toString());
      case BYTES: {
        ByteBuffer bytes = ((ByteBuffer) datum).duplicate();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return "b" + HEX.formatHex(copy);
      }
      case FIXED:
        return "b" + HEX.formatHex(((GenericFixed) datum).bytes());
      case ARRAY: {
        StringBuilder items = new StringBuilder("[");
        for (Object item : (Iterable<?>) datum) items.append(print(schema.getElementType(), item)).append(',');
        return items.append(']').toString();
      }
      case MAP: {
        Map<String, String> entries = new TreeMap<>();
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) datum).entrySet())
          entries.put(text(entry.getKey().toString()), print(schema.getValueType(), entry.getValue()));
        return object(entries);
      }
      case RECORD: {
        Map<String, String> entries = new TreeMap<>();
        for (Schema.Field field : schema.getFields())
          entries.put(text(field.name()), print(field.schema(), ((IndexedRecord) datum).get(field.pos())));
        return object(entries);
      }
      case UNION: {
        Schema branch = schema.getTypes().get(GenericData.get().resolveUnion(schema, datum));
        String value = print(branch, datum);
        return datum == null || !looksAlike(schema) ? value : object(Map.of(text(branch.getFullName()), value));
      }
      default:
        throw new IllegalStateException(schema.toString());
    }
  }

  private static String text(String value) {
    return HEX.formatHex(value.getBytes(StandardCharsets.UTF_8));
  }

  private static String object(Map<String, String> entries) {
    StringBuilder said = new StringBuilder("{");
    entries.forEach((key, value) -> said.append(key).append(':').append(value).append(','));
    return said.append('}').toString();
  }

  private static final Map<Schema.Type, String> LOOKS = new HashMap<>();

  static {
    LOOKS.put(Schema.Type.FIXED, "bytes");
    LOOKS.put(Schema.Type.ENUM, "string");
    LOOKS.put(Schema.Type.RECORD, "map");
  }

  /** True if a JavaScript program could confuse two branches. */
  private static boolean looksAlike(Schema union) {
    Set<String> looks = new HashSet<>();
    for (Schema branch : union.getTypes())
      if (!looks.add(LOOKS.getOrDefault(branch.getType(), branch.getType().getName()))) return true;
    return false;
  }
}
