// What consumer and producer share: configuration, and what librdkafka says besides its answers.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

struct rd_kafka_s;
struct rd_kafka_conf_s;

namespace millrace::broker {

using Properties = std::vector<std::pair<std::string, std::string>>;

// librdkafka's numbers that callers compare with.
inline constexpr int kErrTimedOut = -185;
inline constexpr int kErrState = -172;
inline constexpr int kErrDestroy = -197;
// A record larger than the whole arena; outside librdkafka's range.
inline constexpr int kErrOversize = -10000;

struct Place {
  std::string topic;
  std::int32_t partition = -1;
  std::int64_t offset = -1001;
  int error = 0;
};

// An error as a value. `code` 0 means none.
struct Event {
  int code = 0;
  std::string message;
  bool fatal = false;
  std::string topic;
  std::int32_t partition = -1;
};

Event EventOf(int code);

// Errors and log lines of one client, written by librdkafka's threads. Bounded: the oldest go
// first.
class Journal {
 public:
  static constexpr std::size_t kEventsMax = 256;

  void Note(Event event);
  void NoteLog(const char* facility, const char* line);
  std::vector<Event> Take();
  // The last warning or error that was logged; says why no broker answers.
  std::string LastLog();
  bool Fatal(Event* event);

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  std::string last_log_;
  Event fatal_;
};

// Asked between the slices of every wait, so that no call outlives its client by much.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual bool Stopping() = 0;
};

// A configuration with the journal as its opaque and as receiver of logs and errors. Null, and
// `error` set, for a property that librdkafka refuses.
rd_kafka_conf_s* MakeConf(const Properties& properties, Journal* journal, std::string* error);

// Waits for the first answer of a broker, at most `timeout_ms`.
Event Connect(rd_kafka_s* client, Journal* journal, int timeout_ms, Waiter* waiter);

// First and next offset of a partition at the broker.
Event Watermarks(rd_kafka_s* client, const Place& place, int timeout_ms, Waiter* waiter,
                 std::int64_t* low, std::int64_t* high);

// librdkafka's own facts.
std::string LibraryVersion();
std::string LibraryFeatures();
struct ErrorRow {
  int code;
  const char* name;
  const char* text;
};
std::vector<ErrorRow> ErrorTable();

// Monotonic milliseconds.
std::int64_t NowMs();

}  // namespace millrace::broker
