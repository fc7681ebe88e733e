#include "broker/direct/reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace::broker::direct {
namespace {

// Error numbers of librdkafka.
constexpr int kErrBadMessage = -199;
constexpr int kErrBadCompression = -198;
constexpr int kErrUnsupported = -165;

// Times that a batch that cannot be read is fetched before it is reported: bytes that were damaged
// on the way are sound the next time.
constexpr std::uint32_t kFaultTries = 3;
constexpr std::int64_t kFaultRetryMs = 250;
constexpr std::int64_t kFaultRetryMsMax = 2000;

int CodeOf(wire::Fault::Kind kind) {
  switch (kind) {
    case wire::Fault::Kind::kOldFormat:
      return kErrUnsupported;
    case wire::Fault::Kind::kBadCompression:
    case wire::Fault::Kind::kTooLarge:
      return kErrBadCompression;
    default:
      return kErrBadMessage;
  }
}

void CopyHeaders(const wire::Record& record, std::uint8_t* to) {
  const std::uint8_t* at = record.headers;
  for (std::uint32_t i = 0; i < record.header_count; i++) {
    wire::Header header{};
    at = wire::NextHeader(at, record.headers_end, &header);
    const auto name_length = static_cast<std::uint32_t>(header.name.size);
    const std::int32_t value_length = header.value_size < 0 ? layout::kSpanNull : header.value_size;
    std::memcpy(to + layout::RecordHeader::kNameLengthAt, &name_length, 4);
    std::memcpy(to + layout::RecordHeader::kValueLengthAt, &value_length, 4);
    to += layout::RecordHeader::kBytes;
    if (name_length > 0) std::memcpy(to, header.name.data, name_length);
    to += name_length;
    if (header.value_size > 0) {
      std::memcpy(to, header.value, static_cast<std::size_t>(header.value_size));
      to += header.value_size;
    }
  }
}

// Writes a span of the record to the arena and returns the place behind it.
std::uint32_t WriteSpan(const layout::RecordBatch& batch, std::uint32_t at,
                        const std::uint8_t* data, std::int32_t size, std::uint32_t* start,
                        std::int32_t* length) {
  *start = at;
  *length = size < 0 ? layout::kSpanNull : size;
  if (size <= 0) return at;
  std::memcpy(batch.arena + at, data, static_cast<std::size_t>(size));
  return at + static_cast<std::uint32_t>(size);
}

// Notes a span that is in the arena already; an empty one may be anywhere, so it gets `none`.
void NoteSpan(const layout::RecordBatch& batch, std::uint32_t none, const std::uint8_t* data,
              std::int32_t size, std::uint32_t* start, std::int32_t* length) {
  *start = size <= 0 ? none : static_cast<std::uint32_t>(data - batch.arena);
  *length = size < 0 ? layout::kSpanNull : size;
}

// Writes the row; what is not in the arena yet is written there from `at` on.
void WriteRow(const layout::RecordBatch& batch, std::uint32_t row, std::uint32_t at,
              const wire::Record& record, bool is_placed, const Partition& partition,
              std::size_t header_bytes) {
  batch.offset[row] = record.offset;
  batch.timestamp[row] = record.timestamp;
  batch.timestamp_type[row] = static_cast<std::uint8_t>(
      record.is_append_time ? layout::kTimestampTypeAppend : layout::kTimestampTypeCreate);
  batch.topic_index[row] = static_cast<std::int32_t>(partition.topic);
  batch.partition[row] = partition.number;
  if (is_placed) {
    NoteSpan(batch, at, record.key, record.key_size, &batch.key_start[row], &batch.key_length[row]);
    NoteSpan(batch, at, record.value, record.value_size, &batch.value_start[row],
             &batch.value_length[row]);
  } else {
    at = WriteSpan(batch, at, record.key, record.key_size, &batch.key_start[row],
                   &batch.key_length[row]);
    at = WriteSpan(batch, at, record.value, record.value_size, &batch.value_start[row],
                   &batch.value_length[row]);
  }
  batch.headers_start[row] = at;
  batch.headers_length[row] = static_cast<std::int32_t>(header_bytes);
  if (header_bytes > 0) CopyHeaders(record, batch.arena + at);
  batch.flags[row] =
      static_cast<std::uint8_t>((record.key_size < 0 ? layout::kRecordFlagKeyNull : 0) |
                                (record.value_size < 0 ? layout::kRecordFlagValueNull : 0) |
                                (header_bytes > 0 ? layout::kRecordFlagHasHeaders : 0));
}

}  // namespace

struct Reader::Filling {
  RecordRows into;
  ConsumeOutcome* out;
  std::uint32_t rows = 0;
  std::uint32_t used = 0;

  // Place for a whole Kafka batch, which is inflated into the arena. One that does not fit waits
  // for the next arena once half of this one is full: copying its records costs more.
  wire::PartitionRecords::Room Room() const {
    const std::uint32_t bytes = into.arena_capacity - used;
    const std::uint32_t records = into.row_capacity - rows;
    return {into.at.arena + used, bytes, records,
            rows > 0 && (rows >= into.row_capacity / 2 || used >= into.arena_capacity / 2)};
  }
};

std::unique_ptr<Reader> Reader::Open(const Properties& properties, ReaderHost* host,
                                     std::string* error) {
  Settings settings;
  if (!ReadSettings(properties, &settings, error)) return nullptr;
  std::unique_ptr<TlsContext> tls;
  if (settings.tls.is_on) {
    tls = TlsContext::Make(settings.tls, error);
    if (tls == nullptr) return nullptr;
  }
  std::unique_ptr<Reader> made(new Reader(std::move(settings), std::move(tls), host));
  if (made->fetcher_.is_open()) return made;
  *error = "no pipe can be opened";
  return nullptr;
}

void Reader::Consume(const RecordRows& into, int wait_ms, ConsumeOutcome* out) {
  const std::int64_t deadline = NowMs() + wait_ms;
  Filling filling{into, out};
  for (;;) {
    host_->ServeJobs();
    fetcher_.Pump(0);
    Fill(&filling);
    out->events = fetcher_.Drain();
    const std::int64_t left = deadline - NowMs();
    const bool something = filling.rows > 0 || !out->ends.empty() || !out->events.empty();
    if (something || left <= 0 || host_->Interrupted()) break;
    fetcher_.Pump(static_cast<int>(std::min<std::int64_t>(left, INT32_MAX)));
  }
  // Frees the broker to send while the caller works on the rows.
  fetcher_.Pump(0);
  into.at.header->row_count = filling.rows;
  into.at.header->arena_used = filling.used;
  out->rows = filling.rows;
  for (const auto& topics = fetcher_.topics(); topics_reported_ < topics.size(); topics_reported_++)
    out->topics.push_back(topics[topics_reported_]);
}

void Reader::DropFront() {
  is_reading_ = false;
  fetcher_.parts().pop_front();
}

// Moves records that wait into the batch, as far as they fit.
void Reader::Fill(Filling* filling) {
  std::deque<Part>& parts = fetcher_.parts();
  while (!parts.empty()) {
    Part& part = parts.front();
    Partition* partition = &fetcher_.partitions()[part.partition];
    if (partition->generation != part.generation) {
      DropFront();
      continue;
    }
    if (!is_reading_) {
      records_ = wire::PartitionRecords(part.records, part.from_offset, committed_only_,
                                        std::move(part.aborted), &inflater_);
      is_reading_ = true;
    }
    if (!FillPart(filling, part, partition)) return;
    DropFront();
  }
}

// False when the batch is full.
bool Reader::FillPart(Filling* filling, const Part& part, Partition* partition) {
  for (;;) {
    const bool opens = records_.OpensNext();
    if (opens) records_.Offer(filling->Room());
    switch (records_.Next()) {
      case wire::PartitionRecords::Step::kRecord:
        if (opens) filling->used += static_cast<std::uint32_t>(records_.placed().size);
        if (Append(filling, part, partition)) continue;
        records_.Keep();
        if (records_.placed().size == 0) return false;
        // The arena returns to the caller.
        records_.MoveOut();
        if (filling->rows > 0) return false;
        filling->used = 0;
        continue;
      case wire::PartitionRecords::Step::kWait:
        return false;
      case wire::PartitionRecords::Step::kEnd:
        partition->position = std::max(partition->position, records_.next_offset());
        if (!part.reaches_end || !reports_ends_ || partition->end == partition->position)
          return true;
        partition->end = partition->position;
        filling->out->ends.push_back(
            {fetcher_.topics()[partition->topic], partition->number, partition->position});
        return true;
      case wire::PartitionRecords::Step::kFault:
        partition->position = std::max(partition->position, records_.next_offset());
        OnFault(partition);
        return true;
    }
  }
}

// Fetches the batch again.
void Reader::OnFault(Partition* partition) {
  const wire::Fault fault = records_.fault();
  const bool is_old = fault.kind == wire::Fault::Kind::kOldFormat;
  const std::uint32_t faults = partition->faults + 1;
  fetcher_.Restart(partition, partition->position);
  partition->faults = faults;
  partition->blocked = is_old;
  partition->retry_ms = NowMs() + std::min(faults * kFaultRetryMs, kFaultRetryMsMax);
  if (is_old || faults >= kFaultTries)
    fetcher_.Note(fetcher_.EventAt(*partition, CodeOf(fault.kind), fault.text));
}

// Appends the record. False, with nothing written, when it does not fit.
bool Reader::Append(Filling* filling, const Part& part, Partition* partition) {
  const RecordRows& into = filling->into;
  if (filling->rows >= into.row_capacity) return false;
  const wire::Record& record = records_.record();
  const std::uint64_t header_bytes =
      std::uint64_t{record.header_count} * layout::RecordHeader::kBytes + record.header_payload;
  const bool is_placed = records_.placed().size > 0;
  const std::uint64_t span_bytes = static_cast<std::uint64_t>(std::max(record.key_size, 0)) +
                                   static_cast<std::uint64_t>(std::max(record.value_size, 0));
  const std::uint64_t bytes = header_bytes + (is_placed ? 0 : span_bytes);
  if (bytes > into.arena_capacity - filling->used) {
    if (filling->rows == 0 && !is_placed) NoteOversize(*partition, bytes, into.arena_capacity);
    return false;
  }
  WriteRow(into.at, filling->rows, filling->used, record, is_placed, *partition,
           static_cast<std::size_t>(header_bytes));
  partition->position = record.offset + 1;
  partition->end = -1;
  partition->faults = 0;
  filling->used += static_cast<std::uint32_t>(bytes);
  filling->rows++;
  std::vector<ReceiptRun>& receipts = filling->out->receipts;
  const std::int64_t received_us = part.response->received_us();
  if (receipts.empty() || receipts.back().at_us != received_us)
    receipts.push_back({0, received_us});
  receipts.back().rows++;
  return true;
}

void Reader::NoteOversize(const Partition& partition, std::uint64_t bytes, std::uint32_t capacity) {
  fetcher_.Note(fetcher_.EventAt(
      partition, kErrOversize,
      "the record at offset " + std::to_string(records_.record().offset) + " has " +
          std::to_string(bytes) + " bytes, more than the arena's " + std::to_string(capacity)));
}

Event Reader::Assign(const std::vector<Place>& places) {
  for (Partition& one : fetcher_.partitions()) {
    one.assigned = false;
    one.paused = false;
    one.generation++;
  }
  for (const Place& place : places) {
    Partition& one = fetcher_.partitions()[fetcher_.Add(place.topic, place.partition)];
    one.assigned = true;
    one.error = 0;
    fetcher_.Restart(&one, place.offset);
  }
  return {};
}

// Records that were fetched and not delivered are fetched again.
Event Reader::Pause(const std::vector<Place>& places, bool pause) {
  for (const Place& place : places) {
    Partition* one = fetcher_.Find(place.topic, place.partition);
    if (one == nullptr || one->paused == pause) continue;
    one->paused = pause;
    one->generation++;
    one->listing = false;
    if (one->position < 0) continue;
    one->blocked = false;
    one->fetched_epoch = -1;
    if (one->fetch_offset >= 0) one->fetch_offset = one->position;
  }
  return {};
}

Event Reader::Seek(const Place& place) {
  Partition* one = fetcher_.Find(place.topic, place.partition);
  if (one == nullptr || !one->assigned) return EventOf(kErrState);
  fetcher_.Restart(one, place.offset);
  return {};
}

std::vector<Place> Reader::Positions() {
  std::vector<Place> places;
  for (const Partition& one : fetcher_.partitions()) {
    if (one.assigned) places.push_back({fetcher_.topics()[one.topic], one.number, one.position});
  }
  return places;
}

}  // namespace millrace::broker::direct
