// Batch consumer: fills the caller's columns and arena from librdkafka's consumer queue.
//
// Threads: all calls run on the one reader thread, except those marked otherwise. A rebalance is
// recorded when librdkafka announces it and applied between two fills, so a fill never mixes rows
// of before and after. Ownership: a batch is borrowed during Consume. Records that librdkafka
// delivered and that did not fit are held, in order, for the next Consume.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "broker/client.h"
#include "broker/receipts.h"
#include "kernel/batch.h"
#include "layout/layouts.gen.h"

struct rd_kafka_s;
struct rd_kafka_queue_s;
struct rd_kafka_topic_s;
struct rd_kafka_message_s;
struct rd_kafka_topic_partition_list_s;

namespace millrace::broker {

using RecordRows = kernel::Rows<layout::RecordBatch>;

enum class RebalanceKind { kAssigned, kRevoked, kLost };

// Owner of the reader thread.
class ReaderHost : public Waiter {
 public:
  // Runs the inline jobs of the reader thread that have arrived.
  virtual void ServeJobs() = 0;
  // True when a job waits that must not run inside a fill; the fill ends.
  virtual bool Interrupted() = 0;
};

class ConsumerHost : public ReaderHost {
 public:
  // Notifies the application and waits for its answer; runs inline jobs meanwhile.
  virtual void OnRebalance(RebalanceKind kind, const std::vector<Place>& places) = 0;
};

// Number of consecutive rows with one receipt time.
struct ReceiptRun {
  std::uint32_t rows;
  // Time in microseconds, from NowUs.
  std::int64_t at_us;
};

struct ConsumeOutcome {
  std::uint32_t rows = 0;
  // Receipt times of all rows, in the order of the rows.
  std::vector<ReceiptRun> receipts;
  std::vector<Place> ends;
  std::vector<Event> events;
  // Names of topics that are new since the last call. Their indexes continue those of earlier
  // calls.
  std::vector<std::string> topics;
};

class Consumer : public Journal {
 public:
  // Null, with `error` set, for invalid properties.
  static std::unique_ptr<Consumer> Open(const Properties& properties, ConsumerHost* host,
                                        std::string* error);
  ~Consumer();

  void Consume(const RecordRows& into, int wait_ms, ConsumeOutcome* out);
  Event Subscribe(const std::vector<std::string>& topics);
  Event Assign(const std::vector<Place>& places);
  Event Pause(const std::vector<Place>& places, bool pause);
  Event Seek(const Place& place, int timeout_ms);
  // Returns the partitions, notifies the application, and leaves the group. False: the group has
  // not answered in time.
  bool Leave(int timeout_ms);
  std::vector<Place> Positions() const;

  // From any thread.
  void Wake();
  Event Commit(const std::vector<Place>& offsets, int timeout_ms);
  Event Committed(std::vector<Place>* places, int timeout_ms);
  rd_kafka_s* client() const { return client_; }

 private:
  struct Partition {
    rd_kafka_topic_s* topic;
    std::int32_t partition;
    std::uint32_t topic_index;
    bool assigned;
    bool paused;
    std::int64_t position;
    // Offset of the partition's end when it was read last and no record followed, else -1.
    std::int64_t end;
  };
  struct Topic {
    rd_kafka_topic_s* handle;
    std::string name;
  };
  struct Rebalance {
    bool assign;
    rd_kafka_topic_partition_list_s* partitions;
  };
  struct Filling;
  struct Held {
    rd_kafka_message_s* message;
    std::int64_t received_us;
  };

  explicit Consumer(ConsumerHost* host) : host_(host) {}
  static void OnRebalance(rd_kafka_s* client, int error, rd_kafka_topic_partition_list_s* list,
                          void* opaque);
  void CarryOut(const Rebalance& rebalance);
  void CarryOutAll();
  void Complete(const Rebalance& rebalance);
  Event BeginResumes();
  std::size_t Draw(std::size_t most, int wait_ms);
  std::size_t DrawBatch(rd_kafka_message_s** into, std::size_t most, int wait_ms);
  void Fill(Filling* filling);
  bool Append(Filling* filling, const Held& held, Partition* partition);
  Partition* PartitionOf(rd_kafka_topic_s* topic, std::int32_t partition);
  Partition* PartitionOf(const Place& place);
  std::uint32_t TopicIndex(rd_kafka_topic_s* topic);
  void Enter(const Place& place, std::int64_t position);
  void Forget(const Partition& partition);
  void DropHeld(const Partition* partition);

  ConsumerHost* host_;
  // Outlives the client, whose threads call it.
  Receipts receipts_;
  rd_kafka_s* client_ = nullptr;
  rd_kafka_queue_s* queue_ = nullptr;
  std::vector<Topic> topics_;
  std::uint32_t topics_reported_ = 0;
  std::vector<Partition> partitions_;
  std::uint32_t last_ = 0;
  std::vector<Held> held_;
  // State of one draw.
  std::vector<rd_kafka_message_s*> drawn_;
  std::vector<std::int64_t> received_;
  std::vector<Rebalance> rebalances_;
  bool cooperative_ = true;
  // True when librdkafka reports the ends of partitions.
  bool ends_ = false;
  // True once records are read one at a time; see DrawBatch.
  bool one_by_one_ = false;
  double bytes_a_row_ = 512;
};

}  // namespace millrace::broker
