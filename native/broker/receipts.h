// Receipt times of the records in a client's queue.
//
// librdkafka does not keep them. But its queue is first in, first out, and an interceptor is called
// with each response before the records of the response are queued. So the receipt time of a record
// is that of the last response that arrived when at most the records before it had been queued.
// With several brokers, a record may belong to a response that was still being unpacked when the
// next response arrived. Its time is then late by no more than that unpacking.
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
  // Installs the interceptor. REQUIRES: called before the client is created; this object outlives
  // the client.
  void Watch(rd_kafka_conf_s* conf);
  // Sets the queue, which is borrowed; null ends the borrowing.
  void Follow(rd_kafka_queue_s* queue);
  // Records a response with records of which none is queued yet. Called by librdkafka's threads.
  void Received();
  // Starts a draw that does not wait; until EndDraw the length of the queue means nothing.
  void BeginDraw();
  // Ends a draw of `count` records; appends the receipt time of each, or NowUs() where it is
  // unknown.
  void EndDraw(std::size_t count, std::vector<std::int64_t>* into);

 private:
  // Records from number `queued` on were received at `at_us` or later.
  struct Mark {
    std::uint64_t queued;
    std::int64_t at_us;
  };
  // Greatest number of marks. Beyond it a new response is not recorded, and its records get the
  // time of the response before.
  static constexpr std::size_t kMarksMax = 4096;

  std::mutex mutex_;
  rd_kafka_queue_s* queue_ = nullptr;
  // Number of records drawn so far; records in the queue have the numbers that follow.
  std::uint64_t drawn_ = 0;
  bool drawing_ = false;
  std::uint64_t queued_before_draw_ = 0;
  std::deque<Mark> marks_;
};

}  // namespace millrace::broker
