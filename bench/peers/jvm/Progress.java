package peers;

import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;

/**
 * Position of this process in the topic and the number of its results, in a mapped file that the
 * benchmark reads: 64 next offsets by partition, then rows, and the wall clock in ms at which the
 * first event, the first row and the last row were seen (0: none yet), all as little-endian i64.
 */
public final class Progress {
  private static final int PARTITIONS_MAX = 64;
  /** Distance of two counters in longs, so that they share no cache line. */
  private static final int STRIDE = 16;
  private static final long TICK_MS = 20;

  private static final AtomicLongArray NEXT = new AtomicLongArray(PARTITIONS_MAX * STRIDE);
  private static final LongAdder ROWS = new LongAdder();

  private Progress() {}

  /** Records that the event was read. */
  public static void event(int partition, long offset) {
    NEXT.lazySet(partition * STRIDE, offset + 1);
  }

  /** Records a result. */
  static void row() {
    ROWS.increment();
  }

  /** Publishes the progress every 20 ms until the process ends. */
  public static void start(Path folder) throws IOException {
    Path path = folder.resolve("progress");
    LongBuffer file;
    try (FileChannel channel =
        FileChannel.open(
            path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      file =
          channel
              .map(FileChannel.MapMode.READ_WRITE, 0, (PARTITIONS_MAX + 4) * 8L)
              .order(ByteOrder.LITTLE_ENDIAN)
              .asLongBuffer();
    }
    for (int i = 0; i < PARTITIONS_MAX + 4; i++) file.put(i, 0);
    Thread thread = new Thread(() -> publish(file), "progress");
    thread.setDaemon(true);
    thread.start();
  }

  private static void publish(LongBuffer file) {
    long known = 0;
    boolean started = false;
    for (; ; ) {
      long now = System.currentTimeMillis();
      long position = 0;
      for (int i = 0; i < PARTITIONS_MAX; i++) {
        long next = NEXT.get(i * STRIDE);
        position += next;
        file.put(i, next);
      }
      if (!started && position > 0) {
        started = true;
        file.put(PARTITIONS_MAX + 1, now);
      }
      long rows = ROWS.sum();
      if (rows > known) {
        if (known == 0) file.put(PARTITIONS_MAX + 2, now);
        file.put(PARTITIONS_MAX + 3, now);
        known = rows;
        file.put(PARTITIONS_MAX, rows);
      }
      try {
        Thread.sleep(TICK_MS);
      } catch (InterruptedException e) {
        return;
      }
    }
  }
}
