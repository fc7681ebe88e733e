// Record batches of format 2, read in place.
//
// Source: Kafka protocol guide, "Record Batch". All numbers are checked against the bytes before
// they are used; a record's spans point into the batch, or into the decompressed copy of it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "broker/wire/inflate.h"
#include "broker/wire/reader.h"

namespace millrace::broker::wire {

// Head of a batch.
struct BatchHead {
  static constexpr std::size_t kBytes = 61;
  std::int64_t base_offset;
  // Bytes of the whole batch.
  std::size_t size;
  std::int32_t leader_epoch;
  std::uint32_t crc;
  std::int16_t attributes;
  std::int32_t last_offset_delta;
  std::int64_t base_timestamp;
  std::int64_t max_timestamp;
  std::int64_t producer_id;
  std::int32_t count;

  std::int64_t LastOffset() const { return base_offset + last_offset_delta; }
  bool IsAppendTime() const { return (attributes & 0x08) != 0; }
  bool IsTransactional() const { return (attributes & 0x10) != 0; }
  bool IsControl() const { return (attributes & 0x20) != 0; }
};

enum class HeadVerdict {
  kOk,
  kCut,        // the bytes end inside the batch, as the last of a response may
  kOldFormat,  // format 0 or 1
  kBad,
};

// Reads the head; nothing behind it, and not the checksum.
HeadVerdict ReadHead(Bytes from, BatchHead* out);
bool HasItsCrc(Bytes batch, const BatchHead& head);

struct Record {
  std::int64_t offset;
  std::int64_t timestamp;
  bool is_append_time;
  // Sizes are -1 for null.
  const std::uint8_t* key;
  std::int32_t key_size;
  const std::uint8_t* value;
  std::int32_t value_size;
  // First of `header_count` headers, which were checked; see NextHeader.
  const std::uint8_t* headers;
  const std::uint8_t* headers_end;
  std::uint32_t header_count;
  // Bytes of all names and values.
  std::uint32_t header_payload;
};

struct Header {
  Bytes name;
  const std::uint8_t* value;
  std::int32_t value_size;
};
// Reads a header that was checked. Returns the place behind it.
const std::uint8_t* NextHeader(const std::uint8_t* at, const std::uint8_t* end, Header* out);

// Records of one decompressed batch.
class RecordCursor {
 public:
  RecordCursor() = default;
  RecordCursor(const BatchHead& head, Bytes records)
      : head_(head), at_(records.data), end_(records.data + records.size), left_(head.count) {}
  enum class Step { kRecord, kEnd, kBad };
  Step Next(Record* out);
  bool IsDone() const { return left_ == 0; }
  // Continues in a copy of the records.
  void MoveTo(const std::uint8_t* copy, const std::uint8_t* records) {
    at_ = copy + (at_ - records);
    end_ = copy + (end_ - records);
  }

 private:
  BatchHead head_{};
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  std::int32_t left_ = 0;
  std::int32_t last_delta_ = -1;
};

// Producer whose transaction from `first_offset` on was aborted.
struct Aborted {
  std::int64_t producer_id;
  std::int64_t first_offset;
};

// Reason that a partition cannot be read further, with the offset in its text.
struct Fault {
  enum class Kind { kNone, kBad, kBadCrc, kOldFormat, kBadCompression, kTooLarge };
  Kind kind = Kind::kNone;
  std::string text;
};

// Records of a partition in one fetch response: whole batches in the order of their offsets.
class PartitionRecords {
 public:
  PartitionRecords() = default;
  // Skips records before `from_offset`, control records, and, with `committed_only`, records of
  // aborted transactions. `bytes` and `inflater` are borrowed.
  PartitionRecords(Bytes bytes, std::int64_t from_offset, bool committed_only,
                   std::vector<Aborted> aborted, Inflater* inflater);

  enum class Step { kRecord, kEnd, kFault, kWait };
  // Moves to the next record, which `record()` returns until the next call. kWait: the next batch
  // does not fit in the room that was offered and may wait for another.
  Step Next();
  const Record& record() const { return record_; }

  // Room of the caller for the records of a batch.
  struct Room {
    std::uint8_t* at;
    std::size_t bytes;
    // Records for which the caller has a place.
    std::uint32_t records;
    bool may_wait;
  };
  // True when the next call probably opens a batch.
  bool OpensNext() const { return !kept_ && (!is_open_ || cursor_.IsDone()); }
  // Offers room to the next call alone: a compressed batch is inflated there, if it is expected to
  // fit with all its records.
  void Offer(const Room& room) { room_ = room; }
  // Bytes of the batch of `record()` in the room that was offered; empty: it is elsewhere. They
  // must stay unchanged until the last record of the batch, or MoveOut.
  const Bytes& placed() const { return placed_; }
  // Moves the records that are left out of the room. Without memory the next call is a fault.
  void MoveOut();
  // Makes the next call return the same record again.
  void Keep() { kept_ = true; }
  // Offset behind everything that was returned or skipped.
  std::int64_t next_offset() const { return next_offset_; }
  const Fault& fault() const { return fault_; }

 private:
  enum class Opening { kOpened, kNone, kWait };
  Opening OpenBatch();
  bool Fits() const;
  bool Inflate(Codec codec, Bytes* records);
  Opening Failed(Fault::Kind kind, const char* what) {
    Fail(kind, what);
    return Opening::kNone;
  }
  bool SkipsBatch(const BatchHead& head, Bytes records);
  void MarkAborted(std::int64_t last_offset);
  Step Fail(Fault::Kind kind, const char* what);

  Bytes bytes_;
  std::int64_t next_offset_ = 0;
  bool committed_only_ = false;
  std::vector<Aborted> aborted_;
  std::size_t aborted_at_ = 0;
  std::unordered_set<std::int64_t> aborted_producers_;
  Inflater* inflater_ = nullptr;
  BatchHead head_{};
  bool is_open_ = false;
  // True once a whole batch was seen; the first batch of a response is never cut.
  bool had_batch_ = false;
  RecordCursor cursor_;
  Record record_{};
  bool kept_ = false;
  Room room_{};
  Bytes placed_{};
  Fault fault_;
};

// Offset behind the last whole batch, for the next request; found without reading records.
struct Extent {
  std::int64_t next_offset;
  // Leader epoch of the last whole batch, or -1.
  std::int32_t leader_epoch = -1;
  // Greatest timestamp of the whole batches in ms, or negative: none has one.
  std::int64_t newest_ms = -1;
  bool has_batch = false;
  // A batch that cannot be read; reading stops there.
  bool is_faulty = false;
};
Extent ExtentOf(Bytes bytes, std::int64_t from_offset);

}  // namespace millrace::broker::wire
