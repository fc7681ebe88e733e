// Common part of consumer and producer: configuration, and the errors and log lines of librdkafka.
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

// Error numbers of librdkafka that callers compare with.
inline constexpr int kErrTimedOut = -185;
inline constexpr int kErrState = -172;
inline constexpr int kErrDestroy = -197;
// Error of a record larger than the whole arena; outside librdkafka's range.
inline constexpr int kErrOversize = -10000;

// Topic partition with an offset; -1001: no offset (RD_KAFKA_OFFSET_INVALID).
struct Place {
  std::string topic;
  std::int32_t partition = -1;
  std::int64_t offset = -1001;
  int error = 0;
};

// Error as a value; `code` 0: no error.
struct Event {
  int code = 0;
  std::string message;
  bool fatal = false;
  std::string topic;
  std::int32_t partition = -1;
};

Event EventOf(int code);

// Journal of errors and log lines of one client, written by librdkafka's threads. Bounded: the
// oldest are dropped.
class Journal {
 public:
  static constexpr std::size_t kEventsMax = 256;
  static constexpr std::size_t kLogsMax = 16;

  void Note(Event event);
  void NoteLog(const char* facility, const char* line);
  std::vector<Event> Drain();
  // Last warnings, errors and failures of connections that were logged since a broker answered, the
  // newest at the end: the reasons why none answers. librdkafka logs the same failure of a broker
  // twice a minute only.
  std::string Logs();
  void ClearLogs();
  bool Fatal(Event* event);

 private:
  std::mutex mutex_;
  std::deque<Event> events_;
  std::deque<std::string> logs_;
  Event fatal_;
};

// Stop condition that every blocking call polls between its time slices, so that no call outlives
// its client for long.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual bool Stopping() = 0;
};

// Makes a configuration with the journal as its opaque pointer and as receiver of logs and errors.
// Null, with `error` set, for a property that librdkafka refuses.
rd_kafka_conf_s* MakeConf(const Properties& properties, Journal* journal, std::string* error);

// Sends one request and waits at most `timeout_ms` for its answer, and 2 s at most, because a stop
// waits as long. The caller repeats it. The message of the error is the journal's log lines.
Event Connect(rd_kafka_s* client, Journal* journal, int timeout_ms);

// Reads the first and the next offset of a partition from the broker.
Event Watermarks(rd_kafka_s* client, const Place& place, int timeout_ms, Waiter* waiter,
                 std::int64_t* low, std::int64_t* high);

// Version, features and error table of librdkafka.
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
