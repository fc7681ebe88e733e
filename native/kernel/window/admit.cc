#include "kernel/window/admit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernel/invariant.h"
#include "kernel/window/row.h"

namespace millrace::kernel {
namespace {

using Clock = layout::WindowClock;
using Progress = layout::PartitionProgress;

// Represents -Infinity and, negated, Infinity: far outside of all times, and adding a duration to
// it does not overflow.
constexpr std::int64_t kNever = -(std::int64_t{1} << 62);
constexpr std::int64_t kForever = -kNever;
constexpr std::int64_t kExactMax = std::int64_t{1} << 53;
constexpr std::size_t kProgressCells = Progress::kBytes / sizeof(double);
constexpr std::size_t kClockCells = Clock::kBytes / sizeof(double);
// Number of rows that the fast path handles together.
constexpr std::uint32_t kBlockRows = 64;
constexpr std::uint32_t kWaitBlocksMax = 31;

// Reads a whole number in [least, greatest]; the comparison is written so that NaN fails.
bool Whole(double cell, std::int64_t least, std::int64_t greatest, std::int64_t* out) {
  if (!(cell >= static_cast<double>(least) && cell <= static_cast<double>(greatest)) ||
      cell != std::floor(cell)) {
    return false;
  }
  *out = static_cast<std::int64_t>(cell);
  return true;
}

bool WholeOr(double cell, double otherwise, std::int64_t stands_for, std::int64_t* out) {
  if (cell == otherwise) {
    *out = stands_for;
    return true;
  }
  return Whole(cell, -kExactMax, kExactMax, out);
}

double ToCell(std::int64_t time) {
  if (time <= kNever) return -std::numeric_limits<double>::infinity();
  if (time >= kForever) return std::numeric_limits<double>::infinity();
  return static_cast<double>(time);
}

std::int64_t FloorTo(std::int64_t time, std::int64_t step) {
  const std::int64_t past = time % step;
  return time - (past < 0 ? past + step : past);
}

struct Lane {
  std::int64_t next;
  std::int64_t limit;
  std::int64_t seen;
  std::int64_t accepted;
  std::int64_t late;
  std::int64_t after_idle;
  std::int64_t invalid;
  std::int64_t clamped;
  bool idle;
};

class Admission {
 public:
  Status Read(Span<double> clock, Span<double> progress);
  void Write(Span<double> clock, Span<double> progress) const;
  // Returns false at an invalid row: an unknown partition or an offset that does not ascend.
  bool Run(const Rows<layout::RecordBatch>& records, const Rows<layout::EventBatch>& events,
           std::uint32_t from, Rows<layout::AdmittedBatch>* admitted,
           Rows<layout::RefusedBatch>* refused);
  // Next row to process.
  std::uint32_t row() const { return row_; }
  bool Due() const { return watermark_ >= next_end_; }

 private:
  bool Block(const layout::RecordBatch& records, const layout::EventBatch& events,
             const layout::AdmittedBatch& out, std::uint32_t rows);
  bool Row(const layout::RecordBatch& records, const layout::EventBatch& events,
           const layout::AdmittedBatch& out);
  void Judge(std::int64_t event_ts, Lane* lane, const layout::AdmittedBatch& out);
  void RaiseSeen(std::int64_t event_ts, Lane* lane);
  void EnterSlice(std::int64_t event_ts);
  void Refuse(std::uint8_t reason, std::int64_t bound);
  // True where row `row` is of the same record as the row before it.
  bool Continues(const layout::RecordBatch& records, std::uint32_t row) const {
    return row > 0 && records.offset[row] == records.offset[row - 1] &&
           records.partition[row] == records.partition[row - 1];
  }
  // True where admission stops before the row: a window is due, and the row begins a record. An
  // event that is admitted is not behind the watermark, so it is in no window that is due.
  bool Stops(const layout::RecordBatch& records) const {
    return Due() && !Continues(records, row_);
  }
  void FindLeast();
  std::int64_t LeastOfOthers(const Lane* lane);
  void FindWatermark() {
    const std::int64_t time = global_ ? seen_ : least_;
    // The watermark never decreases, and stays while every partition is idle.
    if (time == kForever || time == kNever) return;
    watermark_ = std::max(watermark_, time - delay_);
  }

  bool global_ = false;
  std::int64_t slice_ms_ = 1, slide_ms_ = 1, size_ms_ = 1, delay_ = 0, max_future_ = -1;
  std::int64_t next_end_ = kForever, watermark_ = kNever;
  // Greatest event time over all partitions, and the least of the greatest event times of those
  // that are not idle.
  std::int64_t seen_ = kNever, least_ = kNever;
  std::vector<Lane> lanes_;
  // Cache of the least time of all lanes except `others_of_`; null: not valid.
  const Lane* others_of_ = nullptr;
  std::int64_t others_ = kForever;
  // Current slice [start_, start_ + slice_ms_), valid once in_slice_ is true.
  std::int64_t start_ = 0;
  bool in_slice_ = false;
  std::uint32_t row_ = 0, count_ = 0, refused_count_ = 0;
  // Null: the caller does not need the refused rows.
  const layout::RefusedBatch* refused_ = nullptr;
};

Status Admission::Read(Span<double> clock, Span<double> progress) {
  if (clock.size < kClockCells || progress.size == 0 || progress.size % kProgressCells != 0) {
    return Status::kBadArgument;
  }
  const auto time = [&](std::size_t at) { return clock.data[at / sizeof(double)]; };
  const double infinity = std::numeric_limits<double>::infinity();
  const bool sliced = time(Clock::kSizeMsAt) != 0;
  const std::int64_t least = sliced ? 1 : 0;
  const std::int64_t most = sliced ? kDurationMsMax : 0;
  std::int64_t global = 0;
  if (!Whole(time(Clock::kGlobalAt), 0, 1, &global) ||
      !Whole(time(Clock::kSliceMsAt), least, most, &slice_ms_) ||
      !Whole(time(Clock::kSlideMsAt), least, most, &slide_ms_) ||
      !Whole(time(Clock::kSizeMsAt), slide_ms_, most, &size_ms_) ||
      (sliced && (slide_ms_ % slice_ms_ != 0 || size_ms_ % slice_ms_ != 0)) ||
      !Whole(time(Clock::kDelayMsAt), 0, 2 * kDurationMsMax, &delay_) ||
      !Whole(time(Clock::kMaxFutureMsAt), -1, kDurationMsMax, &max_future_) ||
      !WholeOr(time(Clock::kNextEndAt), infinity, kForever, &next_end_) ||
      !WholeOr(time(Clock::kFrontierAt), -infinity, kNever, &watermark_)) {
    return Status::kBadArgument;
  }
  global_ = global == 1;
  if (!sliced) {
    // Session windows: one slice holds every event, so that no event opens another slice.
    start_ = -kEventTsLimit;
    slice_ms_ = 2 * kEventTsLimit;
    in_slice_ = true;
  }
  lanes_.resize(progress.size / kProgressCells);
  for (std::size_t p = 0; p < lanes_.size(); p++) {
    const double* cells = progress.data + p * kProgressCells;
    const auto cell = [&](std::size_t at) { return cells[at / sizeof(double)]; };
    Lane& lane = lanes_[p];
    std::int64_t idle = 0;
    std::int64_t consumed = 0;
    if (!Whole(cell(Progress::kNextOffsetAt), 0, kExactMax, &lane.next) ||
        !(cell(Progress::kLimitAt) == infinity ||
          Whole(cell(Progress::kLimitAt), 0, kExactMax, &lane.limit)) ||
        !(cell(Progress::kMaxSeenAt) == -infinity ||
          Whole(cell(Progress::kMaxSeenAt), -kEventTsLimit, kEventTsLimit, &lane.seen)) ||
        !Whole(cell(Progress::kConsumedAt), 0, kExactMax, &consumed) ||
        !Whole(cell(Progress::kAcceptedAt), 0, kExactMax, &lane.accepted) ||
        !Whole(cell(Progress::kDroppedLateAt), 0, kExactMax, &lane.late) ||
        !Whole(cell(Progress::kDroppedAfterIdleAt), 0, kExactMax, &lane.after_idle) ||
        !Whole(cell(Progress::kInvalidAt), 0, kExactMax, &lane.invalid) ||
        !Whole(cell(Progress::kFutureClampedAt), 0, kExactMax, &lane.clamped) ||
        !Whole(cell(Progress::kIdleAt), 0, 1, &idle) ||
        consumed != lane.accepted + lane.late + lane.invalid) {
      return Status::kBadArgument;
    }
    if (cell(Progress::kLimitAt) == infinity) lane.limit = kForever;
    if (cell(Progress::kMaxSeenAt) == -infinity) lane.seen = kNever;
    lane.idle = idle == 1;
    seen_ = std::max(seen_, lane.seen);
  }
  FindLeast();
  FindWatermark();
  return Status::kOk;
}

void Admission::Write(Span<double> clock, Span<double> progress) const {
  clock.data[Clock::kNextEndAt / sizeof(double)] = ToCell(next_end_);
  clock.data[Clock::kFrontierAt / sizeof(double)] = ToCell(watermark_);
  clock.data[Clock::kMaxSeenAt / sizeof(double)] = ToCell(seen_);
  for (std::size_t p = 0; p < lanes_.size(); p++) {
    double* cells = progress.data + p * kProgressCells;
    const auto put = [&](std::size_t at, double value) { cells[at / sizeof(double)] = value; };
    const Lane& lane = lanes_[p];
    put(Progress::kNextOffsetAt, static_cast<double>(lane.next));
    put(Progress::kMaxSeenAt, ToCell(lane.seen));
    put(Progress::kConsumedAt, static_cast<double>(lane.accepted + lane.late + lane.invalid));
    put(Progress::kAcceptedAt, static_cast<double>(lane.accepted));
    put(Progress::kDroppedLateAt, static_cast<double>(lane.late));
    put(Progress::kDroppedAfterIdleAt, static_cast<double>(lane.after_idle));
    put(Progress::kInvalidAt, static_cast<double>(lane.invalid));
    put(Progress::kFutureClampedAt, static_cast<double>(lane.clamped));
    put(Progress::kIdleAt, lane.idle ? 1 : 0);
  }
}

void Admission::FindLeast() {
  others_of_ = nullptr;
  least_ = kForever;
  for (const Lane& lane : lanes_) {
    if (!lane.idle) least_ = std::min(least_, lane.seen);
  }
}

std::int64_t Admission::LeastOfOthers(const Lane* lane) {
  if (others_of_ != lane) {
    others_of_ = lane;
    others_ = kForever;
    for (const Lane& other : lanes_) {
      if (!other.idle && &other != lane) others_ = std::min(others_, other.seen);
    }
  }
  return others_;
}

// Raises the greatest event time of a partition.
void Admission::RaiseSeen(std::int64_t event_ts, Lane* lane) {
  const std::int64_t before = lane->seen;
  lane->seen = event_ts;
  if (others_of_ != lane) others_of_ = nullptr;
  seen_ = std::max(seen_, event_ts);
  if (!global_ && before == least_) {
    least_ = std::min(LeastOfOthers(lane), event_ts);
  }
  FindWatermark();
}

void Admission::EnterSlice(std::int64_t event_ts) {
  start_ = FloorTo(event_ts, slice_ms_);
  in_slice_ = true;
  // Earliest end of a window that holds the slice: ends are a slide apart, and one of them is
  // size_ms_.
  const std::int64_t end = start_ + slice_ms_;
  next_end_ = std::min(next_end_, size_ms_ - FloorTo(size_ms_ - end, slide_ms_));
}

// Records the refusal of row row_ - 1.
void Admission::Refuse(std::uint8_t reason, std::int64_t bound) {
  if (refused_ == nullptr) return;
  refused_->row[refused_count_] = row_ - 1;
  refused_->reason[refused_count_] = reason;
  refused_->bound[refused_count_] = bound;
  refused_count_++;
}

// Processes one row. False when its partition or offset is invalid; then nothing is changed.
bool Admission::Row(const layout::RecordBatch& records, const layout::EventBatch& events,
                    const layout::AdmittedBatch& out) {
  const std::uint32_t row = row_;
  const std::int32_t partition = records.partition[row];
  if (partition < 0 || static_cast<std::size_t>(partition) >= lanes_.size()) return false;
  Lane& lane = lanes_[static_cast<std::size_t>(partition)];
  const std::int64_t position = records.offset[row];
  if (position >= lane.limit && lane.limit != kForever) {
    lane.next = lane.limit;
    row_++;
    return true;
  }
  const std::int64_t least = Continues(records, row) ? lane.next - 1 : lane.next;
  if (position < least || position >= kExactMax) return false;
  lane.next = position + 1;
  row_++;
  if (events.status[row] == layout::kEventStatusNoEvent) return true;
  const std::int64_t event_ts = events.event_ts[row];
  const bool filtered = events.status[row] == layout::kEventStatusFiltered;
  if ((events.status[row] != layout::kEventStatusOk && !filtered) || event_ts < -kEventTsLimit ||
      event_ts >= kEventTsLimit) {
    lane.invalid++;
    const std::int64_t seen = global_ ? seen_ : lane.seen;
    Refuse(layout::kRefusalInvalid, seen == kNever ? kNever : seen - delay_);
    return true;
  }
  if (lane.idle) [[unlikely]] {
    lane.idle = false;
    FindLeast();
    FindWatermark();
  }
  std::int64_t seen = event_ts;
  if (max_future_ >= 0 && records.timestamp_type[row] != layout::kTimestampTypeNone) {
    // The clamp keeps the addition in range; a timestamp outside the limits of events would bound
    // nothing, or everything.
    const std::int64_t reference =
        std::clamp(records.timestamp[row], -kEventTsLimit, kEventTsLimit);
    if (event_ts > reference + max_future_) {
      seen = reference + max_future_;
      lane.clamped++;
    }
  }
  if (seen > lane.seen) RaiseSeen(seen, &lane);
  if (filtered) {
    lane.accepted++;
  } else {
    Judge(event_ts, &lane, out);
  }
  return true;
}

void Admission::Judge(std::int64_t event_ts, Lane* lane, const layout::AdmittedBatch& out) {
  const std::int64_t seen = global_ ? seen_ : lane->seen;
  if (event_ts < seen - delay_) {
    lane->late++;
    Refuse(layout::kRefusalLate, seen - delay_);
    return;
  }
  if (event_ts < watermark_) {
    lane->late++;
    lane->after_idle++;
    Refuse(layout::kRefusalLateAfterIdle, watermark_);
    return;
  }
  lane->accepted++;
  if (!in_slice_ || event_ts < start_ || event_ts - start_ >= slice_ms_) EnterSlice(event_ts);
  out.row[count_] = row_ - 1;
  out.slice[count_] = start_;
  count_++;
}

// Processes `rows` rows of one partition together, where none can be late, no window can become
// due, and all lie in one slice. Otherwise returns false and changes nothing.
bool Admission::Block(const layout::RecordBatch& records, const layout::EventBatch& events,
                      const layout::AdmittedBatch& out, std::uint32_t rows) {
  const std::uint32_t first = row_;
  const std::int32_t partition = records.partition[first];
  if (partition < 0 || static_cast<std::size_t>(partition) >= lanes_.size()) return false;
  Lane& lane = lanes_[static_cast<std::size_t>(partition)];
  std::int64_t least = events.event_ts[first];
  std::int64_t most = least;
  std::int64_t position = Continues(records, first) ? lane.next - 1 : lane.next;
  std::uint32_t odd = 0;  // not 0 when a row does not fulfill the conditions of the block
  for (std::uint32_t row = first; row < first + rows; row++) {
    const std::int64_t event_ts = events.event_ts[row];
    least = std::min(least, event_ts);
    most = std::max(most, event_ts);
    odd |= events.status[row] ^ static_cast<std::uint32_t>(layout::kEventStatusOk);
    odd |= static_cast<std::uint32_t>(records.partition[row] ^ partition);
    odd |= records.offset[row] < position ? 1U : 0U;
    position = records.offset[row];
  }
  const std::int64_t seen = std::max(lane.seen, most);
  if (odd != 0 || lane.idle || position >= std::min(lane.limit, kExactMax) ||
      least < -kEventTsLimit || most >= kEventTsLimit ||
      least < (global_ ? std::max(seen_, most) : seen) - delay_ || least < watermark_) {
    return false;
  }
  const std::int64_t start = in_slice_ && least >= start_ && least - start_ < slice_ms_
                                 ? start_
                                 : FloorTo(least, slice_ms_);
  if (most - start >= slice_ms_) return false;
  // Event time that the watermark follows after the block. If the block opens a slice, no window
  // that holds the slice ends before the slice does.
  const std::int64_t time = global_               ? std::max(seen_, most)
                            : lane.seen == least_ ? std::min(LeastOfOthers(&lane), seen)
                                                  : least_;
  if (std::max(watermark_, time - delay_) >= std::min(next_end_, start + slice_ms_)) return false;

  if (!in_slice_ || start != start_) EnterSlice(least);
  if (seen > lane.seen) RaiseSeen(seen, &lane);
  lane.next = position + 1;
  lane.accepted += rows;
  for (std::uint32_t i = 0; i < rows; i++) {
    out.row[count_ + i] = first + i;
    out.slice[count_ + i] = start;
  }
  count_ += rows;
  row_ += rows;
  return true;
}

bool Admission::Run(const Rows<layout::RecordBatch>& records,
                    const Rows<layout::EventBatch>& events, std::uint32_t from,
                    Rows<layout::AdmittedBatch>* admitted, Rows<layout::RefusedBatch>* refused) {
  refused_ = refused == nullptr ? nullptr : &refused->at;
  const std::uint32_t rows = records.row_count;
  row_ = from;
  [[maybe_unused]] const std::int64_t watermark_before = watermark_;
  // Number of blocks to process row by row before the fast path is tried again: a failed attempt
  // costs a scan.
  std::uint32_t wait = max_future_ < 0 ? 0 : UINT32_MAX;
  std::uint32_t failures = 0;
  bool sound = true;
  while (sound && row_ < rows && !Stops(records.at)) {
    const std::uint32_t block = std::min(kBlockRows, rows - row_);
    if (wait == 0) {
      if (Block(records.at, events.at, admitted->at, block)) {
        failures = 0;
        continue;
      }
      failures = std::min(failures * 2 + 1, kWaitBlocksMax);
      wait = failures;
    } else {
      wait--;
    }
    const std::uint32_t end = row_ + block;
    while (sound && row_ < end && !Stops(records.at)) {
      sound = Row(records.at, events.at, admitted->at);
    }
  }
  MILLRACE_INVARIANT(watermark_ >= watermark_before);
  MILLRACE_INVARIANT(row_ >= from && row_ <= rows && count_ + refused_count_ <= row_ - from);
  admitted->at.header->row_count = count_;
  if (refused != nullptr) refused->at.header->row_count = refused_count_;
  return sound;
}

}  // namespace

Status Admit(Span<double> clock, Span<double> progress, const Rows<layout::RecordBatch>& records,
             const Rows<layout::EventBatch>& events, std::uint32_t from,
             Rows<layout::AdmittedBatch>* admitted, Rows<layout::RefusedBatch>* refused,
             std::uint32_t* taken) {
  if (events.row_count != records.row_count || from > records.row_count) {
    return Status::kBadArgument;
  }
  const std::uint32_t rows = records.row_count - from;
  if (admitted->row_capacity < rows || (refused != nullptr && refused->row_capacity < rows)) {
    return Status::kTooFewRows;
  }
  Admission admission;
  const Status status = admission.Read(clock, progress);
  if (status != Status::kOk) return status;
  const bool sound = admission.Run(records, events, from, admitted, refused);
  admission.Write(clock, progress);
  *taken = admission.row() - from;
  return sound ? Status::kOk : Status::kBadArgument;
}

}  // namespace millrace::kernel
