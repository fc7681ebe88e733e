#include "kernel/rows/top.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <vector>

namespace millrace::kernel::top {
namespace {

using sketch::kTopCells;
using sketch::Sketch;

constexpr int kCountBits = 48;
constexpr std::int64_t kCountMax = (std::int64_t{1} << kCountBits) - 1;
constexpr int kMantissaBits = 10;
constexpr std::size_t kHash = 0;
constexpr std::size_t kMarks = 1;

std::size_t TextCells(std::uint32_t level) { return level & (kApproximate - 1); }
std::size_t Stride(std::size_t text_cells) { return kHeadCells + text_cells; }
bool IsApproximate(std::uint32_t level) { return (level & kApproximate) != 0; }
// Number of entries of an approximate sketch.
std::size_t Sampled(std::size_t text_cells) { return (kTopCells - kCounters) / Stride(text_cells); }
// Number of entries of the largest exact sketch.
std::size_t ExactMax(std::size_t text_cells) { return kTopCells / Stride(text_cells); }

// Cells of a text, from its first cell, which has its length in the lowest byte.
std::size_t CellsOfText(std::int64_t first) {
  return (static_cast<std::size_t>(first & 0xff) + sizeof first) / sizeof first;
}

std::int64_t CountOf(const std::int64_t* entry) { return entry[kMarks] & kCountMax; }
std::uint64_t PriorityOf(const std::int64_t* entry) {
  return static_cast<std::uint64_t>(entry[kMarks]) >> kCountBits;
}
std::int64_t Marks(std::uint64_t priority, std::int64_t count) {
  return static_cast<std::int64_t>(priority << kCountBits) | count;
}
std::int64_t AddCounts(std::int64_t a, std::int64_t b) {
  return std::min((a & kCountMax) + (b & kCountMax), kCountMax);
}

// True when the cells are whole entries, whatever they contain. Rows of a damaged page may be
// others.
bool IsWhole(const Sketch& sketch) {
  const std::uint32_t level = sketch.level();
  const std::size_t text_cells = TextCells(level);
  if (sketch.used() == 0) return level == 0;
  if (level > (kApproximate | kTextCellsMax) || text_cells == 0 || text_cells > kTextCellsMax) {
    return false;
  }
  const std::size_t first = IsApproximate(level) ? kCounters : 0;
  if (sketch.used() < first || (sketch.used() - first) % Stride(text_cells) != 0) return false;
  const std::size_t count = (sketch.used() - first) / Stride(text_cells);
  return first > 0 ? count == Sampled(text_cells) : count <= ExactMax(text_cells);
}

// Priority of an event: a hash of its place, in 6 bits of exponent and kMantissaBits of mantissa,
// so that the least of many have different ones too.
std::uint64_t PriorityOfPlace(std::int64_t partition, std::int64_t offset) {
  const std::uint64_t hash = sketch::Mix(static_cast<std::uint64_t>(offset) ^
                                         sketch::Mix(static_cast<std::uint64_t>(partition) + 1));
  if (hash == 0) return 0;
  const auto zeros = static_cast<unsigned>(std::countl_zero(hash));
  const std::uint64_t below = zeros == 63 ? 0 : hash << (zeros + 1) >> (64 - kMantissaBits);
  return (std::uint64_t{63 - zeros} << kMantissaBits) | below;
}

// Order of two values with texts of `a_cells` and `b_cells` cells; missing cells are zero.
int Compare(const std::int64_t* a, std::size_t a_cells, const std::int64_t* b,
            std::size_t b_cells) {
  if (a[kHash] != b[kHash]) return a[kHash] < b[kHash] ? -1 : 1;
  for (std::size_t i = 0; i < std::max(a_cells, b_cells); i++) {
    const std::int64_t x = i < a_cells ? a[kHeadCells + i] : 0;
    const std::int64_t y = i < b_cells ? b[kHeadCells + i] : 0;
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

// Entries with texts of a number of cells.
struct Entries {
  std::vector<std::int64_t> cells;
  std::size_t text_cells;

  std::size_t stride() const { return Stride(text_cells); }
  std::size_t count() const { return cells.size() / stride(); }
  const std::int64_t* at(std::size_t i) const { return cells.data() + i * stride(); }
  void Append(const std::int64_t* entry, std::size_t entry_text_cells) {
    const std::size_t from = cells.size();
    cells.resize(from + stride());
    std::memcpy(cells.data() + from, entry, Stride(entry_text_cells) * sizeof *entry);
  }
};

// Entries of a sketch, with texts of at least as many cells.
Entries EntriesOf(const Sketch& sketch, std::size_t text_cells) {
  const std::size_t own = TextCells(sketch.level());
  const std::size_t first = IsApproximate(sketch.level()) ? kCounters : 0;
  Entries entries{{}, text_cells};
  for (std::size_t at = first; at < sketch.used(); at += Stride(own)) {
    entries.Append(sketch.cells() + at, own);
  }
  return entries;
}

// First of the entries that is not below the value.
std::size_t LowerBound(const std::int64_t* cells, std::size_t count, std::size_t text_cells,
                       const std::int64_t* value, std::size_t value_cells) {
  std::size_t from = 0;
  while (from < count) {
    const std::size_t middle = (from + count) / 2;
    if (Compare(cells + middle * Stride(text_cells), text_cells, value, value_cells) < 0) {
      from = middle + 1;
    } else {
      count = middle;
    }
  }
  return from;
}

// Joins entries in the order of values: numbers add up, and the least priority remains.
Entries Join(const Entries& a, const Entries& b) {
  Entries both{{}, a.text_cells};
  both.cells.reserve(a.cells.size() + b.cells.size());
  std::size_t i = 0;
  std::size_t k = 0;
  while (i < a.count() || k < b.count()) {
    const int order = i == a.count()   ? 1
                      : k == b.count() ? -1
                                       : Compare(a.at(i), a.text_cells, b.at(k), b.text_cells);
    both.Append(order <= 0 ? a.at(i) : b.at(k), both.text_cells);
    if (order == 0) {
      both.cells[both.cells.size() - both.stride() + kMarks] =
          Marks(std::min(PriorityOf(a.at(i)), PriorityOf(b.at(k))),
                AddCounts(CountOf(a.at(i)), CountOf(b.at(k))));
    }
    i += order <= 0 ? 1 : 0;
    k += order >= 0 ? 1 : 0;
  }
  return both;
}

// Counter of a value in a row.
std::size_t CounterOf(const std::int64_t* entry, std::size_t row) {
  return row * kWidth + (static_cast<std::uint64_t>(entry[kHash]) >> (8 * row) & (kWidth - 1));
}
void Count(const std::int64_t* entry, std::int64_t number, std::int64_t* counters) {
  for (std::size_t row = 0; row < kRows; row++) {
    std::int64_t& counter = counters[CounterOf(entry, row)];
    counter = AddCounts(counter, number);
  }
}

// True when entry `a` is before `b` in an approximate sketch. REQUIRES: texts of one size
bool IsBefore(const std::int64_t* a, const std::int64_t* b, std::size_t text_cells) {
  if (PriorityOf(a) != PriorityOf(b)) return PriorityOf(a) < PriorityOf(b);
  return Compare(a, text_cells, b, text_cells) < 0;
}

// Replaces the content by counters and the entries of least priority. REQUIRES: enough entries
void AssignApproximate(const std::int64_t* counters, const Entries& entries, Sketch* into) {
  const std::size_t sampled = std::min(Sampled(entries.text_cells), entries.count());
  std::vector<std::size_t> order(entries.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return IsBefore(entries.at(a), entries.at(b), entries.text_cells);
  });
  std::vector<std::int64_t> cells(counters, counters + kCounters);
  for (std::size_t i = 0; i < sampled; i++) {
    const std::int64_t* const entry = entries.at(order[i]);
    cells.insert(cells.end(), entry, entry + entries.stride());
    cells[cells.size() - entries.stride() + kMarks] = Marks(PriorityOf(entry), 0);
  }
  into->Assign(cells.data(), cells.size(),
               kApproximate | static_cast<std::uint32_t>(entries.text_cells));
}

// Replaces the content by values with their numbers: as they are if they fit.
void Assign(const Entries& entries, Sketch* into) {
  if (entries.count() <= ExactMax(entries.text_cells)) {
    into->Assign(entries.cells.data(), entries.cells.size(),
                 static_cast<std::uint32_t>(entries.text_cells));
    return;
  }
  std::int64_t counters[kCounters] = {};
  for (std::size_t i = 0; i < entries.count(); i++) {
    Count(entries.at(i), CountOf(entries.at(i)), counters);
  }
  AssignApproximate(counters, entries, into);
}

// Adds an entry to an exact sketch that has room for its text. False when the values do not fit.
bool AddExact(const std::int64_t* entry, std::size_t entry_text_cells, Sketch* into) {
  const std::size_t text_cells = TextCells(into->level());
  const std::size_t stride = Stride(text_cells);
  const std::size_t count = into->used() / stride;
  std::int64_t* cells = into->cells();
  const std::size_t place = LowerBound(cells, count, text_cells, entry, entry_text_cells);
  std::int64_t* at = cells + place * stride;
  if (place < count && Compare(at, text_cells, entry, entry_text_cells) == 0) {
    at[kMarks] =
        Marks(std::min(PriorityOf(at), PriorityOf(entry)), AddCounts(CountOf(at), CountOf(entry)));
    return true;
  }
  if (count == ExactMax(text_cells)) return false;
  cells = into->Reserve(into->used() + stride);
  at = cells + place * stride;
  std::memmove(at + stride, at, (into->used() - place * stride) * sizeof *at);
  std::memset(at, 0, stride * sizeof *at);
  std::memcpy(at, entry, Stride(entry_text_cells) * sizeof *at);
  into->Set(into->used() + stride, into->level());
  return true;
}

// Adds an entry to an approximate sketch that has room for its text.
void AddApproximate(const std::int64_t* entry, std::size_t entry_text_cells, Sketch* into) {
  const std::size_t text_cells = TextCells(into->level());
  const std::size_t stride = Stride(text_cells);
  std::int64_t* const entries = into->cells() + kCounters;
  const std::size_t count = (into->used() - kCounters) / stride;
  Count(entry, CountOf(entry), into->cells());
  std::int64_t own[kHeadCells + kTextCellsMax] = {};
  std::memcpy(own, entry, Stride(entry_text_cells) * sizeof *own);
  own[kMarks] = Marks(PriorityOf(entry), 0);
  // Most events end here: their priority is above that of all entries.
  if (!IsBefore(own, entries + (count - 1) * stride, text_cells)) return;
  std::size_t last = count - 1;  // the entry that goes
  for (std::size_t i = 0; i < count; i++) {
    if (Compare(entries + i * stride, text_cells, own, text_cells) == 0) {
      if (PriorityOf(entries + i * stride) <= PriorityOf(own)) return;
      last = i;
      break;
    }
  }
  std::size_t place = 0;
  while (place < last && IsBefore(entries + place * stride, own, text_cells)) place++;
  std::memmove(entries + (place + 1) * stride, entries + place * stride,
               (last - place) * stride * sizeof *entries);
  std::memcpy(entries + place * stride, own, stride * sizeof *own);
}

// Gives texts more cells.
void Widen(std::size_t text_cells, Sketch* into) {
  if (into->used() == 0) {
    into->Set(0, static_cast<std::uint32_t>(text_cells));
    return;
  }
  const Entries entries = EntriesOf(*into, text_cells);
  if (!IsApproximate(into->level())) {
    Assign(entries, into);
    return;
  }
  std::int64_t counters[kCounters];
  std::memcpy(counters, into->cells(), sizeof counters);
  AssignApproximate(counters, entries, into);
}

// Adds an entry of any kind of sketch, and its number of events.
void AddEntry(const std::int64_t* entry, std::size_t text_cells, Sketch* into) {
  if (text_cells > TextCells(into->level())) Widen(text_cells, into);
  if (IsApproximate(into->level())) {
    AddApproximate(entry, text_cells, into);
  } else if (!AddExact(entry, text_cells, into)) {
    Entries entries = EntriesOf(*into, TextCells(into->level()));
    Entries one{{}, entries.text_cells};
    one.Append(entry, text_cells);
    Assign(Join(entries, one), into);
  }
}

// Least number of cells of the text of an entry; more than kTextCellsMax if it is none.
std::size_t PlainTextCells(const std::int64_t* entry, std::size_t text_cells) {
  const std::size_t cells = CellsOfText(entry[kHeadCells]);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(entry + kHeadCells);
  const std::size_t length = bytes[0];
  const bool is_plain = length > 0 && cells <= text_cells &&
                        std::all_of(bytes + 1 + length, bytes + text_cells * sizeof *entry,
                                    [](std::uint8_t byte) { return byte == 0; });
  return is_plain ? cells : kTextCellsMax + 1;
}

}  // namespace

void Add(Span<const std::int64_t> texts, std::int64_t at, std::int64_t partition,
         std::int64_t offset, Sketch* into) {
  const auto size = static_cast<std::int64_t>(texts.size);
  if (at < 0 || at > size - 2) return;
  const std::int64_t* const value = texts.data + at;
  const std::size_t text_cells = CellsOfText(value[1]);
  if (static_cast<std::int64_t>(text_cells) > size - 1 - at) return;
  std::int64_t entry[kHeadCells + kTextCellsMax];
  entry[kHash] = value[0];
  entry[kMarks] = Marks(PriorityOfPlace(partition, offset), 1);
  std::memcpy(entry + kHeadCells, value + 1, text_cells * sizeof *entry);
  AddEntry(entry, text_cells, into);
}

void Merge(const Sketch& from, Sketch* into) {
  if (from.used() == 0 || !IsWhole(from)) return;
  if (!IsWhole(*into)) {
    const std::int64_t none = 0;
    into->Assign(&none, 0, 0);
  }
  const std::size_t from_cells = TextCells(from.level());
  const bool is_few = !IsApproximate(from.level()) && from.used() * 8 <= into->used() + 8;
  if (is_few && from_cells <= TextCells(into->level())) {
    for (std::size_t i = 0; i < from.used(); i += Stride(from_cells)) {
      const std::int64_t* const entry = from.cells() + i;
      AddEntry(entry, from_cells, into);
    }
    return;
  }
  const std::size_t text_cells = std::max(from_cells, TextCells(into->level()));
  Entries entries[] = {EntriesOf(*into, text_cells), EntriesOf(from, text_cells)};
  if (!IsApproximate(from.level()) && !IsApproximate(into->level())) {
    Assign(Join(entries[0], entries[1]), into);
    return;
  }
  std::int64_t counters[kCounters] = {};
  const Sketch* const sketches[] = {into, &from};
  for (std::size_t side = 0; side < 2; side++) {
    const Sketch& sketch = *sketches[side];
    Entries& own = entries[side];
    if (IsApproximate(sketch.level())) {
      for (std::size_t i = 0; i < kCounters; i++) {
        counters[i] = AddCounts(counters[i], sketch.cells()[i]);
      }
      // Join takes entries in the order of values.
      std::vector<std::size_t> order(own.count());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return Compare(own.at(a), text_cells, own.at(b), text_cells) < 0;
      });
      Entries sorted{{}, text_cells};
      for (const std::size_t i : order) sorted.Append(own.at(i), text_cells);
      own = std::move(sorted);
    } else {
      for (std::size_t i = 0; i < own.count(); i++) {
        Count(own.at(i), CountOf(own.at(i)), counters);
      }
    }
  }
  AssignApproximate(counters, Join(entries[0], entries[1]), into);
}

bool IsSound(const Sketch& sketch) {
  if (!IsWhole(sketch)) return false;
  if (sketch.used() == 0) return true;
  const std::size_t text_cells = TextCells(sketch.level());
  const bool is_approximate = IsApproximate(sketch.level());
  const std::size_t first = is_approximate ? kCounters : 0;
  const std::int64_t* const cells = sketch.cells();
  const std::size_t count = (sketch.used() - first) / Stride(text_cells);
  for (std::size_t i = 0; i < first; i++) {
    if (cells[i] < 0 || cells[i] > kCountMax) return false;
  }
  std::size_t widest = 0;
  for (std::size_t i = 0; i < count; i++) {
    const std::int64_t* const entry = cells + first + i * Stride(text_cells);
    widest = std::max(widest, PlainTextCells(entry, text_cells));
    if ((CountOf(entry) == 0) != is_approximate) return false;
    if (i == 0) continue;
    const std::int64_t* const before = entry - Stride(text_cells);
    if (is_approximate ? !IsBefore(before, entry, text_cells)
                       : Compare(before, text_cells, entry, text_cells) >= 0) {
      return false;
    }
  }
  return is_approximate ? widest <= kTextCellsMax : widest == text_cells;
}

}  // namespace millrace::kernel::top
