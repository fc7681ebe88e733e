#include "broker/receipts.h"

#include <chrono>

#include "broker/library.h"

namespace millrace::broker {
namespace {

// API key of Fetch. Source: Kafka protocol guide.
constexpr std::int16_t kFetchKey = 1;
constexpr char kName[] = "millrace receipts";

rd_kafka_resp_err_t OnResponse(rd_kafka_t*, int, const char*, std::int32_t, std::int16_t api_key,
                               std::int16_t, std::int32_t, std::size_t, std::int64_t,
                               rd_kafka_resp_err_t error, void* opaque) {
  if (api_key == kFetchKey && error == RD_KAFKA_RESP_ERR_NO_ERROR) {
    static_cast<Receipts*>(opaque)->Received();
  }
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_resp_err_t OnNew(rd_kafka_t* client, const rd_kafka_conf_t*, void* opaque, char*,
                          std::size_t) {
  return rd_kafka_interceptor_add_on_response_received(client, kName, OnResponse, opaque);
}

}  // namespace

std::int64_t NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

void Receipts::Watch(rd_kafka_conf_t* conf) {
  rd_kafka_conf_interceptor_add_on_new(conf, kName, OnNew, this);
}

void Receipts::Follow(rd_kafka_queue_t* queue) {
  const std::lock_guard lock(mutex_);
  queue_ = queue;
}

void Receipts::Received() {
  const std::int64_t now = NowUs();
  const std::lock_guard lock(mutex_);
  if (queue_ == nullptr) return;
  const std::uint64_t queued =
      drawing_ ? queued_before_draw_ : drawn_ + rd_kafka_queue_length(queue_);
  // Later marks belong to responses without a record, or to records that were dropped.
  while (!marks_.empty() && marks_.back().queued >= queued) marks_.pop_back();
  if (marks_.size() < kMarksMax) marks_.push_back({queued, now});
}

void Receipts::BeginDraw() {
  const std::lock_guard lock(mutex_);
  queued_before_draw_ = drawn_ + rd_kafka_queue_length(queue_);
  drawing_ = true;
}

void Receipts::EndDraw(std::size_t count, std::vector<std::int64_t>* into) {
  const std::lock_guard lock(mutex_);
  drawing_ = false;
  const std::int64_t now = NowUs();
  for (const std::uint64_t end = drawn_ + count; drawn_ < end; drawn_++) {
    while (marks_.size() > 1 && marks_[1].queued <= drawn_) marks_.pop_front();
    const bool known = !marks_.empty() && marks_.front().queued <= drawn_;
    into->push_back(known ? marks_.front().at_us : now);
  }
}

}  // namespace millrace::broker
