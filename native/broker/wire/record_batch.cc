#include "broker/wire/record_batch.h"

#include <algorithm>
#include <cstdio>

#include "broker/wire/crc32c.h"

namespace millrace::broker::wire {
namespace {

// Places in the head of a batch.
constexpr std::size_t kLengthAt = 8;
constexpr std::size_t kLeaderEpochAt = 12;
constexpr std::size_t kMagicAt = 16;
constexpr std::size_t kCrcAt = 17;
constexpr std::size_t kAttributesAt = 21;
constexpr std::size_t kLastOffsetDeltaAt = 23;
constexpr std::size_t kBaseTimestampAt = 27;
constexpr std::size_t kMaxTimestampAt = 35;
constexpr std::size_t kProducerIdAt = 43;
constexpr std::size_t kCountAt = 57;
// Bytes that the length does not count: base offset and the length itself.
constexpr std::size_t kPrefixBytes = 12;

constexpr std::int8_t kMagic = 2;
// Greatest offset that still has a next one.
constexpr std::int64_t kOffsetMax = INT64_MAX - 1;
// Length, attributes, two deltas, key, value, number of headers: a byte each.
constexpr std::int32_t kRecordBytesMin = 7;
constexpr std::int32_t kHeaderBytesMin = 2;
// Type of a control record that aborts, in its key behind a version of two bytes.
constexpr std::int16_t kControlAbort = 0;
constexpr std::int32_t kControlKeyBytes = 4;

// Reads the size of a span and the span. False unless it lies before `end`.
[[gnu::always_inline]] inline bool ReadSpan(const std::uint8_t** at, const std::uint8_t* end,
                                            const std::uint8_t** data, std::int32_t* size) {
  std::int64_t length = 0;
  const std::uint8_t* next = ReadSigned(*at, end, &length);
  if (next == nullptr || length < -1 || length > end - next) return false;
  *data = length < 0 ? nullptr : next;
  *size = static_cast<std::int32_t>(length);
  *at = length < 0 ? next : next + length;
  return true;
}

// Checks all headers up to the end of the record.
bool CheckHeaders(const std::uint8_t* at, const std::uint8_t* end, Record* record) {
  std::uint64_t payload = 0;
  for (std::uint32_t i = 0; i < record->header_count; i++) {
    const std::uint8_t* data = nullptr;
    std::int32_t size = 0;
    if (!ReadSpan(&at, end, &data, &size) || size < 0) return false;
    payload += static_cast<std::uint32_t>(size);
    if (!ReadSpan(&at, end, &data, &size)) return false;
    payload += static_cast<std::uint32_t>(std::max(size, 0));
  }
  record->header_payload = static_cast<std::uint32_t>(payload);
  return at == end;
}

}  // namespace

HeadVerdict ReadHead(Bytes from, BatchHead* out) {
  if (from.size <= kMagicAt) return HeadVerdict::kCut;
  const std::uint8_t* at = from.data;
  const auto length = BigEndian<std::int32_t>(at + kLengthAt);
  const auto magic = static_cast<std::int8_t>(at[kMagicAt]);
  if (length < 0) return HeadVerdict::kBad;
  if (magic == 0 || magic == 1) return HeadVerdict::kOldFormat;
  if (magic != kMagic) return HeadVerdict::kBad;
  out->size = kPrefixBytes + static_cast<std::size_t>(length);
  if (out->size < BatchHead::kBytes) return HeadVerdict::kBad;
  if (from.size < out->size) return HeadVerdict::kCut;
  out->base_offset = BigEndian<std::int64_t>(at);
  out->leader_epoch = BigEndian<std::int32_t>(at + kLeaderEpochAt);
  out->crc = BigEndian<std::uint32_t>(at + kCrcAt);
  out->attributes = BigEndian<std::int16_t>(at + kAttributesAt);
  out->last_offset_delta = BigEndian<std::int32_t>(at + kLastOffsetDeltaAt);
  out->base_timestamp = BigEndian<std::int64_t>(at + kBaseTimestampAt);
  out->max_timestamp = BigEndian<std::int64_t>(at + kMaxTimestampAt);
  out->producer_id = BigEndian<std::int64_t>(at + kProducerIdAt);
  out->count = BigEndian<std::int32_t>(at + kCountAt);
  const bool is_sound = out->base_offset >= 0 && out->last_offset_delta >= 0 && out->count >= 0 &&
                        out->base_offset <= kOffsetMax - out->last_offset_delta;
  return is_sound ? HeadVerdict::kOk : HeadVerdict::kBad;
}

bool HasItsCrc(Bytes batch, const BatchHead& head) {
  return Crc32c(batch.data + kAttributesAt, head.size - kAttributesAt) == head.crc;
}

const std::uint8_t* NextHeader(const std::uint8_t* at, const std::uint8_t* end, Header* out) {
  std::int32_t size = 0;
  ReadSpan(&at, end, &out->name.data, &size);
  out->name.size = static_cast<std::size_t>(size);
  ReadSpan(&at, end, &out->value, &out->value_size);
  return at;
}

RecordCursor::Step RecordCursor::Next(Record* out) {
  if (left_ == 0) return at_ == end_ ? Step::kEnd : Step::kBad;
  if (left_ > (end_ - at_) / kRecordBytesMin) return Step::kBad;
  std::int64_t length = 0;
  const std::uint8_t* at = ReadSigned(at_, end_, &length);
  if (at == nullptr || length < 0 || length > end_ - at) return Step::kBad;
  const std::uint8_t* const end = at + length;
  if (at == end) return Step::kBad;
  // Records are of similar length: the next one but one probably begins here.
  __builtin_prefetch(end + length);
  at++;  // attributes, unused
  std::int64_t timestamp_delta = 0;
  std::int64_t offset_delta = 0;
  std::int64_t headers = 0;
  at = ReadSigned(at, end, &timestamp_delta);
  if (at == nullptr) return Step::kBad;
  at = ReadSigned(at, end, &offset_delta);
  if (at == nullptr || offset_delta <= last_delta_ || offset_delta > head_.last_offset_delta)
    return Step::kBad;
  if (!ReadSpan(&at, end, &out->key, &out->key_size) ||
      !ReadSpan(&at, end, &out->value, &out->value_size))
    return Step::kBad;
  at = ReadSigned(at, end, &headers);
  if (at == nullptr || headers < 0 || headers > (end - at) / kHeaderBytesMin) return Step::kBad;
  out->headers = at;
  out->headers_end = end;
  out->header_count = static_cast<std::uint32_t>(headers);
  out->header_payload = 0;
  if (headers == 0 ? at != end : !CheckHeaders(at, end, out)) return Step::kBad;
  last_delta_ = static_cast<std::int32_t>(offset_delta);
  out->offset = head_.base_offset + offset_delta;
  out->is_append_time = head_.IsAppendTime();
  out->timestamp =
      out->is_append_time
          ? head_.max_timestamp
          : static_cast<std::int64_t>(static_cast<std::uint64_t>(head_.base_timestamp) +
                                      static_cast<std::uint64_t>(timestamp_delta));
  left_--;
  at_ = end;
  return Step::kRecord;
}

PartitionRecords::PartitionRecords(Bytes bytes, std::int64_t from_offset, bool committed_only,
                                   std::vector<Aborted> aborted, Inflater* inflater)
    : bytes_(bytes),
      next_offset_(from_offset),
      committed_only_(committed_only),
      aborted_(std::move(aborted)),
      inflater_(inflater) {
  std::sort(aborted_.begin(), aborted_.end(),
            [](const Aborted& a, const Aborted& b) { return a.first_offset < b.first_offset; });
}

PartitionRecords::Step PartitionRecords::Fail(Fault::Kind kind, const char* what) {
  char text[192];
  std::snprintf(text, sizeof text, "the record batch at offset %lld %s",
                static_cast<long long>(next_offset_), what);
  fault_ = {kind, text};
  return Step::kFault;
}

void PartitionRecords::MarkAborted(std::int64_t last_offset) {
  for (; aborted_at_ < aborted_.size() && aborted_[aborted_at_].first_offset <= last_offset;
       aborted_at_++) {
    aborted_producers_.insert(aborted_[aborted_at_].producer_id);
  }
}

// Applies a control batch. True also for a batch of an aborted transaction.
bool PartitionRecords::SkipsBatch(const BatchHead& head, Bytes records) {
  if (head.IsControl()) {
    RecordCursor cursor(head, records);
    Record record;
    if (cursor.Next(&record) == RecordCursor::Step::kRecord &&
        record.key_size >= kControlKeyBytes &&
        BigEndian<std::int16_t>(record.key + 2) == kControlAbort) {
      aborted_producers_.erase(head.producer_id);
    }
    return true;
  }
  return committed_only_ && head.IsTransactional() && aborted_producers_.contains(head.producer_id);
}

// Inflates the records of the batch: to the room that was offered if they are expected to fit, with
// a quarter to spare, or else to the inflater's buffer. False with a fault.
bool PartitionRecords::Inflate(Codec codec, Bytes* records) {
  const Bytes packed = *records;
  Inflation done = Inflation::kNoRoom;
  if (room_.at != nullptr) {
    done = inflater_->InflateTo(room_.at, room_.bytes, codec, packed, records);
    if (done == Inflation::kDone) placed_ = *records;
  }
  if (done == Inflation::kNoRoom) done = inflater_->Inflate(codec, packed, records);
  if (done == Inflation::kDone) {
    const auto count = static_cast<std::size_t>(std::max(head_.count, 1));
    if (codec != Codec::kNone) inflater_->record_bytes = records->size / count + 1;
    return true;
  }
  char what[96];
  std::snprintf(what, sizeof what, "%s (%s)",
                done == Inflation::kBad        ? "is not compressed as it says"
                : done == Inflation::kTooLarge ? "inflates to more than receive.message.max.bytes"
                                               : "needs more memory than there is",
                NameOf(codec));
  Fail(done == Inflation::kBad ? Fault::Kind::kBadCompression : Fault::Kind::kTooLarge, what);
  return false;
}

// True when the records of the batch are expected to fit in the room.
bool PartitionRecords::Fits() const {
  const auto count = static_cast<std::size_t>(head_.count);
  const std::size_t expected = count * (inflater_->record_bytes + inflater_->record_bytes / 4);
  return inflater_->record_bytes > 0 && count <= room_.records && expected <= room_.bytes;
}

// Opens the next batch that is read. kNone at the end, or with a fault.
PartitionRecords::Opening PartitionRecords::OpenBatch() {
  for (;;) {
    const HeadVerdict verdict = ReadHead(bytes_, &head_);
    if (verdict == HeadVerdict::kCut) {
      if (!had_batch_ && bytes_.size > 0) Fail(Fault::Kind::kBad, "is cut");
      return Opening::kNone;
    }
    if (verdict == HeadVerdict::kOldFormat)
      return Failed(Fault::Kind::kOldFormat, "has format 0 or 1");
    if (verdict == HeadVerdict::kBad)
      return Failed(Fault::Kind::kBad, "has a head that is not one");
    had_batch_ = true;
    const Bytes batch{bytes_.data, head_.size};
    const auto number = static_cast<std::uint8_t>(head_.attributes & 7);
    const bool is_plain = number == 0 || head_.IsControl();
    if (is_plain || !Fits()) {
      if (!is_plain && room_.may_wait && head_.LastOffset() >= next_offset_) return Opening::kWait;
      room_ = {};
    }
    bytes_ = {bytes_.data + head_.size, bytes_.size - head_.size};
    if (head_.LastOffset() < next_offset_) continue;
    if (!HasItsCrc(batch, head_)) return Failed(Fault::Kind::kBadCrc, "has a wrong CRC-32C");
    if (number > kCodecsMax)
      return Failed(Fault::Kind::kBadCompression, "has an unknown compression");
    Bytes records{batch.data + BatchHead::kBytes, batch.size - BatchHead::kBytes};
    if (committed_only_) MarkAborted(head_.LastOffset());
    const bool is_control = head_.IsControl();
    if (!is_control && SkipsBatch(head_, records)) {
      next_offset_ = head_.LastOffset() + 1;
      continue;
    }
    if (!Inflate(static_cast<Codec>(number), &records)) return Opening::kNone;
    if (is_control && SkipsBatch(head_, records)) {
      next_offset_ = head_.LastOffset() + 1;
      continue;
    }
    cursor_ = RecordCursor(head_, records);
    is_open_ = true;
    return Opening::kOpened;
  }
}

void PartitionRecords::MoveOut() {
  const Bytes from = placed_;
  Bytes copy;
  placed_ = {};
  if (!inflater_->Copy(from, &copy)) {
    if (kept_) next_offset_ = record_.offset;
    Fail(Fault::Kind::kTooLarge, "needs more memory than there is");
    return;
  }
  cursor_.MoveTo(copy.data, from.data);
  for (const std::uint8_t** one :
       {&record_.key, &record_.value, &record_.headers, &record_.headers_end}) {
    if (*one != nullptr) *one = copy.data + (*one - from.data);
  }
}

PartitionRecords::Step PartitionRecords::Next() {
  if (kept_ && fault_.kind == Fault::Kind::kNone) {
    kept_ = false;
    return Step::kRecord;
  }
  for (;;) {
    if (fault_.kind != Fault::Kind::kNone) return Step::kFault;
    if (!is_open_) {
      const Opening opening = OpenBatch();
      room_ = {};
      if (opening == Opening::kWait) return Step::kWait;
      if (opening == Opening::kNone)
        return fault_.kind == Fault::Kind::kNone ? Step::kEnd : Step::kFault;
    }
    switch (cursor_.Next(&record_)) {
      case RecordCursor::Step::kBad:
        return Fail(Fault::Kind::kBad, "has a record that is not one");
      case RecordCursor::Step::kEnd:
        next_offset_ = head_.LastOffset() + 1;
        is_open_ = false;
        placed_ = {};
        break;
      case RecordCursor::Step::kRecord:
        if (record_.offset < next_offset_) break;
        next_offset_ = record_.offset + 1;
        return Step::kRecord;
    }
  }
}

Extent ExtentOf(Bytes bytes, std::int64_t from_offset) {
  Extent extent{from_offset};
  BatchHead head;
  for (;;) {
    const HeadVerdict verdict = ReadHead(bytes, &head);
    if (verdict != HeadVerdict::kOk) {
      const bool is_whole = bytes.size == 0 || (verdict == HeadVerdict::kCut && extent.has_batch);
      extent.is_faulty = !is_whole;
      return extent;
    }
    extent.has_batch = true;
    extent.leader_epoch = head.leader_epoch;
    extent.newest_ms = std::max(extent.newest_ms, head.max_timestamp);
    extent.next_offset = std::max(extent.next_offset, head.LastOffset() + 1);
    bytes = {bytes.data + head.size, bytes.size - head.size};
  }
}

}  // namespace millrace::broker::wire
