#include "kernel/packed.h"

#include <algorithm>

namespace millrace::kernel {

Status CountRows(const RowParts& parts, std::size_t rows_max, RowCounts* counts) {
  *counts = {};
  bool is_large = false;
  parts.ForEach([&](const Accumulator& row) {
    counts->all++;
    counts->more += row.count > 1 ? 1U : 0U;
    is_large = is_large || row.count > kDeltaCountMax;
  });
  return is_large || counts->all > rows_max ? Status::kBadArgument : Status::kOk;
}

void WriteMore(const RowParts& parts, std::size_t more, ColumnOut* out) {
  using Row = Accumulator;
  const auto width = [](const Row& row) {
    return static_cast<std::uint64_t>(row.max) - static_cast<std::uint64_t>(row.min);
  };
  const auto low = [](const Row& row) { return static_cast<std::uint64_t>(ZigZagSum(row)); };
  const auto high = [](const Row& row) { return static_cast<std::uint64_t>(ZigZagSum(row) >> 64); };
  WriteColumn(parts, more, true, width, out);
  WriteColumn(parts, more, true, low, out);
  WriteColumn(parts, more, true, high, out);
}

bool MoreReader::Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t more) {
  return width_.Open(left, end, more) && sum_low_.Open(left, end, more) &&
         sum_high_.Open(left, end, more);
}

bool MoreReader::Complete(std::uint64_t others, Accumulator* row) {
  const std::uint64_t width = width_.Next();
  UnsignedWide sum = sum_low_.Next();
  sum |= UnsignedWide{sum_high_.Next()} << 64;
  sum = (sum >> 1) ^ (0 - (sum & 1));
  const auto least = static_cast<std::uint64_t>(row->min);
  if (others >= kDeltaCountMax || width > static_cast<std::uint64_t>(INT64_MAX) - least) {
    return false;
  }
  row->count = others + 1;
  row->max = static_cast<std::int64_t>(least + width);
  row->sum_low = static_cast<std::uint64_t>(sum);
  row->sum_high = static_cast<std::uint64_t>(sum >> 64);
  return SumOf(*row) >= Wide{row->min} * static_cast<Wide>(row->count) &&
         SumOf(*row) <= Wide{row->max} * static_cast<Wide>(row->count);
}

std::size_t SketchCells(const RowParts& parts) {
  std::size_t cells = 0;
  for (std::size_t number = 0; number < parts.form.sketches(); number++) {
    parts.ForEach(
        [&](const Accumulator& row) { cells += parts.form.SketchOf(&row, number, false).used(); });
  }
  return cells;
}

std::size_t CellBytesMax(const RowParts& parts) {
  std::size_t rows = 0;
  parts.ForEach([&](const Accumulator&) { rows++; });
  const std::size_t sketches = parts.form.sketches();
  // Two columns of cells for each sketch; the lengths of a column may take a byte more.
  return (parts.form.cells() + sketches) * ColumnBytesMax(rows) +
         2 * (ColumnBytesMax(SketchCells(parts)) + sketches);
}

namespace {

using Sketch = sketch::Sketch;

// Buckets that fit into a cell are from -kBucketMax to kBucketMax - 1.
constexpr std::int64_t kBucketMax = std::int64_t{1} << (63 - sketch::kCountBits);

// A cell of buckets as two integers: the distance from the bucket before it, and its number of
// values less one.
struct BucketCell {
  std::uint64_t step;
  std::uint64_t number;
};

BucketCell Split(const std::int64_t* cells, std::size_t i) {
  const std::int64_t bucket = cells[i] >> sketch::kCountBits;
  const std::int64_t number = cells[i] & ((std::int64_t{1} << sketch::kCountBits) - 1);
  const std::uint64_t step =
      i == 0 ? ZigZag(bucket)
             : static_cast<std::uint64_t>(bucket - (cells[i - 1] >> sketch::kCountBits) - 1);
  return {step, static_cast<std::uint64_t>(number - 1)};
}

void WriteSketch(const RowParts& parts, std::size_t count, std::size_t number, ColumnOut* out) {
  const auto sketch_of = [&](const Accumulator& row) {
    return parts.form.SketchOf(&row, number, false);
  };
  const auto header = [&](const Accumulator& row) {
    return static_cast<std::uint64_t>(sketch_of(row).header());
  };
  WriteColumn(parts, count, false, header, out);
  std::size_t all = 0;
  parts.ForEach([&](const Accumulator& row) { all += sketch_of(row).used(); });
  const bool is_of_buckets = sketch::IsOfBuckets(parts.form.SketchKind(number));
  const auto column = [&](const auto& value) {
    out->Column(all, [&](ColumnWriter* writer) {
      parts.ForEach([&](const Accumulator& row) {
        const Sketch sketch = sketch_of(row);
        const std::int64_t* const cells = sketch.cells();
        for (std::size_t i = 0; i < sketch.used(); i++) writer->Put(value(cells, i));
      });
    });
  };
  if (is_of_buckets) {
    column([](const std::int64_t* cells, std::size_t i) { return Split(cells, i).step; });
    column([](const std::int64_t* cells, std::size_t i) { return Split(cells, i).number; });
  } else {
    column([](const std::int64_t* cells, std::size_t i) {
      return static_cast<std::uint64_t>(cells[i]);
    });
  }
}

// Appends the lengths of a column behind `before` lengths; the bytes behind those are zero.
void AppendLengths(const std::uint8_t* lengths, std::size_t count, std::size_t before,
                   std::uint8_t* into) {
  std::uint8_t* const at = into + before / 2;
  const std::size_t bytes = LengthBytes(count);
  if (before % 2 == 0) {
    std::memcpy(at, lengths, bytes);
    return;
  }
  for (std::size_t i = 0; i < bytes; i++) {
    at[i] = static_cast<std::uint8_t>(at[i] | (lengths[i] << 4));
    // The last length of an odd number is the last in a low half.
    if (2 * i + 1 < count) at[i + 1] = static_cast<std::uint8_t>(lengths[i] >> 4);
  }
}

}  // namespace

void WriteCells(const RowParts& parts, std::size_t count, ColumnOut* out) {
  for (std::size_t cell = 0; cell < parts.form.cells(); cell++) {
    const auto value = [cell](const Accumulator& row) { return ZigZag(CellsOf(&row)[cell]); };
    WriteColumn(parts, count, false, value, out);
  }
  for (std::size_t number = 0; number < parts.form.sketches(); number++) {
    WriteSketch(parts, count, number, out);
  }
}

Status CountRows(Span<const ShardColumns* const> shards, std::size_t rows_max, std::size_t* count) {
  *count = 0;
  for (std::size_t shard = 0; shard < shards.size; shard++) {
    if (shards.data[shard]->status() != Status::kOk) return shards.data[shard]->status();
    *count += shards.data[shard]->rows().all;
  }
  return *count > rows_max ? Status::kBadArgument : Status::kOk;
}

std::uint8_t* JoinColumns(Span<const ShardColumns* const> shards, std::uint8_t* at) {
  std::size_t columns = 0;
  for (std::size_t shard = 0; shard < shards.size; shard++) {
    columns = std::max(columns, shards.data[shard]->places().size());
  }
  for (std::size_t column = 0; column < columns; column++) {
    std::size_t count = 0;
    const auto for_each = [&](const auto& each) {
      for (std::size_t shard = 0; shard < shards.size; shard++) {
        const ShardColumns& one = *shards.data[shard];
        // A shard without rows has no columns.
        if (!one.places().empty()) each(one.bytes(), one.places()[column]);
      }
    };
    for_each([&](const std::uint8_t*, const ColumnPlace& place) { count += place.count; });
    std::uint8_t* const lengths = at;
    at += LengthBytes(count);
    std::memset(lengths, 0, LengthBytes(count));
    std::size_t before = 0;
    for_each([&](const std::uint8_t* bytes, const ColumnPlace& place) {
      AppendLengths(bytes + place.from, place.count, before, lengths);
      before += place.count;
      // An empty column may have no memory.
      if (place.value_bytes == 0) return;
      std::memcpy(at, bytes + place.from + LengthBytes(place.count), place.value_bytes);
      at += place.value_bytes;
    });
  }
  return at;
}

bool CellReader::Open(const std::uint8_t** left, const std::uint8_t* end, std::size_t count) {
  for (ColumnReader& column : columns_) {
    if (!column.Open(left, end, count)) return false;
  }
  for (std::size_t number = 0; number < sketches_.size(); number++) {
    SketchReader& sketch = sketches_[number];
    if (!sketch.headers.Open(left, end, count)) return false;
    ColumnReader headers = sketch.headers;
    const std::size_t room = sketch::RoomOf(form_.SketchKind(number));
    std::size_t all = 0;
    for (std::size_t i = 0; i < count; i++) {
      const std::uint64_t header = headers.Next();
      if (header > 0xffffff || (header & 0xffff) > room) return false;
      all += header & 0xffff;
    }
    if (!sketch.cells.Open(left, end, all)) return false;
    if (sketch::IsOfBuckets(form_.SketchKind(number)) && !sketch.numbers.Open(left, end, all)) {
      return false;
    }
  }
  return true;
}

void CellReader::NextSketch(std::size_t number, Accumulator* row) {
  SketchReader& reader = sketches_[number];
  Sketch sketch = form_.SketchOf(row, number, false);
  const std::uint64_t header = reader.headers.Next();
  const std::size_t used = header & 0xffff;
  std::int64_t* const cells = sketch.Reserve(used);
  const bool is_of_buckets = sketch::IsOfBuckets(form_.SketchKind(number));
  std::int64_t bucket = 0;
  for (std::size_t i = 0; i < used; i++) {
    const std::uint64_t cell = reader.cells.Next();
    if (!is_of_buckets) {
      cells[i] = static_cast<std::int64_t>(cell);
      continue;
    }
    // A step that does not fit makes a cell without values, which is not sound.
    const std::uint64_t values = reader.numbers.Next() + 1;
    const std::int64_t step = i == 0 ? UnZigZag(cell) : static_cast<std::int64_t>(cell) + 1;
    const bool fits = step >= -kBucketMax && step <= 2 * kBucketMax &&
                      bucket + step >= -kBucketMax && bucket + step < kBucketMax &&
                      values >> sketch::kCountBits == 0;
    bucket = fits ? bucket + step : 0;
    cells[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(bucket) << sketch::kCountBits |
                                         (fits ? values : 0));
  }
  sketch.Set(used, static_cast<std::uint32_t>(header >> 16));
}

bool CellReader::Next(Accumulator* row) {
  for (std::size_t cell = 0; cell < columns_.size(); cell++) {
    CellsOf(row)[cell] = UnZigZag(columns_[cell].Next());
  }
  for (std::size_t number = 0; number < sketches_.size(); number++) NextSketch(number, row);
  return form_.AreSound(row, false);
}

}  // namespace millrace::kernel
