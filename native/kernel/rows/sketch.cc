#include "kernel/rows/sketch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernel/rows/top.h"
#include "layout/layouts.gen.h"

namespace millrace::kernel::sketch {
namespace {

// Sum of two inputs of kCells each.
constexpr std::size_t kBothCells = 2 * kCells;

constexpr std::int64_t kCountMax = (std::int64_t{1} << kCountBits) - 1;
// Beyond it a level changes nothing: all buckets of one sign are one.
constexpr std::uint32_t kLevelMax = 18;
constexpr std::int64_t kExponentBits = std::int64_t{0x7ff} << 52;

constexpr std::uint32_t kRegisters = 1;  // level of registers
constexpr int kRegisterBits = 12;
constexpr std::uint8_t kRankMax = 64 - kRegisterBits + 1;
static_assert((std::size_t{1} << kRegisterBits) == kCells * sizeof(std::int64_t));

std::int64_t BucketOf(std::int64_t cell) { return cell >> kCountBits; }
std::int64_t CountOf(std::int64_t cell) { return cell & kCountMax; }
std::int64_t CellOf(std::int64_t bucket, std::int64_t count) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(bucket) << kCountBits) | count;
}
std::int64_t AddCounts(std::int64_t a, std::int64_t b) { return std::min(a + b, kCountMax); }

// Bits of a double without the differences that a user does not mean: one zero, and one NaN.
std::int64_t Plain(std::int64_t bits) {
  const auto value = std::bit_cast<double>(bits);
  if (value == 0) return 0;
  return value != value ? std::bit_cast<std::int64_t>(__builtin_nan("")) : bits;
}

// Bucket of a double at level 0. Values below the least normal double are zero.
std::int64_t BucketOfDouble(std::int64_t bits) {
  const std::int64_t plain = Plain(bits);
  const std::int64_t magnitude = plain & INT64_MAX;
  if ((magnitude & kExponentBits) == 0) return 0;
  const std::int64_t bucket = magnitude >> (52 - kMantissaBits);
  return plain < 0 ? ~bucket : bucket;
}

// Number of cells below a cell, in an ascending list. Without branches: the values of a stream are
// in no order, so half of the branches of a search would be mispredicted.
std::size_t CountBelow(const std::int64_t* cells, std::size_t count, std::int64_t cell) {
  const std::int64_t* base = cells;
  while (count > 1) {
    const std::size_t half = count / 2;
    base += base[half - 1] < cell ? half : 0;
    count -= half;
  }
  return static_cast<std::size_t>(base - cells) + (count == 1 && *base < cell ? 1 : 0);
}

// Moves cells to buckets of 2^by, and returns their number.
std::size_t Coarsen(std::int64_t* cells, std::size_t count, std::uint32_t by) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i++) {
    const std::int64_t bucket = BucketOf(cells[i]) >> std::min(by, kLevelMax);
    if (kept > 0 && BucketOf(cells[kept - 1]) == bucket) {
      cells[kept - 1] = CellOf(bucket, AddCounts(CountOf(cells[kept - 1]), CountOf(cells[i])));
    } else {
      cells[kept++] = CellOf(bucket, CountOf(cells[i]));
    }
  }
  return kept;
}

// True when adding the cells one by one costs less than a merge of both lists.
bool IsFew(const Sketch& from, const Sketch& into) { return from.used() * 8 <= into.used() + 8; }

// Raises the level until the cells fit.
std::size_t Fit(std::int64_t* cells, std::size_t count, std::uint32_t* level) {
  while (count > kCells && *level < kLevelMax) {
    count = Coarsen(cells, count, 1);
    ++*level;
  }
  return std::min(count, kCells);
}

// Joins two ascending lists; `equal` makes one cell of two that Less puts at one place.
template <typename Less, typename Equal>
std::size_t Join(const std::int64_t* a, std::size_t a_count, const std::int64_t* b,
                 std::size_t b_count, std::int64_t* into, const Less& less, const Equal& equal) {
  std::size_t count = 0;
  std::size_t i = 0;
  std::size_t k = 0;
  while (i < a_count && k < b_count) {
    if (less(a[i], b[k])) {
      into[count++] = a[i++];
    } else if (less(b[k], a[i])) {
      into[count++] = b[k++];
    } else {
      into[count++] = equal(a[i++], b[k++]);
    }
  }
  while (i < a_count) into[count++] = a[i++];
  while (k < b_count) into[count++] = b[k++];
  return count;
}

std::size_t JoinBuckets(const std::int64_t* a, std::size_t a_count, const std::int64_t* b,
                        std::size_t b_count, std::int64_t* into) {
  return Join(
      a, a_count, b, b_count, into,
      [](std::int64_t x, std::int64_t y) { return BucketOf(x) < BucketOf(y); },
      [](std::int64_t x, std::int64_t y) {
        return CellOf(BucketOf(x), AddCounts(CountOf(x), CountOf(y)));
      });
}

// Adds values of a bucket of some level, at most that of the sketch.
void AddBucket(std::int64_t bucket, std::uint32_t level, std::int64_t number, Sketch* into) {
  const std::size_t used = into->used();
  std::int64_t* cells = into->cells();
  const std::int64_t wanted = bucket >> std::min(into->level() - level, kLevelMax);
  const std::size_t place = CountBelow(cells, used, CellOf(wanted, 0));
  if (place < used && BucketOf(cells[place]) == wanted) {
    cells[place] = CellOf(wanted, AddCounts(CountOf(cells[place]), number));
  } else if (used < kCells) {
    cells = into->Reserve(used + 1);
    std::memmove(cells + place + 1, cells + place, (used - place) * sizeof *cells);
    cells[place] = CellOf(wanted, number);
    into->Set(used + 1, into->level());
  } else {
    std::int64_t both[kCells + 1];
    const std::int64_t more = CellOf(wanted, number);
    std::uint32_t fitting = into->level();
    const std::size_t count = JoinBuckets(cells, used, &more, 1, both);
    const std::size_t kept = Fit(both, count, &fitting);
    into->Assign(both, kept, fitting);
  }
}

void MergeBuckets(const Sketch& from, Sketch* into) {
  if (IsFew(from, *into) && from.level() <= into->level()) {
    const std::int64_t* const cells = from.cells();
    for (std::size_t i = 0; i < from.used(); i++) {
      AddBucket(BucketOf(cells[i]), from.level(), CountOf(cells[i]), into);
    }
    return;
  }
  std::uint32_t level = std::max(from.level(), into->level());
  std::int64_t a[kCells];
  std::int64_t b[kCells];
  std::int64_t both[kBothCells];
  std::size_t a_count = into->used();
  std::size_t b_count = from.used();
  std::memcpy(a, into->cells(), a_count * sizeof *a);
  std::memcpy(b, from.cells(), b_count * sizeof *b);
  if (into->level() < level) a_count = Coarsen(a, a_count, level - into->level());
  if (from.level() < level) b_count = Coarsen(b, b_count, level - from.level());
  const std::size_t count = JoinBuckets(a, a_count, b, b_count, both);
  const std::size_t kept = Fit(both, count, &level);
  into->Assign(both, kept, level);
}

void Register(std::uint64_t hash, std::uint8_t* registers) {
  const std::uint64_t rest = hash << kRegisterBits;
  const auto rank = static_cast<std::uint8_t>(rest == 0 ? kRankMax : std::countl_zero(rest) + 1);
  std::uint8_t& at = registers[hash >> (64 - kRegisterBits)];
  at = std::max(at, rank);
}

void RegisterAll(const std::int64_t* hashes, std::size_t count, std::uint8_t* registers) {
  for (std::size_t i = 0; i < count; i++) {
    Register(static_cast<std::uint64_t>(hashes[i]), registers);
  }
}

// Replaces the content by hashes: as they are if they fit, else as registers.
void AssignHashes(const std::int64_t* hashes, std::size_t count, Sketch* into) {
  if (count <= kCells) {
    into->Assign(hashes, count, 0);
    return;
  }
  std::int64_t registers[kCells] = {};
  RegisterAll(hashes, count, reinterpret_cast<std::uint8_t*>(registers));
  into->Assign(registers, kCells, kRegisters);
}

void AddHash(std::uint64_t hash, Sketch* into) {
  const std::size_t used = into->used();
  std::int64_t* cells = into->cells();
  if (into->level() != 0) {
    if (used == kCells) Register(hash, reinterpret_cast<std::uint8_t*>(cells));
    return;
  }
  const auto wanted = static_cast<std::int64_t>(hash);
  const std::size_t place = CountBelow(cells, used, wanted);
  if (place < used && cells[place] == wanted) return;
  if (used == kCells) {
    std::int64_t both[kCells + 1];
    std::memcpy(both, cells, used * sizeof *both);
    both[used] = wanted;
    AssignHashes(both, kCells + 1, into);
    return;
  }
  cells = into->Reserve(used + 1);
  std::memmove(cells + place + 1, cells + place, (used - place) * sizeof *cells);
  cells[place] = wanted;
  into->Set(used + 1, 0);
}

void MergeHashes(const Sketch& from, Sketch* into) {
  std::int64_t both[kBothCells];
  if (from.level() == 0 && (into->level() != 0 || IsFew(from, *into))) {
    const std::int64_t* const hashes = from.cells();
    for (std::size_t i = 0; i < from.used(); i++) {
      AddHash(static_cast<std::uint64_t>(hashes[i]), into);
    }
    return;
  }
  if (from.level() == 0 && into->level() == 0) {
    const std::size_t count = Join(
        into->cells(), into->used(), from.cells(), from.used(), both,
        [](std::int64_t x, std::int64_t y) { return x < y; },
        [](std::int64_t x, std::int64_t) { return x; });
    AssignHashes(both, count, into);
    return;
  }
  std::int64_t registers[kCells] = {};
  auto* const bytes = reinterpret_cast<std::uint8_t*>(registers);
  const auto put = [&](const Sketch& sketch) {
    if (sketch.level() == 0) {
      RegisterAll(sketch.cells(), sketch.used(), bytes);
      return;
    }
    const auto* const other = reinterpret_cast<const std::uint8_t*>(sketch.cells());
    const std::size_t count = sketch.used() * sizeof(std::int64_t);
    for (std::size_t i = 0; i < count; i++) bytes[i] = std::max(bytes[i], other[i]);
  };
  put(*into);
  put(from);
  into->Assign(registers, kCells, kRegisters);
}

bool AreBuckets(const Sketch& sketch) {
  const std::int64_t* const cells = sketch.cells();
  const std::uint32_t level = sketch.level();
  if (level > kLevelMax) return false;
  const std::int64_t most = (kExponentBits | (kExponentBits >> 1)) >> (52 - kMantissaBits);
  for (std::size_t i = 0; i < sketch.used(); i++) {
    const std::int64_t bucket = BucketOf(cells[i]);
    if (CountOf(cells[i]) == 0 || bucket > most >> level || bucket < ~most >> level) return false;
    if (i > 0 && BucketOf(cells[i - 1]) >= bucket) return false;
  }
  return true;
}

bool AreHashes(const Sketch& sketch) {
  const std::int64_t* const cells = sketch.cells();
  if (sketch.level() == 0) {
    for (std::size_t i = 1; i < sketch.used(); i++) {
      if (cells[i - 1] >= cells[i]) return false;
    }
    return true;
  }
  if (sketch.level() != kRegisters || sketch.used() != kCells) return false;
  const auto* const registers = reinterpret_cast<const std::uint8_t*>(cells);
  return std::all_of(registers, registers + kCells * sizeof(std::int64_t),
                     [](std::uint8_t rank) { return rank <= kRankMax; });
}

}  // namespace

bool IsOfBuckets(std::int32_t kind) {
  return kind == layout::kAggregateBuckets || kind == layout::kAggregateBucketsDouble;
}

bool IsSketch(std::int32_t kind) {
  return IsOfBuckets(kind) || kind == layout::kAggregateDistinct ||
         kind == layout::kAggregateDistinctDouble || kind == layout::kAggregateTop;
}

std::size_t RoomOf(std::int32_t kind) { return kind == layout::kAggregateTop ? kTopCells : kCells; }

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdU;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53U;
  return x ^ (x >> 33);
}

bool Sketch::IsPlain() const {
  if ((*at_ & 0xffff) > static_cast<std::int64_t>(room_)) return false;
  if (is_stored_) return true;
  return *at_ == header() && std::all_of(at_ + 1 + used(), at_ + 1 + room_,
                                         [](std::int64_t cell) { return cell == 0; });
}

std::int64_t* Sketch::Reserve(std::size_t cells) {
  const std::size_t room = !is_stored_         ? room_
                           : block_bits() == 0 ? kInline
                                               : std::size_t{1} << block_bits();
  if (cells <= room) return this->cells();
  const auto bits = static_cast<std::uint32_t>(std::countr_zero(std::bit_ceil(cells)));
  auto* const block = new std::int64_t[std::size_t{1} << bits];
  std::memcpy(block, this->cells(), used() * sizeof *block);
  if (block_bits() != 0) delete[] this->cells();
  std::memcpy(at_ + 1, &block, sizeof block);
  *at_ = header() | (std::int64_t{bits} << 24);
  return block;
}

void Sketch::Assign(const std::int64_t* cells, std::size_t used, std::uint32_t level) {
  const std::size_t before = this->used();
  std::int64_t* const own = Reserve(used);
  std::memcpy(own, cells, used * sizeof *own);
  // Equal rows of a page have equal bytes.
  if (!is_stored_ && before > used) std::memset(own + used, 0, (before - used) * sizeof *own);
  Set(used, level);
}

void Sketch::Free() {
  if (block_bits() != 0) delete[] cells();
  *at_ = 0;
}

void Add(std::int32_t kind, std::int64_t bits, Sketch* into) {
  switch (kind) {
    case layout::kAggregateBuckets:
      AddBucket(BucketOfDouble(std::bit_cast<std::int64_t>(static_cast<double>(bits))), 0, 1, into);
      break;
    case layout::kAggregateBucketsDouble:
      AddBucket(BucketOfDouble(bits), 0, 1, into);
      break;
    case layout::kAggregateDistinct:
      AddHash(Mix(static_cast<std::uint64_t>(bits)), into);
      break;
    default:
      AddHash(Mix(static_cast<std::uint64_t>(Plain(bits))), into);
  }
}

void Merge(std::int32_t kind, const Sketch& from, Sketch* into) {
  if (kind == layout::kAggregateTop) {
    top::Merge(from, into);
  } else if (IsOfBuckets(kind)) {
    MergeBuckets(from, into);
  } else {
    MergeHashes(from, into);
  }
}

bool IsSound(std::int32_t kind, const Sketch& sketch) {
  if (!sketch.IsPlain()) return false;
  if (kind == layout::kAggregateTop) return top::IsSound(sketch);
  return IsOfBuckets(kind) ? AreBuckets(sketch) : AreHashes(sketch);
}

}  // namespace millrace::kernel::sketch
