#include "broker/client.h"

#include <syslog.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "broker/library.h"

namespace millrace::broker {
namespace {

// Time slices of a blocking call into librdkafka: a stop waits for at most one slice. Each slice
// sends a new request and drops late answers, so slices grow: a slow broker is heard too.
constexpr int kSliceMs = 250;
constexpr int kSliceMsMax = 2000;

Journal* JournalOf(const rd_kafka_t* client) {
  return static_cast<Journal*>(rd_kafka_opaque(client));
}

void OnError(rd_kafka_t* client, int code, const char* reason, void* opaque) {
  Event event = EventOf(code);
  if (reason != nullptr) event.message = reason;
  if (code == RD_KAFKA_RESP_ERR__FATAL) {
    char text[512];
    event.code = static_cast<int>(rd_kafka_fatal_error(client, text, sizeof text));
    event.message = text;
    event.fatal = true;
  }
  static_cast<Journal*>(opaque)->Note(std::move(event));
}

void OnLog(const rd_kafka_t* client, int level, const char* facility, const char* line) {
  // librdkafka logs the end of a connection as a failure, however severe.
  const bool is_reason = level <= LOG_WARNING || std::strcmp(facility, "FAIL") == 0;
  if (is_reason && client != nullptr) JournalOf(client)->NoteLog(facility, line);
}

}  // namespace

Event EventOf(int code) {
  Event event;
  event.code = code;
  event.message = rd_kafka_err2str(static_cast<rd_kafka_resp_err_t>(code));
  return event;
}

void Journal::Note(Event event) {
  const std::lock_guard lock(mutex_);
  if (event.fatal && fatal_.code == 0) fatal_ = event;
  if (events_.size() >= kEventsMax) events_.pop_front();
  events_.push_back(std::move(event));
}

void Journal::NoteLog(const char* facility, const char* line) {
  const std::lock_guard lock(mutex_);
  if (logs_.size() >= kLogsMax) logs_.pop_front();
  logs_.push_back(std::string(facility) + ": " + line);
}

std::vector<Event> Journal::Drain() {
  const std::lock_guard lock(mutex_);
  std::vector<Event> out(events_.begin(), events_.end());
  events_.clear();
  return out;
}

std::string Journal::Logs() {
  const std::lock_guard lock(mutex_);
  std::string lines;
  for (const std::string& line : logs_) lines += lines.empty() ? line : "\n" + line;
  return lines;
}

void Journal::ClearLogs() {
  const std::lock_guard lock(mutex_);
  logs_.clear();
}

bool Journal::Fatal(Event* event) {
  const std::lock_guard lock(mutex_);
  if (fatal_.code == 0) return false;
  *event = fatal_;
  return true;
}

rd_kafka_conf_t* MakeConf(const Properties& properties, Journal* journal, std::string* error) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char text[512];
  for (const auto& [name, value] : properties) {
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), text, sizeof text) !=
        RD_KAFKA_CONF_OK) {
      *error = text;
      rd_kafka_conf_destroy(conf);
      return nullptr;
    }
  }
  rd_kafka_conf_set_opaque(conf, journal);
  rd_kafka_conf_set_error_cb(conf, OnError);
  rd_kafka_conf_set_log_cb(conf, OnLog);
  return conf;
}

Event Connect(rd_kafka_t* client, Journal* journal, int timeout_ms) {
  const rd_kafka_metadata_t* metadata = nullptr;
  const rd_kafka_resp_err_t code =
      rd_kafka_metadata(client, 0, nullptr, &metadata, std::min(timeout_ms, kSliceMsMax));
  if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
    rd_kafka_metadata_destroy(metadata);
    journal->ClearLogs();
    return {};
  }
  Event event = EventOf(code);
  if (std::string why = journal->Logs(); !why.empty()) event.message = std::move(why);
  return event;
}

Event Watermarks(rd_kafka_t* client, const Place& place, int timeout_ms, Waiter* waiter,
                 std::int64_t* low, std::int64_t* high) {
  const std::int64_t deadline = NowMs() + timeout_ms;
  for (int slice_ms = 4 * kSliceMs;; slice_ms = std::min(2 * slice_ms, kSliceMsMax)) {
    const auto left = static_cast<int>(std::max<std::int64_t>(1, deadline - NowMs()));
    const rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
        client, place.topic.c_str(), place.partition, low, high, std::min(left, slice_ms));
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) return {};
    const bool again = code == RD_KAFKA_RESP_ERR__TIMED_OUT ||
                       code == RD_KAFKA_RESP_ERR__TRANSPORT ||
                       code == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
    if (waiter->Stopping()) return EventOf(kErrDestroy);
    if (!again || NowMs() >= deadline) return EventOf(code);
  }
}

std::string LibraryVersion() { return rd_kafka_version_str(); }

std::string LibraryFeatures() {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  char text[512];
  std::size_t size = sizeof text;
  const rd_kafka_conf_res_t found = rd_kafka_conf_get(conf, "builtin.features", text, &size);
  rd_kafka_conf_destroy(conf);
  return found == RD_KAFKA_CONF_OK ? text : "";
}

std::vector<ErrorRow> ErrorTable() {
  const rd_kafka_err_desc* rows = nullptr;
  std::size_t count = 0;
  rd_kafka_get_err_descs(&rows, &count);
  std::vector<ErrorRow> out;
  for (std::size_t i = 0; i < count; i++) {
    if (rows[i].name == nullptr || rows[i].desc == nullptr) continue;
    out.push_back({static_cast<int>(rows[i].code), rows[i].name, rows[i].desc});
  }
  return out;
}

std::int64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace millrace::broker
