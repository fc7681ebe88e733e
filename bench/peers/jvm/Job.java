package peers;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** Arguments NAME=VALUE of a peer, which are the same for every peer (bench/side-by-side/jvm.ts). */
public final class Job {
  private final Map<String, String> values = new HashMap<>();

  public static Job of(String[] args) {
    Job job = new Job();
    for (String arg : args) {
      int at = arg.indexOf('=');
      if (at < 1) throw new IllegalArgumentException("expected NAME=VALUE, not " + arg);
      job.values.put(arg.substring(0, at), arg.substring(at + 1));
    }
    return job;
  }

  public String text(String name) {
    String value = values.get(name);
    if (value == null) throw new IllegalArgumentException(name + "=VALUE is missing");
    return value;
  }

  public long number(String name) {
    return Long.parseLong(text(name));
  }

  public int whole(String name) {
    return Integer.parseInt(text(name));
  }

  /** Folder of the results and of the progress; kept over a restart. */
  public Path folder() {
    return Path.of(text("folder"));
  }

  public boolean isAvro() {
    return text("format").equals("avro");
  }
}
