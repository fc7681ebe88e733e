// Raw limit of `millrace bench engine-kernel`: accumulates events in plain open-addressing tables,
// one for each window, presized, on huge pages, with prefetching 16 events ahead.
//
//   raw-window FILE SLOTS REPEATS [fresh]
//
// FILE holds events of 32 bytes: account_id, value, event_ts, window_start. SLOTS is a power of two
// above the number of keys of any window. Prints one line of JSON:
// {"events":…,"seconds":[…],"rows":…,"count":…,"sum":…}, where sum is the sum over all rows of sum
// * (account_id + window_start) modulo 2^64. Seconds are CPU seconds of the loop only: the memory
// was touched before. With `fresh` each repeat gets its pages from the system, as the first window
// of an engine does.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "windows.h"

using namespace raw_window;

int main(int argc, char **argv) {
  const bool is_fresh = argc == 5 && std::strcmp(argv[4], "fresh") == 0;
  if (argc != 4 && !is_fresh) {
    std::fprintf(stderr, "usage: %s FILE SLOTS REPEATS [fresh]\n", argv[0]);
    return 2;
  }
  const int file = open(argv[1], O_RDONLY);
  struct stat info;
  if (file < 0 || fstat(file, &info) != 0)
    Fail(argv[1]);
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void *mapped =
      mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  if (mapped == MAP_FAILED)
    Fail("mmap");
  const auto *events = static_cast<const Event *>(mapped);
  const std::size_t count = bytes / sizeof(Event);
  const std::size_t slots = std::strtoull(argv[2], nullptr, 10);
  auto windows = std::make_unique<Windows>(slots, is_fresh);
  for (std::size_t i = 0; !is_fresh && i < count; i++)
    windows->Of(events[i].window_start);

  std::printf("{\"events\":%zu,\"seconds\":[", count);
  const int repeats = std::atoi(argv[3]);
  for (int run = 0; run < repeats; run++) {
    if (is_fresh) {
      windows.reset();
      windows = std::make_unique<Windows>(slots, true);
    } else {
      windows->Clear();
    }
    const double from = CpuSeconds();
    Fold(events, count, windows.get());
    std::printf("%s%.6f", run == 0 ? "" : ",", CpuSeconds() - from);
  }
  const Total total = TotalOf(*windows);
  std::printf("],\"rows\":\"%llu\",\"count\":\"%llu\",\"sum\":\"%llu\"}\n",
              static_cast<unsigned long long>(total.rows),
              static_cast<unsigned long long>(total.count),
              static_cast<unsigned long long>(total.sum));
  return 0;
}
