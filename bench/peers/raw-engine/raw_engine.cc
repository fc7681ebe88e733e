// Raw limit of `millrace bench engine`: librdkafka's batch calls in a plain C++ loop; each event is
// decoded and accumulated in the table of its tumbling window. Nothing is logged, fired or saved.
//
//   raw-engine TOPIC PARTITIONS COUNT SIZE_MS SLOTS NAME=VALUE …
//
// Reads COUNT events of 256 bytes; SLOTS is a power of two above the number of keys of any window.
// Prints one line of JSON: {"events":…,"seconds":…,"cpu_seconds":…,"rows":…,"count":…,"sum":…}.
// events, seconds and cpu_seconds (all threads) start at a third of COUNT; rows, count and sum
// cover all events, where sum is the sum over all rows of sum * (account_id + window_start) modulo
// 2^64.
#include <librdkafka/rdkafka.h>

#include <chrono>
#include <string>

#include "../raw-window/windows.h"

using namespace raw_window;

namespace {

constexpr std::size_t kBatch = 10'000;
constexpr std::size_t kEventBytes = 256;
constexpr int kWaitMs = 100;

double WallSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

[[noreturn]] void Stop(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

rd_kafka_t* Open(int argc, char** argv) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char error[512];
  for (int i = 6; i < argc; i++) {
    const std::string pair = argv[i];
    const std::size_t at = pair.find('=');
    if (at == std::string::npos) Stop("property", argv[i]);
    if (rd_kafka_conf_set(conf, pair.substr(0, at).c_str(), pair.substr(at + 1).c_str(), error,
                          sizeof error) != RD_KAFKA_CONF_OK) {
      Stop("property", error);
    }
  }
  rd_kafka_t* client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
  if (client == nullptr) Stop("client", error);
  return client;
}

// Euclidean modulo: a window contains the times from its start on, including negative times.
std::int64_t StartOf(std::int64_t time, std::int64_t size) {
  const std::int64_t past = time % size;
  return time - (past < 0 ? past + size : past);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) Stop("usage", "TOPIC PARTITIONS COUNT SIZE_MS SLOTS NAME=VALUE …");
  const int partitions = std::atoi(argv[2]);
  const std::size_t count = std::strtoull(argv[3], nullptr, 10);
  const std::int64_t size = std::strtoll(argv[4], nullptr, 10);
  Windows windows(std::strtoull(argv[5], nullptr, 10));
  rd_kafka_t* client = Open(argc, argv);
  rd_kafka_poll_set_consumer(client);
  rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(partitions);
  for (int i = 0; i < partitions; i++) {
    rd_kafka_topic_partition_list_add(list, argv[1], i)->offset = RD_KAFKA_OFFSET_BEGINNING;
  }
  rd_kafka_assign(client, list);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_queue_t* queue = rd_kafka_queue_get_consumer(client);
  std::vector<rd_kafka_message_t*> messages(kBatch);
  std::vector<Event> events(kBatch);
  std::size_t got = 0;
  std::size_t first = 0;
  double wall = 0;
  double cpu = 0;
  while (got < count) {
    const ssize_t taken =
        rd_kafka_consume_batch_queue(queue, kWaitMs, messages.data(), messages.size());
    std::size_t rows = 0;
    for (ssize_t i = 0; i < taken; i++) {
      rd_kafka_message_t* message = messages[static_cast<std::size_t>(i)];
      if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR && message->len == kEventBytes) {
        Event& event = events[rows++];
        std::memcpy(&event, message->payload, 24);
        event.window_start = StartOf(event.event_ts, size);
      }
      rd_kafka_message_destroy(message);
    }
    Fold(events.data(), rows, &windows);
    got += rows;
    if (wall == 0 && got >= count / 3) {
      first = got;
      wall = WallSeconds();
      cpu = CpuSeconds();
    }
  }
  const double seconds = WallSeconds() - wall;
  const double spent = CpuSeconds() - cpu;
  const Total total = TotalOf(windows);
  std::printf(
      "{\"events\":%zu,\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"rows\":\"%llu\",\"count\":\"%llu\","
      "\"sum\":\"%llu\"}\n",
      got - first, seconds, spent, static_cast<unsigned long long>(total.rows),
      static_cast<unsigned long long>(total.count), static_cast<unsigned long long>(total.sum));
  rd_kafka_queue_destroy(queue);
  rd_kafka_destroy_flags(client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
  return 0;
}
