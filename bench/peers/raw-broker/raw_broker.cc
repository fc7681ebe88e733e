// Raw limit of `millrace bench broker`: librdkafka's batch calls in a plain C++ loop that sums
// every payload.
//
//   raw-broker consume|produce TOPIC PARTITIONS COUNT PAYLOAD_BYTES NAME=VALUE …
//
// Prints one line of JSON: {"messages":…,"seconds":…,"cpu_seconds":…,"sum":…}. For consume, the
// clock starts after the first batch, which is not counted; for produce, it runs from the first
// call to the last delivery report. CPU covers the same span. `sum` is the sum of all payload words
// (32 bit, little-endian) modulo 2^32.
#include <librdkafka/rdkafka.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBatch = 10'000;
constexpr std::size_t kBlocks = 4;

double WallSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& at) {
    return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

[[noreturn]] void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void Print(std::size_t messages, double seconds, double cpu, std::uint32_t sum) {
  std::printf("{\"messages\":%zu,\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"sum\":%u}\n", messages,
              seconds, cpu, sum);
}

rd_kafka_t* Open(rd_kafka_type_t type, rd_kafka_conf_t* conf) {
  char error[512];
  rd_kafka_t* client = rd_kafka_new(type, conf, error, sizeof error);
  if (client == nullptr) Fail("client", error);
  return client;
}

std::uint32_t SumOf(const void* payload, std::size_t bytes) {
  std::uint32_t sum = 0;
  const auto* at = static_cast<const unsigned char*>(payload);
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    std::uint32_t word;
    std::memcpy(&word, at + i, 4);
    sum += word;
  }
  return sum;
}

void Consume(rd_kafka_conf_t* conf, const char* topic, int partitions, std::size_t count) {
  rd_kafka_t* client = Open(RD_KAFKA_CONSUMER, conf);
  rd_kafka_poll_set_consumer(client);
  rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(partitions);
  for (int i = 0; i < partitions; i++) {
    rd_kafka_topic_partition_list_add(list, topic, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
  }
  rd_kafka_assign(client, list);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_queue_t* queue = rd_kafka_queue_get_consumer(client);
  std::vector<rd_kafka_message_t*> messages(kBatch);
  std::size_t got = 0;
  std::size_t first = 0;
  std::uint32_t sum = 0;
  double wall = 0;
  double cpu = 0;
  while (got < count) {
    const ssize_t taken =
        rd_kafka_consume_batch_queue(queue, got == 0 ? 20 : 100, messages.data(), messages.size());
    if (taken > 0 && wall == 0) {
      first = static_cast<std::size_t>(taken);
      wall = WallSeconds();
      cpu = CpuSeconds();
    }
    for (ssize_t i = 0; i < taken; i++) {
      rd_kafka_message_t* message = messages[static_cast<std::size_t>(i)];
      if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        sum += SumOf(message->payload, message->len);
        got++;
      }
      rd_kafka_message_destroy(message);
    }
  }
  Print(got - first, WallSeconds() - wall, CpuSeconds() - cpu, sum);
  rd_kafka_queue_destroy(queue);
  rd_kafka_destroy_flags(client, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

struct Block {
  std::vector<std::uint32_t> words;
  std::size_t waiting = 0;
};

std::size_t failures = 0;

void OnReport(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
  static_cast<Block*>(message->_private)->waiting--;
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) failures++;
}

void Produce(rd_kafka_conf_t* conf, const char* name, std::size_t count, std::size_t bytes) {
  rd_kafka_conf_set_dr_msg_cb(conf, OnReport);
  rd_kafka_t* client = Open(RD_KAFKA_PRODUCER, conf);
  rd_kafka_topic_t* topic = rd_kafka_topic_new(client, name, nullptr);
  const rd_kafka_metadata_t* metadata = nullptr;
  if (rd_kafka_metadata(client, 0, topic, &metadata, 10'000) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    Fail("metadata", "no answer");
  }
  rd_kafka_metadata_destroy(metadata);
  const std::size_t words = bytes / 4;
  std::vector<Block> blocks(kBlocks);
  for (Block& block : blocks) block.words.resize(kBatch * words);
  std::vector<rd_kafka_message_t> messages(kBatch);
  std::uint32_t sum = 0;
  const double wall = WallSeconds();
  const double cpu = CpuSeconds();
  for (std::size_t at = 0, turn = 0; at < count; turn++) {
    Block& block = blocks[turn % kBlocks];
    while (block.waiting > 0) rd_kafka_poll(client, 10);
    const std::size_t size = std::min(kBatch, count - at);
    for (std::size_t i = 0; i < size; i++) {
      std::uint32_t* payload = block.words.data() + i * words;
      const std::uint32_t seed = static_cast<std::uint32_t>(at + i) * 0x9e3779b1U;
      for (std::size_t j = 0; j < words; j++) {
        payload[j] = seed + static_cast<std::uint32_t>(j);
        sum += payload[j];
      }
      messages[i] = {};
      messages[i].payload = payload;
      messages[i].len = bytes;
      messages[i]._private = &block;
    }
    block.waiting = size;
    for (std::size_t sent = 0; sent < size;) {
      const auto left = static_cast<int>(size - sent);
      const int taken =
          rd_kafka_produce_batch(topic, RD_KAFKA_PARTITION_UA, 0, messages.data() + sent, left);
      sent += static_cast<std::size_t>(taken);
      rd_kafka_poll(client, taken < left ? 5 : 0);
    }
    at += size;
  }
  for (Block& block : blocks) {
    while (block.waiting > 0) rd_kafka_poll(client, 10);
  }
  if (failures > 0) Fail("produce", "rows failed");
  Print(count, WallSeconds() - wall, CpuSeconds() - cpu, sum);
  rd_kafka_topic_destroy(topic);
  rd_kafka_destroy(client);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) Fail("usage", "consume|produce TOPIC PARTITIONS COUNT PAYLOAD_BYTES NAME=VALUE …");
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char error[512];
  const auto set = [conf, &error](const std::string& pair) {
    const std::size_t at = pair.find('=');
    if (at == std::string::npos) Fail("property", "without a value");
    if (rd_kafka_conf_set(conf, pair.substr(0, at).c_str(), pair.substr(at + 1).c_str(), error,
                          sizeof error) != RD_KAFKA_CONF_OK) {
      Fail("property", error);
    }
  };
  for (int i = 6; i < argc; i++) set(argv[i]);
  // Properties of the user may be secret, and other users see the arguments of a process.
  const char* given = std::getenv("RAW_BROKER_PROPERTIES");
  for (std::string rest = given == nullptr ? "" : given; !rest.empty();) {
    const std::size_t end = rest.find('\x1e');
    set(rest.substr(0, end));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  const auto count = static_cast<std::size_t>(std::strtoull(argv[4], nullptr, 10));
  const auto bytes = static_cast<std::size_t>(std::strtoull(argv[5], nullptr, 10));
  if (std::strcmp(argv[1], "consume") == 0) {
    Consume(conf, argv[2], std::atoi(argv[3]), count);
  } else {
    Produce(conf, argv[2], count, bytes);
  }
  return 0;
}
