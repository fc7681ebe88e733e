#include "kernel/gen/events.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernel/gen/threefry.h"

namespace millrace::kernel {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields are copied from memory to little-endian bytes");

constexpr double kTwo32 = 4294967296.0;
constexpr double kTwo53 = 9007199254740992.0;
constexpr std::uint64_t kPadBytes = layout::Event::kBytes - layout::Event::kPadAt;
constexpr double kDelayMaxMs = 1099511627776.0;
constexpr double kPerMsMin = 1e-9;
// A rank is accepted with probability above 0.9, so this many rejections mean a damaged table.
constexpr std::uint32_t kAttemptsMax = 1000;

inline void Draw(const GenParams& params, std::int32_t stream, std::uint64_t seq,
                 std::uint32_t attempt, std::uint32_t (&out)[4]) {
  const std::uint32_t key[4] = {params.seed_low, params.seed_high,
                                static_cast<std::uint32_t>(stream),
                                static_cast<std::uint32_t>(layout::kGenKey)};
  out[0] = static_cast<std::uint32_t>(seq);
  out[1] = static_cast<std::uint32_t>(seq >> 32);
  out[2] = attempt;
  out[3] = 0;
  Threefry(key, out);
}

// Draws the first attempt of four events together: out[word][lane].
inline void DrawFour(const GenParams& params, std::int32_t stream,
                     const std::uint64_t (&seqs)[kLanes], Words (&out)[4]) {
  const std::uint32_t key[4] = {params.seed_low, params.seed_high,
                                static_cast<std::uint32_t>(stream),
                                static_cast<std::uint32_t>(layout::kGenKey)};
  for (std::size_t lane = 0; lane < kLanes; lane++) {
    out[0][lane] = static_cast<std::uint32_t>(seqs[lane]);
    out[1][lane] = static_cast<std::uint32_t>(seqs[lane] >> 32);
  }
  out[2] = Words{};
  out[3] = Words{};
  Threefry(key, out);
}

// Floor of a number >= 0; from 2^53 on every double is whole. std::floor is a call without SSE4.1,
// and unsigned conversions take a branch.
inline double Floor(double number) {
  return number < kTwo53 ? static_cast<double>(static_cast<std::int64_t>(number)) : number;
}

// Converts a whole number below 2^53.
inline double ToDouble(std::uint64_t number) {
  return static_cast<double>(static_cast<std::int64_t>(number));
}

double PowerOf(const GenParams& params, double base) {
  double power = 1;
  for (std::uint32_t i = 0; i < params.power_whole; i++) power *= base;
  double root = base;
  for (int bit = 29; bit >= 0; bit--) {
    root = std::sqrt(root);
    if (((params.power_fraction >> bit) & 1U) == 1) power *= root;
  }
  return power;
}

// Rank that four random words select; 0 when they are rejected. False when the table is damaged.
inline bool RankOfWords(const GenParams& params, const Rows<layout::ZipfTable>& zipf,
                        const std::uint32_t (&words)[4], std::uint64_t* rank) {
  const layout::ZipfTable& table = zipf.at;
  auto run = static_cast<std::uint32_t>((std::uint64_t{words[0]} * zipf.row_count) >> 32);
  if (words[1] / kTwo32 >= table.cut[run]) {
    const std::int32_t other = table.alias[run];
    if (other < 0 || static_cast<std::uint32_t>(other) >= zipf.row_count) return false;
    run = static_cast<std::uint32_t>(other);
  }
  const std::uint64_t at =
      table.first[run] +
      static_cast<std::uint64_t>(static_cast<std::int64_t>(words[2] / kTwo32 * table.size[run]));
  const double keep = words[3] / kTwo32;
  *rank = at;
  if (keep < table.sure[run]) return true;
  if (!(keep * PowerOf(params, ToDouble(at)) < table.top[run])) *rank = 0;
  return true;
}

struct Fields {
  std::uint64_t account_id;
  std::int64_t value;
  std::int64_t event_ts;
  std::uint64_t seq;
  std::uint32_t noise_at;
};

inline double SinceBase(const GenParams& params, std::uint64_t seq) {
  return Floor(ToDouble(seq) / params.per_ms);
}

// Computes the fields of `count` events, at most kLanes. False for a number that is no event, or a
// damaged table.
inline bool ComputeFields(const GenParams& params, const Rows<layout::ZipfTable>& zipf,
                          const double* numbers, std::size_t count, Fields (&out)[kLanes]) {
  std::uint64_t seqs[kLanes] = {};
  for (std::size_t lane = 0; lane < count; lane++) {
    if (!(numbers[lane] >= 0 && numbers[lane] < kTwo53)) return false;
    seqs[lane] = static_cast<std::uint64_t>(static_cast<std::int64_t>(numbers[lane]));
  }
  Words accounts[4];
  Words events[4];
  DrawFour(params, layout::kGenStreamAccount, seqs, accounts);
  DrawFour(params, layout::kGenStreamEvent, seqs, events);
  for (std::size_t lane = 0; lane < count; lane++) {
    std::uint32_t words[4] = {accounts[0][lane], accounts[1][lane], accounts[2][lane],
                              accounts[3][lane]};
    std::uint64_t rank = 0;
    if (!RankOfWords(params, zipf, words, &rank)) return false;
    for (std::uint32_t attempt = 1; rank == 0; attempt++) {
      if (attempt == kAttemptsMax) return false;
      Draw(params, layout::kGenStreamAccount, seqs[lane], attempt, words);
      if (!RankOfWords(params, zipf, words, &rank)) return false;
    }
    const std::uint64_t high = (std::uint64_t{events[0][lane]} << 21) | (events[1][lane] >> 11);
    const double value = params.value_min + Floor(ToDouble(high) / kTwo53 * params.value_span);
    const double event_ts = params.base_ts + SinceBase(params, seqs[lane]);
    if (!(event_ts < kTwo53)) return false;
    Fields& fields = out[lane];
    fields.account_id = params.account_base + (rank - 1);
    fields.value = static_cast<std::int64_t>(value);
    fields.event_ts = static_cast<std::int64_t>(event_ts);
    fields.seq = seqs[lane];
    fields.noise_at = events[2][lane] >> 16;
  }
  return true;
}

double DelayOf(const GenParams& params, std::uint64_t seq) {
  std::uint32_t words[4];
  Draw(params, layout::kGenStreamDelay, seq, 0, words);
  const double kind = words[0];
  const double u = words[1] / kTwo32;
  if (kind < params.typical_below) return Floor(u * u * (params.typical_max_ms + 1));
  if (kind < params.tail_below) {
    return params.typical_max_ms +
           Floor(u * u * u * (params.tail_max_ms - params.typical_max_ms + 1));
  }
  return params.tail_max_ms + Floor(u * (params.straggler_max_ms - params.tail_max_ms + 1));
}

// Arrival queue during one call: a hierarchical timing wheel of three levels. Times are whole ms
// after the first event.
class Queue {
 public:
  Queue(Rows<layout::ArrivalWheel>* wheel, Rows<layout::ArrivalPool>* pool)
      : head_(wheel->at.head),
        tail_(wheel->at.tail),
        next_(pool->at.next),
        seq_(pool->at.seq),
        arrival_(pool->at.arrival),
        rows_(pool->row_capacity) {}

  bool Holds(std::int32_t row) const { return row >= 0 && static_cast<std::uint32_t>(row) < rows_; }

  bool Link(std::int32_t row, std::uint64_t arrival, std::uint64_t clock) {
    std::uint64_t list = 0;
    if (arrival >> kBits == clock >> kBits) {
      list = arrival & kMask;
    } else if (arrival >> (2 * kBits) == clock >> (2 * kBits)) {
      list = kSlots + ((arrival >> kBits) & kMask);
    } else {
      list = 2 * kSlots + ((arrival >> (2 * kBits)) & kMask);
    }
    next_[row] = -1;
    if (head_[list] == -1) {
      head_[list] = row;
    } else {
      if (!Holds(tail_[list])) return false;
      next_[tail_[list]] = row;
    }
    tail_[list] = row;
    return true;
  }

  // Cascades the lists of higher levels. REQUIRES: called for every millisecond that NextStop
  // returns.
  bool Advance(std::uint64_t clock) {
    if ((clock & kMask) != 0) return true;
    if ((clock & ((kSlots << kBits) - 1)) == 0 &&
        !Cascade(2 * kSlots + ((clock >> (2 * kBits)) & kMask), clock)) {
      return false;
    }
    return Cascade(kSlots + ((clock >> kBits) & kMask), clock);
  }

  // Next millisecond after `clock` at which something happens: an arrival, a list to cascade, or
  // the event due at `due_ms`.
  std::uint64_t NextStop(std::uint64_t clock, double due_ms) const {
    const auto due = static_cast<std::uint64_t>(due_ms < kTwo53 ? due_ms : kTwo53);
    std::uint64_t at = clock + 1;
    while ((at & kMask) != 0 && at < due && head_[at & kMask] == -1) at++;
    if ((at & kMask) != 0) return at;
    while ((at & ((kSlots << kBits) - 1)) != 0 && at + kSlots <= due &&
           head_[kSlots + ((at >> kBits) & kMask)] == -1) {
      at += kSlots;
    }
    return at;
  }

  std::int32_t* head() { return head_; }
  std::int32_t* next() { return next_; }
  double* seq() { return seq_; }
  double* arrival() { return arrival_; }

  static constexpr std::uint64_t kSlots = layout::kArrivalWheelSlots;
  static constexpr std::uint64_t kBits = layout::kArrivalWheelSlotBits;
  static constexpr std::uint64_t kMask = kSlots - 1;
  static constexpr std::uint64_t kSpanMs = kSlots << (2 * kBits);

 private:
  bool Cascade(std::uint64_t list, std::uint64_t clock) {
    std::int32_t row = head_[list];
    head_[list] = -1;
    for (std::uint32_t steps = 0; row != -1; steps++) {
      if (!Holds(row) || steps == rows_) return false;
      const std::int32_t next = next_[row];
      const double arrival = arrival_[row];
      if (!(arrival >= 0 && arrival < kTwo53)) return false;
      if (!Link(row, static_cast<std::uint64_t>(arrival), clock)) return false;
      row = next;
    }
    return true;
  }

  std::int32_t* head_;
  std::int32_t* tail_;
  std::int32_t* next_;
  double* seq_;
  double* arrival_;
  std::uint32_t rows_;
};

inline bool Within(double value, double least, double most) {
  return value >= least && value <= most;  // false for NaN
}

constexpr std::size_t Cell(std::size_t at) { return at / sizeof(double); }

}  // namespace

Status ReadGenParams(Span<double> cells, GenParams* out) {
  using P = layout::GenParams;
  if (cells.size != P::kBytes / sizeof(double)) return Status::kBadArgument;
  const auto cell = [&](std::size_t at) { return cells.data[Cell(at)]; };
  const auto word = [&](std::size_t at, std::uint32_t* into) {
    const double value = cell(at);
    if (!Within(value, 0, kTwo32 - 1)) return false;
    *into = static_cast<std::uint32_t>(value);
    return true;
  };
  std::uint32_t base_low = 0;
  std::uint32_t base_high = 0;
  if (!word(P::kSeedLowAt, &out->seed_low) || !word(P::kSeedHighAt, &out->seed_high) ||
      !word(P::kAccountBaseLowAt, &base_low) || !word(P::kAccountBaseHighAt, &base_high) ||
      !word(P::kPowerWholeAt, &out->power_whole) || out->power_whole > 16 ||
      !word(P::kPowerFractionAt, &out->power_fraction)) {
    return Status::kBadArgument;
  }
  out->account_base = (std::uint64_t{base_high} << 32) | base_low;
  out->value_min = cell(P::kValueMinAt);
  out->value_span = cell(P::kValueSpanAt);
  out->base_ts = cell(P::kBaseTsAt);
  out->per_ms = cell(P::kPerMsAt);
  out->typical_below = cell(P::kTypicalBelowAt);
  out->tail_below = cell(P::kTailBelowAt);
  out->typical_max_ms = cell(P::kTypicalMaxMsAt);
  out->tail_max_ms = cell(P::kTailMaxMsAt);
  out->straggler_max_ms = cell(P::kStragglerMaxMsAt);
  out->count = cell(P::kCountAt);
  const bool ok = Within(out->value_min, -kTwo53, kTwo53) && Within(out->value_span, 1, kTwo53) &&
                  Within(out->base_ts, 0, kTwo53) && Within(out->per_ms, kPerMsMin, kTwo53) &&
                  Within(out->typical_below, 0, kTwo32) && Within(out->tail_below, 0, kTwo32) &&
                  Within(out->typical_max_ms, 0, kDelayMaxMs) &&
                  Within(out->tail_max_ms, 0, kDelayMaxMs) &&
                  Within(out->straggler_max_ms, 0, kDelayMaxMs) && Within(out->count, 0, kTwo53);
  return ok ? Status::kOk : Status::kBadArgument;
}

Status GenArrivals(const GenParams& params, Span<double> state, Rows<layout::ArrivalWheel>* wheel,
                   Rows<layout::ArrivalPool>* pool, Span<double> seqs, std::size_t* written) {
  using S = layout::ArrivalState;
  *written = 0;
  if (state.size != S::kBytes / sizeof(double) ||
      wheel->row_capacity != layout::kArrivalWheelLevels * layout::kArrivalWheelSlots) {
    return Status::kBadArgument;
  }
  const double clock_cell = state.data[Cell(S::kClockAt)];
  const double next_cell = state.data[Cell(S::kNextSeqAt)];
  const double pending_cell = state.data[Cell(S::kPendingAt)];
  const double free_cell = state.data[Cell(S::kFreeHeadAt)];
  if (!Within(clock_cell, 0, kTwo53) || !Within(next_cell, 0, kTwo53) ||
      !Within(pending_cell, 0, pool->row_capacity) ||
      !Within(free_cell, -1, static_cast<double>(pool->row_capacity) - 1)) {
    return Status::kBadArgument;
  }
  Queue queue(wheel, pool);
  const auto count = static_cast<std::uint64_t>(params.count);
  auto clock = static_cast<std::uint64_t>(clock_cell);
  auto next_seq = static_cast<std::uint64_t>(next_cell);
  auto pending = static_cast<std::uint64_t>(pending_cell);
  auto free_head = static_cast<std::int32_t>(free_cell);
  bool pool_full = false;
  std::size_t out = 0;
  // Clock of the last insertion or removal. A queued event is never further away than the span of
  // the wheel.
  std::uint64_t moved = clock;
  while (out < seqs.size) {
    if (pending == 0) {
      if (next_seq >= count) break;
      // The queue is empty, so no list needs a cascade and the clock may jump.
      const double since = SinceBase(params, next_seq);
      if (!(since < kTwo53)) return Status::kBadArgument;
      clock = static_cast<std::uint64_t>(since);
    }
    while (next_seq < count && SinceBase(params, next_seq) <= static_cast<double>(clock)) {
      if (free_head == -1) {
        pool_full = true;
        break;
      }
      if (!queue.Holds(free_head)) return Status::kSpanOutOfRange;
      const double arrival = SinceBase(params, next_seq) + DelayOf(params, next_seq);
      if (!(arrival >= 0 && arrival < kTwo53)) return Status::kBadArgument;
      const std::int32_t row = free_head;
      free_head = queue.next()[row];
      queue.seq()[row] = static_cast<double>(next_seq);
      queue.arrival()[row] = arrival;
      if (!queue.Link(row, static_cast<std::uint64_t>(arrival), clock)) {
        return Status::kSpanOutOfRange;
      }
      next_seq++;
      pending++;
      moved = clock;
    }
    if (pool_full) break;
    const std::uint64_t list = clock & Queue::kMask;
    std::int32_t row = queue.head()[list];
    while (row != -1 && out < seqs.size) {
      if (!queue.Holds(row) || pending == 0) return Status::kSpanOutOfRange;
      const std::int32_t next = queue.next()[row];
      seqs.data[out++] = queue.seq()[row];
      queue.next()[row] = free_head;
      free_head = row;
      row = next;
      pending--;
      moved = clock;
    }
    queue.head()[list] = row;
    if (row == -1) {
      if (pending > 0 && clock - moved > Queue::kSpanMs) return Status::kSpanOutOfRange;
      clock = queue.NextStop(clock, next_seq < count ? SinceBase(params, next_seq) : kTwo53);
      if (!queue.Advance(clock)) return Status::kSpanOutOfRange;
    }
  }
  state.data[Cell(S::kClockAt)] = static_cast<double>(clock);
  state.data[Cell(S::kNextSeqAt)] = static_cast<double>(next_seq);
  state.data[Cell(S::kPendingAt)] = static_cast<double>(pending);
  state.data[Cell(S::kFreeHeadAt)] = free_head;
  state.data[Cell(S::kEmittedAt)] += static_cast<double>(out);
  state.data[Cell(S::kPoolFullAt)] = pool_full ? 1 : 0;
  *written = out;
  return Status::kOk;
}

Status GenRecords(const GenParams& params, const Rows<layout::ZipfTable>& zipf,
                  Span<std::uint8_t> noise, Span<double> seqs, std::size_t count,
                  Rows<layout::RecordBatch>* into) {
  using E = layout::Event;
  if (noise.size != static_cast<std::size_t>(layout::kGenNoiseBytes) || count > seqs.size ||
      zipf.row_count == 0) {
    return Status::kBadArgument;
  }
  if (count > into->row_capacity || count * E::kBytes > into->arena_capacity) {
    return Status::kTooFewRows;
  }
  const layout::RecordBatch& c = into->at;
  std::uint32_t at = 0;
  for (std::size_t from = 0; from < count; from += kLanes) {
    Fields four[kLanes];
    const std::size_t lanes = count - from < kLanes ? count - from : kLanes;
    if (!ComputeFields(params, zipf, seqs.data + from, lanes, four)) return Status::kBadArgument;
    for (std::size_t lane = 0; lane < lanes; lane++) {
      const Fields& fields = four[lane];
      const std::size_t row = from + lane;
      std::uint8_t* event = c.arena + at;
      std::memcpy(event + E::kAccountIdAt, &fields.account_id, sizeof fields.account_id);
      std::memcpy(event + E::kValueAt, &fields.value, sizeof fields.value);
      std::memcpy(event + E::kEventTsAt, &fields.event_ts, sizeof fields.event_ts);
      std::memcpy(event + E::kSeqAt, &fields.seq, sizeof fields.seq);
      std::memcpy(event + E::kPadAt, noise.data + fields.noise_at, kPadBytes);
      c.offset[row] = layout::kSpanNoOffset;
      c.timestamp[row] = 0;
      c.topic_index[row] = 0;
      c.partition[row] = -1;
      c.key_start[row] = at + static_cast<std::uint32_t>(E::kAccountIdAt);
      c.key_length[row] = sizeof fields.account_id;
      c.value_start[row] = at;
      c.value_length[row] = static_cast<std::int32_t>(E::kBytes);
      c.headers_length[row] = 0;
      c.timestamp_type[row] = layout::kTimestampTypeNone;
      c.flags[row] = 0;
      at += static_cast<std::uint32_t>(E::kBytes);
      c.headers_start[row] = at;
    }
  }
  c.header->row_count = static_cast<std::uint32_t>(count);
  c.header->arena_used = at;
  return Status::kOk;
}

Status GenEvents(const GenParams& params, const Rows<layout::ZipfTable>& zipf, Span<double> seqs,
                 std::size_t count, Rows<layout::EventBatch>* into) {
  if (count > seqs.size || zipf.row_count == 0) return Status::kBadArgument;
  if (count > into->row_capacity) return Status::kTooFewRows;
  const layout::EventBatch& c = into->at;
  for (std::size_t from = 0; from < count; from += kLanes) {
    Fields four[kLanes];
    const std::size_t lanes = count - from < kLanes ? count - from : kLanes;
    if (!ComputeFields(params, zipf, seqs.data + from, lanes, four)) return Status::kBadArgument;
    for (std::size_t lane = 0; lane < lanes; lane++) {
      const std::size_t row = from + lane;
      c.account_id[row] = four[lane].account_id;
      c.value[row] = four[lane].value;
      c.event_ts[row] = four[lane].event_ts;
      c.seq[row] = four[lane].seq;
      c.status[row] = layout::kEventStatusOk;
    }
  }
  c.header->row_count = static_cast<std::uint32_t>(count);
  return Status::kOk;
}

}  // namespace millrace::kernel
