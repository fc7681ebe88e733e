// The batch producer: columns and arena of the caller go to librdkafka by reference, and one
// delivery report a row comes back into the caller's status and offset columns.
//
// Threads: everything runs on the one producer thread, in the order of the calls, so rows of a
// partition keep their order across batches. Ownership: batch, status and offset are borrowed until
// the flight has landed.
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
  // Every row of the flight has its report. May be called inside Send and Poll.
  virtual void Landed(void* flight) = 0;
};

// One batch on its way.
struct Flight {
  RecordRows batch;
  std::vector<std::string> topics;
  std::int32_t* status = nullptr;
  std::int64_t* offset = nullptr;
  void* owner = nullptr;
  std::uint32_t settled = 0;
  std::uint32_t failed = 0;
  std::vector<Event> events;  // one of each code
};

enum class TransactionStep { kInit, kBegin, kCommit, kAbort };

struct TransactionOutcome {
  Event event;
  // The same call may be made again.
  bool retriable = false;
  // The transaction has to be aborted; the producer is fine.
  bool abortable = false;
};

class Producer : public Journal {
 public:
  static std::unique_ptr<Producer> Open(const Properties& properties, ProducerHost* host,
                                        std::string* error);
  // Rows still on their way are purged and reported.
  ~Producer();

  // Hands all rows over, polling where the queue is full. False when a span of the batch leaves its
  // arena or a topic index its list: then nothing is sent.
  bool Send(Flight* flight);
  // Serves delivery reports for at most `wait_ms`, or until woken.
  void Poll(int wait_ms);
  Event Flush(int timeout_ms);
  // One step of a transaction. A step that ran into its time goes on inside librdkafka, and the
  // same call takes it up again.
  TransactionOutcome Transact(TransactionStep step, int timeout_ms);
  // Reports every row that is still on its way as purged.
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
  void Settle(Flight* flight, std::uint32_t row, int code, std::int64_t offset, const char* why);
  void SendRun(Flight* flight, rd_kafka_topic_s* topic, std::uint32_t from, std::uint32_t to);
  void SendRow(Flight* flight, rd_kafka_topic_s* topic, std::uint32_t row);
  std::uint64_t OpaqueOf(const Flight* flight, std::uint32_t row) const;
  // Lands what the client took along without a report. A row without an offset is not known to be
  // acknowledged.
  void GiveUpRest();

  ProducerHost* host_;
  rd_kafka_s* client_ = nullptr;
  rd_kafka_queue_s* queue_ = nullptr;
  std::vector<Topic> topics_;
  // Flights by the number in a message's opaque; a free place is null.
  std::vector<Flight*> flights_;
  std::uint64_t rows_out_ = 0;
  std::vector<rd_kafka_message_s> run_;
};

}  // namespace millrace::broker
