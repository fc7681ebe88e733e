#include "broker/producer.h"

#include <algorithm>
#include <cstring>

#include "broker/library.h"

namespace millrace::broker {
namespace {

// Number of rows that are sent between two polls for delivery reports.
constexpr std::uint32_t kRunRows = 1024;
constexpr int kFullWaitMs = 5;
constexpr int kSliceMs = 100;
constexpr int kTransactionSliceMs = 500;
constexpr int kRetryMs = 20;
// Bits of the row number inside a message's opaque pointer: the limit of rows in a batch.
constexpr unsigned kRowBits = 24;

bool SpansInside(const RecordRows& rows) {
  const layout::RecordBatch& batch = rows.at;
  for (std::uint32_t row = 0; row < rows.row_count; row++) {
    const auto inside = [&](std::uint32_t start, std::int32_t length) {
      return length < 0 || kernel::Inside(start, length, rows.arena_capacity);
    };
    if (!inside(batch.key_start[row], batch.key_length[row]) ||
        !inside(batch.value_start[row], batch.value_length[row]) ||
        !inside(batch.headers_start[row], batch.headers_length[row])) {
      return false;
    }
  }
  return true;
}

// Parses a header block. Null when the block is malformed.
rd_kafka_headers_t* HeadersOf(const std::uint8_t* block, std::int32_t length) {
  using layout::RecordHeader;
  rd_kafka_headers_t* headers = rd_kafka_headers_new(4);
  auto left = static_cast<std::size_t>(length);
  while (left > 0) {
    std::uint32_t name_length = 0;
    std::int32_t value_length = 0;
    if (left >= RecordHeader::kBytes) {
      std::memcpy(&name_length, block + RecordHeader::kNameLengthAt, 4);
      std::memcpy(&value_length, block + RecordHeader::kValueLengthAt, 4);
    }
    const std::size_t value_bytes = value_length > 0 ? static_cast<std::size_t>(value_length) : 0;
    const std::size_t bytes = RecordHeader::kBytes + name_length + value_bytes;
    if (bytes > left) {
      rd_kafka_headers_destroy(headers);
      return nullptr;
    }
    const char* name = reinterpret_cast<const char*>(block) + RecordHeader::kTextAt;
    rd_kafka_header_add(headers, name, static_cast<ssize_t>(name_length),
                        value_length < 0 ? nullptr : name + name_length,
                        value_length < 0 ? 0 : static_cast<ssize_t>(value_bytes));
    block += bytes;
    left -= bytes;
  }
  return headers;
}

}  // namespace

std::unique_ptr<Producer> Producer::Open(const Properties& properties, ProducerHost* host,
                                         std::string* error) {
  std::unique_ptr<Producer> producer(new Producer(host));
  rd_kafka_conf_t* conf = MakeConf(properties, producer.get(), error);
  if (conf == nullptr) return nullptr;
  rd_kafka_conf_set_dr_msg_cb(conf, [](rd_kafka_t* client, const rd_kafka_message_t* message,
                                       void* opaque) { OnReport(client, message, opaque); });
  char text[512];
  producer->client_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
  if (producer->client_ == nullptr) {
    rd_kafka_conf_destroy(conf);
    *error = text;
    return nullptr;
  }
  producer->queue_ = rd_kafka_queue_get_main(producer->client_);
  return producer;
}

Producer::Producer(ProducerHost* host) : host_(host) {}

Producer::~Producer() {
  for (const Topic& topic : topics_) rd_kafka_topic_destroy(topic.handle);
  if (queue_ != nullptr) rd_kafka_queue_destroy(queue_);
  if (client_ != nullptr) rd_kafka_destroy(client_);
  FailRest();
}

void Producer::Wake() { rd_kafka_queue_yield(queue_); }

void Producer::Poll(int wait_ms) { rd_kafka_poll(client_, wait_ms); }

rd_kafka_topic_t* Producer::TopicOf(const std::string& name) {
  for (const Topic& topic : topics_) {
    if (topic.name == name) return topic.handle;
  }
  rd_kafka_topic_t* handle = rd_kafka_topic_new(client_, name.c_str(), nullptr);
  if (handle != nullptr) topics_.push_back({handle, name});
  return handle;
}

std::uint64_t Producer::OpaqueOf(const InFlightBatch* flight, std::uint32_t row) const {
  const auto found = std::find(batches_.begin(), batches_.end(), flight);
  const auto place = static_cast<std::uint64_t>(found - batches_.begin());
  return (place << kRowBits) + row;
}

void Producer::OnReport(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
  auto* self = static_cast<Producer*>(static_cast<Journal*>(opaque));
  const auto bits = reinterpret_cast<std::uintptr_t>(message->_private);
  InFlightBatch* flight = self->batches_[bits >> kRowBits];
  const auto row = static_cast<std::uint32_t>(bits & ((1U << kRowBits) - 1));
  // rd_kafka_message_errstr is for consumers: here it would return the bytes of the record.
  self->CompleteRow(flight, row, message->err, message->offset,
                    message->err == 0 ? nullptr : rd_kafka_message_produce_errstr(message));
}

void Producer::CompleteRow(InFlightBatch* flight, std::uint32_t row, int code, std::int64_t offset,
                           const char* why) {
  flight->status[row] = code;
  flight->offset[row] = code == 0 ? offset : layout::kSpanNoOffset;
  if (code != 0) {
    flight->failed++;
    const bool known = std::any_of(flight->events.begin(), flight->events.end(),
                                   [&](const Event& one) { return one.code == code; });
    if (!known) {
      Event event = EventOf(code);
      if (why != nullptr) event.message = why;
      event.fatal = code == RD_KAFKA_RESP_ERR__FATAL;
      flight->events.push_back(std::move(event));
    }
  }
  rows_out_--;
  if (++flight->completed < flight->batch.row_count) return;
  std::replace(batches_.begin(), batches_.end(), flight, static_cast<InFlightBatch*>(nullptr));
  host_->OnComplete(flight->owner);
}

bool Producer::Send(InFlightBatch* flight) {
  const RecordRows& rows = flight->batch;
  if (rows.row_count > (1U << kRowBits) || !SpansInside(rows)) return false;
  for (std::uint32_t row = 0; row < rows.row_count; row++) {
    const std::int32_t index = rows.at.topic_index[row];
    if (index < 0 || static_cast<std::size_t>(index) >= flight->topics.size()) return false;
  }
  if (rows.row_count == 0) {
    host_->OnComplete(flight->owner);
    return true;
  }
  std::vector<rd_kafka_topic_t*> topics;
  for (const std::string& name : flight->topics) topics.push_back(TopicOf(name));
  const auto free = std::find(batches_.begin(), batches_.end(), nullptr);
  if (free == batches_.end()) {
    batches_.push_back(flight);
  } else {
    *free = flight;
  }
  rows_out_ += rows.row_count;
  const layout::RecordBatch& batch = rows.at;
  // The last row may complete and free the batch, so its row count is copied.
  const std::uint32_t count = rows.row_count;
  for (std::uint32_t row = 0; row < count;) {
    rd_kafka_topic_t* topic = topics[static_cast<std::size_t>(batch.topic_index[row])];
    if (topic == nullptr) {
      CompleteRow(flight, row++, RD_KAFKA_RESP_ERR__INVALID_ARG, 0, "not a topic name");
      continue;
    }
    const auto plain = [&](std::uint32_t at) {
      return batch.timestamp[at] == 0 && batch.headers_length[at] <= 0;
    };
    if (!plain(row)) {
      SendRow(flight, topic, row++);
      continue;
    }
    std::uint32_t to = row + 1;
    while (to < count && to - row < kRunRows && plain(to) &&
           batch.topic_index[to] == batch.topic_index[row] &&
           batch.partition[to] == batch.partition[row]) {
      to++;
    }
    SendRun(flight, topic, row, to);
    row = to;
  }
  return true;
}

// Sends rows [from, to) of one topic and one partition, without headers and timestamps of their
// own.
void Producer::SendRun(InFlightBatch* flight, rd_kafka_topic_t* topic, std::uint32_t from,
                       std::uint32_t to) {
  const layout::RecordBatch batch = flight->batch.at;
  const std::uint64_t opaque = OpaqueOf(flight, 0);
  const std::int32_t partition =
      batch.partition[from] < 0 ? RD_KAFKA_PARTITION_UA : batch.partition[from];
  run_.resize(to - from);
  for (std::uint32_t row = from; row < to; row++) {
    rd_kafka_message_t& message = run_[row - from];
    const std::int32_t key = batch.key_length[row];
    const std::int32_t value = batch.value_length[row];
    message.err = RD_KAFKA_RESP_ERR_NO_ERROR;
    message.payload = value < 0 ? nullptr : batch.arena + batch.value_start[row];
    message.len = value < 0 ? 0 : static_cast<std::size_t>(value);
    message.key = key < 0 ? nullptr : batch.arena + batch.key_start[row];
    message.key_len = key < 0 ? 0 : static_cast<std::size_t>(key);
    message._private = reinterpret_cast<void*>(opaque + row);
  }
  // A full queue refuses a row and all rows behind it, so resuming at the first refused row keeps
  // the order.
  for (std::uint32_t at = from; at < to;) {
    const auto count = static_cast<int>(to - at);
    rd_kafka_produce_batch(topic, partition, 0, &run_[at - from], count);
    std::uint32_t next = to;
    for (std::uint32_t row = at; row < to; row++) {
      const rd_kafka_resp_err_t code = run_[row - from].err;
      if (code == RD_KAFKA_RESP_ERR_NO_ERROR) continue;
      if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL && !host_->Stopping()) {
        next = row;
        break;
      }
      CompleteRow(flight, row, code, 0, nullptr);
    }
    at = next;
    rd_kafka_poll(client_, at < to ? kFullWaitMs : 0);
  }
}

void Producer::SendRow(InFlightBatch* flight, rd_kafka_topic_t* topic, std::uint32_t row) {
  const layout::RecordBatch batch = flight->batch.at;
  const std::int32_t key = batch.key_length[row];
  const std::int32_t value = batch.value_length[row];
  const std::int32_t headers_length = batch.headers_length[row];
  rd_kafka_headers_t* headers = nullptr;
  if (headers_length > 0) {
    headers = HeadersOf(batch.arena + batch.headers_start[row], headers_length);
    if (headers == nullptr) {
      CompleteRow(flight, row, RD_KAFKA_RESP_ERR__INVALID_ARG, 0, "the header block is malformed");
      return;
    }
  }
  rd_kafka_vu_t parts[8] = {};
  parts[0].vtype = RD_KAFKA_VTYPE_RKT;
  parts[0].u.rkt = topic;
  parts[1].vtype = RD_KAFKA_VTYPE_PARTITION;
  parts[1].u.i32 = batch.partition[row] < 0 ? RD_KAFKA_PARTITION_UA : batch.partition[row];
  parts[2].vtype = RD_KAFKA_VTYPE_VALUE;
  parts[2].u.mem.ptr = value < 0 ? nullptr : batch.arena + batch.value_start[row];
  parts[2].u.mem.size = value < 0 ? 0 : static_cast<std::size_t>(value);
  parts[3].vtype = RD_KAFKA_VTYPE_KEY;
  parts[3].u.mem.ptr = key < 0 ? nullptr : batch.arena + batch.key_start[row];
  parts[3].u.mem.size = key < 0 ? 0 : static_cast<std::size_t>(key);
  parts[4].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
  parts[4].u.i64 = batch.timestamp[row];
  parts[5].vtype = RD_KAFKA_VTYPE_OPAQUE;
  parts[5].u.ptr = reinterpret_cast<void*>(OpaqueOf(flight, row));
  parts[6].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
  parts[6].u.i = 0;
  parts[7].vtype = RD_KAFKA_VTYPE_HEADERS;
  parts[7].u.headers = headers;
  const std::size_t count = headers == nullptr ? 7 : 8;
  for (;;) {
    rd_kafka_error_t* error = rd_kafka_produceva(client_, parts, count);
    if (error == nullptr) break;
    const rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    const std::string why = rd_kafka_error_string(error);
    rd_kafka_error_destroy(error);
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL && !host_->Stopping()) {
      rd_kafka_poll(client_, kFullWaitMs);
      continue;
    }
    if (headers != nullptr) rd_kafka_headers_destroy(headers);
    CompleteRow(flight, row, code, 0, why.c_str());
    return;
  }
  if (row % kRunRows == kRunRows - 1) rd_kafka_poll(client_, 0);
}

Event Producer::Flush(int timeout_ms) {
  const std::int64_t deadline = NowMs() + timeout_ms;
  while (rows_out_ > 0) {
    const std::int64_t left = deadline - NowMs();
    if (left <= 0) return EventOf(kErrTimedOut);
    if (host_->Stopping()) return EventOf(kErrDestroy);
    rd_kafka_flush(client_, static_cast<int>(std::min<std::int64_t>(left, kSliceMs)));
  }
  return {};
}

TransactionOutcome Producer::Transact(TransactionStep step, int timeout_ms) {
  const std::int64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    const std::int64_t left = std::max<std::int64_t>(1, deadline - NowMs());
    const auto slice = static_cast<int>(std::min<std::int64_t>(left, kTransactionSliceMs));
    rd_kafka_error_t* error = nullptr;
    switch (step) {
      case TransactionStep::kInit:
        error = rd_kafka_init_transactions(client_, slice);
        break;
      case TransactionStep::kBegin:
        error = rd_kafka_begin_transaction(client_);
        break;
      case TransactionStep::kCommit:
        error = rd_kafka_commit_transaction(client_, slice);
        break;
      case TransactionStep::kAbort:
        error = rd_kafka_abort_transaction(client_, slice);
        break;
    }
    if (error == nullptr) return {};
    TransactionOutcome outcome;
    outcome.event.code = static_cast<int>(rd_kafka_error_code(error));
    outcome.event.message = rd_kafka_error_string(error);
    outcome.event.fatal = rd_kafka_error_is_fatal(error) != 0;
    outcome.retriable = rd_kafka_error_is_retriable(error) != 0;
    outcome.abortable = rd_kafka_error_txn_requires_abort(error) != 0;
    rd_kafka_error_destroy(error);
    if (!outcome.retriable || host_->Stopping() || NowMs() >= deadline) return outcome;
    // The broker may still be ending the transaction of an older producer.
    if (outcome.event.code != RD_KAFKA_RESP_ERR__TIMED_OUT) rd_kafka_poll(client_, kRetryMs);
  }
}

void Producer::Purge() {
  // Reports of purged rows arrive immediately. Rows that are moving with their partition from one
  // broker thread to another are purged in the next round.
  for (int i = 0; i < 50 && rows_out_ > 0; i++) {
    rd_kafka_purge(client_, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_flush(client_, kSliceMs);
  }
}

void Producer::FailRest() {
  for (InFlightBatch*& place : batches_) {
    if (place == nullptr) continue;
    InFlightBatch* flight = place;
    place = nullptr;
    flight->events.push_back(EventOf(RD_KAFKA_RESP_ERR__PURGE_QUEUE));
    for (std::uint32_t row = 0; row < flight->batch.row_count; row++) {
      if (flight->status[row] != 0 || flight->offset[row] != layout::kSpanNoOffset) continue;
      flight->status[row] = RD_KAFKA_RESP_ERR__PURGE_QUEUE;
      flight->failed++;
    }
    host_->OnComplete(flight->owner);
  }
  rows_out_ = 0;
}

}  // namespace millrace::broker
