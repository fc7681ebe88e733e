package peers;

import java.io.Closeable;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import sun.misc.Unsafe;

/**
 * File of results, 40 bytes each: account, start, end, count and sum as little-endian i64. A row with
 * count 0 is unused space. The pages are mapped, so a row is in the file as soon as `add` returns,
 * even if the process is killed, and costs no system call. One thread uses an instance.
 */
public final class Rows implements Closeable {
  private static final int ROW_BYTES = 40;
  private static final int CHUNK_BYTES = ROW_BYTES * 26_214;
  private static final Unsafe UNSAFE = unsafe();

  private final FileChannel channel;
  private MappedByteBuffer chunk;
  private long end;

  public Rows(Path folder) throws IOException {
    Path path = Files.createTempFile(folder, "rows-", ".bin");
    channel = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE);
    next();
  }

  public void add(long account, long start, long stop, long count, long sum) throws IOException {
    if (chunk.remaining() < ROW_BYTES) next();
    chunk.putLong(account).putLong(start).putLong(stop).putLong(count).putLong(sum);
    Progress.row();
  }

  /** Unmaps the full chunk, so that it does not count as memory of the peer, and maps the next. */
  private void next() throws IOException {
    if (chunk != null) UNSAFE.invokeCleaner(chunk);
    chunk = channel.map(FileChannel.MapMode.READ_WRITE, end, CHUNK_BYTES);
    chunk.order(ByteOrder.LITTLE_ENDIAN);
    end += CHUNK_BYTES;
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }

  private static Unsafe unsafe() {
    try {
      Field field = Unsafe.class.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      return (Unsafe) field.get(null);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
