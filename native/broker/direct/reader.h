// Batch consumer of assigned partitions over the direct client: fills the caller's columns and
// arena from record batches, which it reads in place.
//
// Threads: all calls run on the one reader thread, except Wake. Ownership: a batch is borrowed
// during Consume.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "broker/consumer.h"
#include "broker/direct/fetcher.h"
#include "broker/wire/record_batch.h"

namespace millrace::broker::direct {

class Reader {
 public:
  // Null, with `error` set, for properties that cannot be used.
  static std::unique_ptr<Reader> Open(const Properties& properties, ReaderHost* host,
                                      std::string* error);

  Event Connect(int timeout_ms) { return fetcher_.Connect(timeout_ms, host_); }
  void Consume(const RecordRows& into, int wait_ms, ConsumeOutcome* out);
  Event Assign(const std::vector<Place>& places);
  Event Pause(const std::vector<Place>& places, bool pause);
  Event Seek(const Place& place);
  std::vector<Place> Positions();
  // Receives and requests until Wake, while nothing is consumed.
  void Idle() { fetcher_.Pump(-1); }
  // From any thread.
  void Wake() { fetcher_.Wake(); }

 private:
  struct Filling;

  Reader(Settings settings, std::unique_ptr<TlsContext> tls, ReaderHost* host)
      : tls_(std::move(tls)),
        fetcher_(settings, tls_.get()),
        inflater_(static_cast<std::size_t>(settings.response_bytes_max)),
        committed_only_(settings.committed_only),
        reports_ends_(settings.reports_ends),
        host_(host) {}
  void Fill(Filling* filling);
  bool FillPart(Filling* filling, const Part& part, Partition* partition);
  bool Append(Filling* filling, const Part& part, Partition* partition);
  void OnFault(Partition* partition);
  void NoteOversize(const Partition& partition, std::uint64_t bytes, std::uint32_t capacity);
  void DropFront();

  std::unique_ptr<TlsContext> tls_;
  Fetcher fetcher_;
  wire::Inflater inflater_;
  bool committed_only_;
  bool reports_ends_;
  ReaderHost* host_;
  // Records of the first part, while it is read.
  wire::PartitionRecords records_;
  bool is_reading_ = false;
  std::size_t topics_reported_ = 0;
};

}  // namespace millrace::broker::direct
