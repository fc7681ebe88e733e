// Receipt times of the records in a client's queue.
//
// librdkafka does not keep them. But the queue is first in, first out, and an interceptor is called
// with each response before its records are queued. So a record's receipt is the last response that
// came when no more than the records before it had been queued. With several brokers a record may
// belong to a response that was still being unpacked when the next one came; then its time is late
// by no more than that unpacking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

struct rd_kafka_conf_s;
struct rd_kafka_queue_s;

namespace millrace::broker {

// Monotonic microseconds.
std::int64_t NowUs();

class Receipts {
 public:
  // Before the client is made. It must not outlive this.
  void Watch(rd_kafka_conf_s* conf);
  // Borrows the queue.
  void Follow(rd_kafka_queue_s* queue);
  // A response with records was received, and nothing of it is queued. From librdkafka's threads.
  void Received();
  // Around a draw that does not wait; the length of the queue says nothing meanwhile.
  void BeginDraw();
  // `count` records were drawn; appends the receipt of each, NowUs() where it is not known.
  void EndDraw(std::size_t count, std::vector<std::int64_t>* into);

 private:
  // Records from this number on were received at that time or later.
  struct Mark {
    std::uint64_t queued;
    std::int64_t at_us;
  };
  // Beyond it the newest response is not noted: its records seem to be of the one before.
  static constexpr std::size_t kMarksMax = 4096;

  std::mutex mutex_;
  rd_kafka_queue_s* queue_ = nullptr;
  // Records drawn so far; what stands in the queue has the numbers behind it.
  std::uint64_t drawn_ = 0;
  bool drawing_ = false;
  std::uint64_t queued_before_draw_ = 0;
  std::deque<Mark> marks_;
};

}  // namespace millrace::broker
