// Raw limit of `millrace bench fetch`: a minimal client of Kafka's protocol, which fetches from the
// leaders of a topic and walks the record batches in place; each event is accumulated in the table
// of its tumbling window, whose memory was touched before. Nothing is copied, checked, logged,
// fired or saved: no CRC, no transactions, no new leaders, no TLS; an error ends the program.
//
//   raw-fetch TOPIC COUNT SIZE_MS SLOTS HOST:PORT PARTITION_BYTES RESPONSE_BYTES
//
// Reads COUNT events of 256 bytes from offset 0 on, uncompressed or in lz4; SLOTS is a power of two
// above the number of keys of any window. Prints the same line of JSON as raw-engine.
//
// Source: Kafka protocol guide, Metadata 1, Fetch 4, "Record Batch".
#include <lz4frame.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "../raw-window/windows.h"

using namespace raw_window;

namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kEventBytes = 256;
constexpr int kWaitMs = 100;
// Windows of two minutes of event time, with a margin.
constexpr int kTables = 4;
// Head of a batch, and places in it.
constexpr std::size_t kHeadBytes = 61;
constexpr std::size_t kPrefixBytes = 12;
constexpr std::size_t kLengthAt = 8;
constexpr std::size_t kAttributesAt = 21;
constexpr std::size_t kLastDeltaAt = 23;
constexpr std::size_t kCountAt = 57;
constexpr int kLz4 = 3;

double WallSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

[[noreturn]] void Stop(const char* what) {
  std::fprintf(stderr, "raw-fetch: %s\n", what);
  std::exit(1);
}

template <typename T>
T BigEndian(const std::uint8_t* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); i++) value = static_cast<T>((value << 8) | at[i]);
  return value;
}

// Fields of a response, in order.
struct Fields {
  const std::uint8_t* at;
  template <typename T>
  T Next() {
    const T value = BigEndian<T>(at);
    at += sizeof(T);
    return value;
  }
  std::int16_t I16() { return static_cast<std::int16_t>(Next<std::uint16_t>()); }
  std::int32_t I32() { return static_cast<std::int32_t>(Next<std::uint32_t>()); }
  std::string Text() {
    const std::int16_t size = I16();
    if (size < 0) return {};
    std::string text(reinterpret_cast<const char*>(at), static_cast<std::size_t>(size));
    at += size;
    return text;
  }
};

struct Request {
  std::string bytes = std::string(4, '\0');
  Request(int key, int version) {
    I16(key);
    I16(version);
    I32(1);
    Text("raw-fetch");
  }
  void Number(std::uint64_t value, int size) {
    for (int i = size - 1; i >= 0; i--) bytes += static_cast<char>(value >> (8 * i));
  }
  void I8(int value) { Number(static_cast<std::uint64_t>(value), 1); }
  void I16(int value) { Number(static_cast<std::uint64_t>(value), 2); }
  void I32(std::int64_t value) { Number(static_cast<std::uint64_t>(value), 4); }
  void I64(std::int64_t value) { Number(static_cast<std::uint64_t>(value), 8); }
  void Text(const std::string& text) {
    I16(static_cast<int>(text.size()));
    bytes += text;
  }
  void Send(int socket) {
    const std::size_t size = bytes.size() - 4;
    for (int i = 0; i < 4; i++)
      bytes[static_cast<std::size_t>(i)] = static_cast<char>(size >> (24 - 8 * i));
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t done = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (done <= 0) Stop("send failed");
      sent += static_cast<std::size_t>(done);
    }
  }
};

int Connect(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) Stop("the host has no address");
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const int made = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
    if (made >= 0 && connect(made, one->ai_addr, one->ai_addrlen) == 0) {
      const int on = 1;
      setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      freeaddrinfo(list);
      return made;
    }
    if (made >= 0) close(made);
  }
  Stop("no broker is reachable");
}

// Response without its size. The memory is reused.
struct Frame {
  std::unique_ptr<std::uint8_t[]> bytes;
  std::size_t capacity = 0;
};

void ReceiveAll(int socket, std::uint8_t* into, std::size_t size) {
  for (std::size_t have = 0; have < size;) {
    const ssize_t done = recv(socket, into + have, size - have, 0);
    if (done <= 0) Stop("the broker closed the connection");
    have += static_cast<std::size_t>(done);
  }
}

void Receive(int socket, Frame* into) {
  std::uint8_t head[4];
  ReceiveAll(socket, head, sizeof head);
  const std::size_t size = BigEndian<std::uint32_t>(head);
  if (size > into->capacity) {
    into->bytes.reset(new std::uint8_t[size]);
    into->capacity = size;
  }
  ReceiveAll(socket, into->bytes.get(), size);
}

// Varint in ZigZag form.
std::int64_t Signed(const std::uint8_t** at) {
  std::uint64_t raw = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t byte = *(*at)++;
    raw |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80U) return static_cast<std::int64_t>((raw >> 1) ^ (~(raw & 1) + 1));
  }
}

// Euclidean modulo: a window contains the times from its start on, including negative times.
std::int64_t StartOf(std::int64_t time, std::int64_t size) {
  const std::int64_t past = time % size;
  return time - (past < 0 ? past + size : past);
}

struct Partition {
  std::int32_t number;
  std::int64_t offset = 0;
};

struct Node {
  std::int32_t id;
  int socket;
  std::vector<Partition> partitions;
};

class Loop {
 public:
  Loop(char** argv)
      : topic_(argv[1]),
        count_(std::strtoull(argv[2], nullptr, 10)),
        size_ms_(std::strtoll(argv[3], nullptr, 10)),
        windows_(std::strtoull(argv[4], nullptr, 10)),
        partition_bytes_(std::atoi(argv[6])),
        response_bytes_(std::atoi(argv[7])) {
    LZ4F_createDecompressionContext(&lz4_, LZ4F_VERSION);
    windows_.Reserve(kTables);
    FindLeaders(argv[5]);
  }

  void Run() {
    for (Node& node : nodes_) Fetch(&node);
    std::vector<pollfd> polled;
    for (const Node& node : nodes_) polled.push_back({node.socket, POLLIN, 0});
    Frame frame;
    while (got_ < count_) {
      if (poll(polled.data(), polled.size(), -1) < 0) Stop("poll failed");
      for (std::size_t i = 0; i < nodes_.size(); i++) {
        if (polled[i].revents == 0) continue;
        Receive(nodes_[i].socket, &frame);
        Handle(&nodes_[i], frame.bytes.get());
      }
    }
    seconds_ = WallSeconds() - wall_;
    spent_ = CpuSeconds() - cpu_;
  }

  void Print() const {
    const Total total = TotalOf(windows_);
    std::printf(
        "{\"events\":%zu,\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"rows\":\"%llu\",\"count\":\"%"
        "llu\",\"sum\":\"%llu\"}\n",
        got_ - first_, seconds_, spent_, static_cast<unsigned long long>(total.rows),
        static_cast<unsigned long long>(total.count), static_cast<unsigned long long>(total.sum));
  }

 private:
  void FindLeaders(const std::string& bootstrap) {
    const std::size_t colon = bootstrap.rfind(':');
    const int first = Connect(bootstrap.substr(0, colon), bootstrap.substr(colon + 1));
    Request request(3, 1);
    request.I32(1);
    request.Text(topic_);
    request.Send(first);
    Frame frame;
    Receive(first, &frame);
    close(first);
    Fields fields{frame.bytes.get() + 4};
    for (std::int32_t left = fields.I32(); left > 0; left--) {
      const std::int32_t id = fields.I32();
      const std::string host = fields.Text();
      const std::int32_t port = fields.I32();
      fields.Text();
      nodes_.push_back({id, Connect(host, std::to_string(port)), {}});
    }
    fields.I32();
    if (fields.I32() != 1 || fields.I16() != 0) Stop("the topic does not exist");
    fields.Text();
    fields.at++;
    for (std::int32_t left = fields.I32(); left > 0; left--) {
      fields.I16();
      const std::int32_t number = fields.I32();
      const std::int32_t leader = fields.I32();
      for (int list = 0; list < 2; list++) fields.at += 4 * fields.I32();
      for (Node& node : nodes_) {
        if (node.id == leader) node.partitions.push_back({number});
      }
    }
    std::erase_if(nodes_, [](const Node& node) { return node.partitions.empty(); });
  }

  void Fetch(Node* node) const {
    Request request(1, 4);
    request.I32(-1);
    request.I32(kWaitMs);
    request.I32(1);
    request.I32(response_bytes_);
    request.I8(0);
    request.I32(1);
    request.Text(topic_);
    request.I32(static_cast<std::int64_t>(node->partitions.size()));
    for (const Partition& one : node->partitions) {
      request.I32(one.number);
      request.I64(one.offset);
      request.I32(partition_bytes_);
    }
    request.Send(node->socket);
  }

  // Asks for the next records first, so that the broker works meanwhile.
  void Handle(Node* node, const std::uint8_t* body) {
    Fields fields{body + 8};
    records_.clear();
    for (std::int32_t topics = fields.I32(); topics > 0; topics--) {
      fields.Text();
      for (std::int32_t left = fields.I32(); left > 0; left--) {
        const std::int32_t number = fields.I32();
        if (fields.I16() != 0) Stop("the broker refused a fetch");
        fields.at += 16;
        const std::int32_t aborted = fields.I32();
        if (aborted > 0) fields.at += 16 * aborted;
        const std::int32_t size = fields.I32();
        if (size <= 0) continue;
        records_.push_back({fields.at, fields.at + size});
        for (Partition& one : node->partitions) {
          if (one.number == number) one.offset = EndOf(fields.at, fields.at + size, one.offset);
        }
        fields.at += size;
      }
    }
    Fetch(node);
    for (const auto& [at, end] : records_) Walk(at, end);
  }

  static std::size_t SizeOf(const std::uint8_t* batch) {
    return kPrefixBytes + BigEndian<std::uint32_t>(batch + kLengthAt);
  }
  // True for a whole batch; the last may be cut.
  static bool IsWhole(const std::uint8_t* at, const std::uint8_t* end) {
    const auto left = static_cast<std::size_t>(end - at);
    return left >= kHeadBytes && left >= SizeOf(at);
  }

  static std::int64_t EndOf(const std::uint8_t* at, const std::uint8_t* end, std::int64_t offset) {
    for (; IsWhole(at, end); at += SizeOf(at)) {
      offset = static_cast<std::int64_t>(BigEndian<std::uint64_t>(at)) +
               BigEndian<std::uint32_t>(at + kLastDeltaAt) + 1;
    }
    return offset;
  }

  void Walk(const std::uint8_t* at, const std::uint8_t* end) {
    for (; IsWhole(at, end); at += SizeOf(at)) {
      const int codec = BigEndian<std::uint16_t>(at + kAttributesAt) & 7;
      const std::uint8_t* records = at + kHeadBytes;
      if (codec == kLz4) {
        records = Inflate(records, SizeOf(at) - kHeadBytes);
      } else if (codec != 0) {
        Stop("the batch has another codec than lz4");
      }
      Accumulate(records, BigEndian<std::uint32_t>(at + kCountAt));
    }
  }

  const std::uint8_t* Inflate(const std::uint8_t* from, std::size_t size) {
    std::size_t used = 0;
    for (;;) {
      if (out_.size() - used < (std::size_t{1} << 18)) out_.resize(2 * out_.size() + (1 << 20));
      std::size_t done = out_.size() - used;
      std::size_t taken = size;
      const std::size_t left =
          LZ4F_decompress(lz4_, out_.data() + used, &done, from, &taken, nullptr);
      if (LZ4F_isError(left) != 0) Stop("a batch is not lz4");
      used += done;
      from += taken;
      size -= taken;
      if (left == 0) return out_.data();
      if (taken == 0 && done == 0) Stop("a batch is cut");
    }
  }

  void Accumulate(const std::uint8_t* at, std::uint32_t count) {
    std::size_t rows = 0;
    for (std::uint32_t i = 0; i < count; i++) {
      const std::int64_t length = Signed(&at);
      const std::uint8_t* const next = at + length;
      at++;  // attributes
      Signed(&at);
      Signed(&at);
      const std::int64_t key = Signed(&at);
      if (key > 0) at += key;
      if (Signed(&at) != kEventBytes) Stop("an event has another size");
      Event& event = events_[rows++];
      std::memcpy(&event, at, 24);
      event.window_start = StartOf(event.event_ts, size_ms_);
      at = next;
      if (rows == kBlock) {
        Fold(events_, rows, &windows_);
        rows = 0;
      }
    }
    Fold(events_, rows, &windows_);
    got_ += count;
    if (wall_ == 0 && got_ >= count_ / 3) {
      first_ = got_;
      wall_ = WallSeconds();
      cpu_ = CpuSeconds();
    }
  }

  const std::string topic_;
  const std::size_t count_;
  const std::int64_t size_ms_;
  Windows windows_;
  const int partition_bytes_;
  const int response_bytes_;
  std::vector<Node> nodes_;
  LZ4F_dctx* lz4_ = nullptr;
  std::vector<std::uint8_t> out_;
  std::vector<std::pair<const std::uint8_t*, const std::uint8_t*>> records_;
  Event events_[kBlock];
  std::size_t got_ = 0;
  std::size_t first_ = 0;
  double wall_ = 0;
  double cpu_ = 0;
  double seconds_ = 0;
  double spent_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) Stop("usage: TOPIC COUNT SIZE_MS SLOTS HOST:PORT PARTITION_BYTES RESPONSE_BYTES");
  const auto loop = std::make_unique<Loop>(argv);
  loop->Run();
  loop->Print();
  return 0;
}
