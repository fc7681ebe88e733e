// Batch producer: librdkafka reads the caller's columns and arena by reference. One delivery report
// for each row is written to the caller's status and offset columns.
//
// Threads: everything runs on the one producer thread in the order of the calls, so rows of a
// partition keep their order across batches. Ownership: batch, status and offset are borrowed until
// every row has its report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "broker/client.h"
#include "broker/consumer.h"

struct rd_kafka_s;
struct rd_kafka_queue_s;
struct rd_kafka_topic_s;
struct rd_kafka_message_s;

namespace millrace::broker {

class ProducerHost : public Waiter {
 public:
  // Called when every row of a batch has its report, possibly inside Send or Poll. `owner` is that
  // of the batch.
  virtual void OnComplete(void* flight) = 0;
};

// One batch in flight.
struct InFlightBatch {
  RecordRows batch;
  std::vector<std::string> topics;
  std::int32_t* status = nullptr;
  std::int64_t* offset = nullptr;
  void* owner = nullptr;
  std::uint32_t completed = 0;
  std::uint32_t failed = 0;
  std::vector<Event> events;  // one event for each error code
};

enum class TransactionStep { kInit, kBegin, kCommit, kAbort };

struct TransactionOutcome {
  Event event;
  // The same call may be repeated.
  bool retriable = false;
  // The transaction must be aborted; the producer remains usable.
  bool abortable = false;
};

class Producer : public Journal {
 public:
  static std::unique_ptr<Producer> Open(const Properties& properties, ProducerHost* host,
                                        std::string* error);
  // Purges and reports the rows in flight.
  ~Producer();

  // Sends all rows; polls while the queue is full. False, with nothing sent, when a span of the
  // batch leaves its arena or a topic index its list.
  bool Send(InFlightBatch* flight);
  // Serves delivery reports for at most `wait_ms`, or until Wake.
  void Poll(int wait_ms);
  Event Flush(int timeout_ms);
  // Runs one step of a transaction. A step that timed out continues inside librdkafka; the same
  // call resumes it.
  TransactionOutcome Transact(TransactionStep step, int timeout_ms);
  // Purges all rows in flight; their reports carry the purge error.
  void Purge();
  bool idle() const { return rows_out_ == 0; }

  // From any thread.
  void Wake();
  rd_kafka_s* client() const { return client_; }

 private:
  struct Topic {
    rd_kafka_topic_s* handle;
    std::string name;
  };

  explicit Producer(ProducerHost* host);
  static void OnReport(rd_kafka_s* client, const rd_kafka_message_s* message, void* opaque);
  rd_kafka_topic_s* TopicOf(const std::string& name);
  void CompleteRow(InFlightBatch* flight, std::uint32_t row, int code, std::int64_t offset,
                   const char* why);
  void SendRun(InFlightBatch* flight, rd_kafka_topic_s* topic, std::uint32_t from,
               std::uint32_t to);
  void SendRow(InFlightBatch* flight, rd_kafka_topic_s* topic, std::uint32_t row);
  std::uint64_t OpaqueOf(const InFlightBatch* flight, std::uint32_t row) const;
  // Fails the batches that the destroyed client left without reports. A row with neither status nor
  // offset counts as not acknowledged.
  void FailRest();

  ProducerHost* host_;
  rd_kafka_s* client_ = nullptr;
  rd_kafka_queue_s* queue_ = nullptr;
  std::vector<Topic> topics_;
  // Batches in flight; the opaque pointer of a message holds the index. A free slot is null.
  std::vector<InFlightBatch*> batches_;
  std::uint64_t rows_out_ = 0;
  std::vector<rd_kafka_message_s> run_;
};

}  // namespace millrace::broker
