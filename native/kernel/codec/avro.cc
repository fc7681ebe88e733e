#include "kernel/codec/avro.h"

#include <cmath>
#include <utility>

#include "kernel/codec/utf8.h"
#include "kernel/codec/varint.h"

namespace millrace::kernel::codec {
namespace {

using namespace layout;

using Code = const std::int32_t*;
using Bytes = const std::uint8_t*;

// A NaN has one form, so that every implementation writes the same bytes.
constexpr std::uint64_t kNan = 0x7ff8000000000000U;

// Words behind an instruction that may be loaded with it.
constexpr std::size_t kOperandsMax = 3;

// Reads return the position behind the value. nullptr ends the row: with a verdict in `status_`, or
// with kNoRoom where a buffer lacks room.
class AvroDecoder final : public Decoder {
 public:
  AvroDecoder(Span<const std::int32_t> code, Span<const std::uint8_t> pool,
              std::vector<ColumnType> types)
      : code_(code.data, code.data + code.size),
        pool_(pool.data, pool.data + pool.size),
        into_(std::move(types)) {
    // Operands are loaded before the instruction is known: END has none.
    code_.insert(code_.end(), kOperandsMax, kAvroOpEnd);
  }

  Status Decode(const Payloads& payloads, std::uint32_t from, std::uint32_t to, bool skips,
                Span<std::uint8_t> buffer, Span<std::uint32_t> state, std::uint32_t* rows) override;

 private:
  // No value of COLUMN_STATUS.
  static constexpr std::uint8_t kNoRoom = 0xff;

  bool DecodeRow(Bytes payload, std::int32_t length);
  bool AppendBadRow(std::uint8_t status, std::uint32_t at);

  Bytes Malformed(Bytes at) { return Fail(kColumnStatusMalformed, at); }
  Bytes Incompatible(Bytes at) { return Fail(kColumnStatusIncompatible, at); }
  [[gnu::cold]] Bytes Fail(std::int32_t status, Bytes at) {
    status_ = static_cast<std::uint8_t>(status);
    error_at_ = at;
    return nullptr;
  }

  bool CountEmpty(std::uint64_t values) {
    empty_values_ += values;
    return empty_values_ <= kAvroLimitEmptyValues;
  }

  // Runs instructions up to the end of their block.
  Bytes Run(Code pc, Bytes at);
  // Runs an instruction that changes the course. `pc` moves to the next one.
  Bytes Branch(Code* pc, Bytes at);
  // Checks a value that no column receives. `pc` moves behind the instruction.
  Bytes Check(Code* pc, Bytes at);
  // Reads a value of the other types, or appends a constant. `pc` moves behind the instruction.
  Bytes Promote(Code* pc, Bytes at);
  Bytes Constant(Code* pc, Bytes at);
  // Runs the block of a record, array or map.
  Bytes Composite(Code pc, Bytes at);
  Bytes Record(Code pc, Bytes at);
  Bytes Array(Code pc, Bytes at);
  Bytes Map(Code pc, Bytes at);
  Bytes Lazy(Code pc, Bytes at);
  Bytes Optional(Code* pc, Bytes at);

  // Reads the head of the next block of an array or map: the number of items that follow, 0 at the
  // end. `block_end` is nullptr where the block does not state its bytes.
  Bytes BlockHead(Bytes at, std::uint64_t* items, Bytes* block_end);

  // Reads a length; the bytes behind it exist.
  Bytes Length(Bytes at, std::uint32_t* length) {
    std::int64_t value = 0;
    const Bytes next = ReadLong(at, end_, &value);
    if (next == nullptr || value < 0 || value > end_ - next) [[unlikely]]
      return Malformed(at);
    *length = static_cast<std::uint32_t>(value);
    return next;
  }

  // Reads the index of one of `count` symbols or branches.
  Bytes Index(Bytes at, std::int32_t count, std::int32_t* index) {
    const Bytes next = ReadInt(at, end_, index);
    if (next == nullptr || *index < 0 || *index >= count) [[unlikely]]
      return Malformed(at);
    return next;
  }

  // Reads an enum by the table at `table`: its count, then the reader's index of each symbol.
  Bytes Symbol(Code table, Bytes at, std::int32_t* symbol) {
    std::int32_t index = 0;
    const Bytes next = Index(at, table[0], &index);
    if (next == nullptr) return nullptr;
    *symbol = table[1 + index];
    return *symbol < 0 ? Incompatible(at) : next;
  }

  // Readers of one value into its column.
  Bytes Bool(std::uint32_t column, Bytes at) {
    if (at == end_ || *at > 1) [[unlikely]]
      return Malformed(at);
    return into_.AppendBool(column, *at == 1) ? at + 1 : nullptr;
  }

  template <typename T>
  Bytes Int(std::uint32_t column, Bytes at) {
    std::int32_t value = 0;
    const Bytes next = ReadInt(at, end_, &value);
    if (next == nullptr) [[unlikely]]
      return Malformed(at);
    return into_.AppendCell(column, static_cast<T>(value)) ? next : nullptr;
  }

  template <typename T>
  Bytes Long(std::uint32_t column, Bytes at) {
    std::int64_t value = 0;
    const Bytes next = ReadLong(at, end_, &value);
    if (next == nullptr) [[unlikely]]
      return Malformed(at);
    return into_.AppendCell(column, static_cast<T>(value)) ? next : nullptr;
  }

  // A cell that is stored as it was written.
  template <typename T>
  Bytes Cell(std::uint32_t column, Bytes at) {
    if (end_ - at < static_cast<std::ptrdiff_t>(sizeof(T))) [[unlikely]]
      return Malformed(at);
    T bits;
    std::memcpy(&bits, at, sizeof bits);
    return into_.AppendCell(column, bits) ? at + sizeof bits : nullptr;
  }

  Bytes FloatAsDouble(std::uint32_t column, Bytes at) {
    if (end_ - at < 4) return Malformed(at);
    float value;
    std::memcpy(&value, at, sizeof value);
    const double wide = value;
    const std::uint64_t bits = std::isnan(value) ? kNan : std::bit_cast<std::uint64_t>(wide);
    return into_.AppendCell(column, bits) ? at + 4 : nullptr;
  }

  Bytes Text(std::uint32_t column, Bytes at) {
    std::uint32_t length = 0;
    const Bytes text = Length(at, &length);
    std::uint64_t seen = 0;
    if (text == nullptr || !into_.AppendText(column, text, length, &seen)) return nullptr;
    if ((seen & kHighBits) != 0 && !IsUtf8(text, length)) [[unlikely]]
      return Malformed(at);
    return text + length;
  }

  Bytes Binary(std::uint32_t column, Bytes at) {
    std::uint32_t length = 0;
    const Bytes value = Length(at, &length);
    std::uint64_t seen = 0;
    if (value == nullptr || !into_.AppendText(column, value, length, &seen)) return nullptr;
    return value + length;
  }

  Bytes Enum(Code pc, Bytes at) {
    std::int32_t symbol = 0;
    at = Symbol(pc + 2, at, &symbol);
    const auto column = static_cast<std::uint32_t>(pc[1]);
    return at != nullptr && into_.AppendCell(column, symbol) ? at : nullptr;
  }

  Bytes Fixed(std::uint32_t column, Bytes at) {
    const std::uint32_t size = into_.types()[column].size;
    if (end_ - at < static_cast<std::ptrdiff_t>(size)) return Malformed(at);
    return into_.AppendFixed(column, at) ? at + size : nullptr;
  }

  Bytes Decimal(std::uint32_t column, Bytes at, std::int32_t size) {
    if (end_ - at < size) return Malformed(at);
    return into_.AppendDecimal(column, at, static_cast<std::uint32_t>(size)) ? at + size : nullptr;
  }

  template <typename T, Bytes (*kRead)(Bytes, Bytes, T*)>
  Bytes SkipNumber(Bytes at) {
    T value{};
    const Bytes next = kRead(at, end_, &value);
    return next == nullptr ? Malformed(at) : next;
  }

  Bytes SkipText(Bytes at) {
    std::uint32_t length = 0;
    const Bytes text = Length(at, &length);
    if (text == nullptr) return nullptr;
    return IsUtf8(text, length) ? text + length : Malformed(at);
  }

  std::vector<std::int32_t> code_;
  std::vector<std::uint8_t> pool_;
  Columns into_;
  Bytes end_ = nullptr;
  Bytes error_at_ = nullptr;
  std::uint64_t empty_values_ = 0;
  std::int32_t depth_ = 0;
  std::uint8_t status_ = kNoRoom;
};

Status AvroDecoder::Decode(const Payloads& payloads, std::uint32_t from, std::uint32_t to,
                           bool skips, Span<std::uint8_t> buffer, Span<std::uint32_t> state,
                           std::uint32_t* rows) {
  Status status = CheckPayloads(payloads, from, to);
  if (status == Status::kOk) status = into_.Open(buffer, state);
  if (status != Status::kOk) return status;
  if (to - from > into_.row_capacity() - into_.row_count()) return Status::kTooFewRows;
  std::uint32_t at = from;
  for (; at < to; at++) {
    const std::uint32_t start = payloads.start.data[at];
    const std::int32_t length = payloads.length.data[at];
    // Repeats the check: the memory may be shared with a thread that writes it.
    if (length >= 0 && !Inside(start, length, payloads.bytes.size)) break;
    bool done = false;
    if (skips && at == from) {
      done = AppendBadRow(kColumnStatusTooLarge, 0);
    } else if (length < 0) {
      done = AppendBadRow(kColumnStatusNullValue, 0);
    } else {
      done = DecodeRow(payloads.bytes.data + start, length);
    }
    if (!done) break;
  }
  into_.Rollback();
  into_.Save();
  *rows = at - from;
  return Status::kOk;
}

// False where room lacks.
bool AvroDecoder::DecodeRow(Bytes payload, std::int32_t length) {
  end_ = payload + length;
  empty_values_ = 0;
  depth_ = 0;
  status_ = kNoRoom;
  Bytes at = Run(code_.data(), payload);
  if (at != nullptr && at != end_) at = Malformed(at);
  if (at != nullptr) [[likely]] {
    into_.Commit(kColumnStatusOk, 0);
    return true;
  }
  if (status_ == kNoRoom) return false;
  return AppendBadRow(status_, static_cast<std::uint32_t>(error_at_ - payload));
}

bool AvroDecoder::AppendBadRow(std::uint8_t status, std::uint32_t at) {
  into_.Rollback();
  if (!into_.AppendEmptyRow()) return false;
  into_.Commit(status, at);
  return true;
}

Bytes AvroDecoder::Run(Code pc, Bytes at) {
  for (;;) {
    const auto column = static_cast<std::uint32_t>(pc[1]);
    switch (*pc) {
      case kAvroOpEnd:
        return at;
      case kAvroOpCall:
        at = Composite(code_.data() + pc[1], at);
        pc += 2;
        break;
      case kAvroOpOptional:
        at = Optional(&pc, at);
        break;
      case kAvroOpBool:
        at = Bool(column, at);
        pc += 2;
        break;
      case kAvroOpInt:
        at = Int<std::int32_t>(column, at);
        pc += 2;
        break;
      case kAvroOpLong:
        at = Long<std::int64_t>(column, at);
        pc += 2;
        break;
      case kAvroOpIntToLong:
        at = Int<std::int64_t>(column, at);
        pc += 2;
        break;
      case kAvroOpDouble:
        at = Cell<std::uint64_t>(column, at);
        pc += 2;
        break;
      case kAvroOpText:
        at = Text(column, at);
        pc += 2;
        break;
      case kAvroOpEnum:
        at = Enum(pc, at);
        pc += 3 + pc[2];
        break;
      case kAvroOpSkipInt:
        at = SkipNumber<std::int32_t, ReadInt>(at);
        pc += 1;
        break;
      case kAvroOpSkipLong:
        at = SkipNumber<std::int64_t, ReadLong>(at);
        pc += 1;
        break;
      case kAvroOpSkipText:
        at = SkipText(at);
        pc += 1;
        break;
      case kAvroOpRecord:
      case kAvroOpArray:
      case kAvroOpMap:
        return Composite(pc, at);
      default:
        at = *pc < kAvroOpRefuse ? Check(&pc, at) : Branch(&pc, at);
    }
    if (at == nullptr) [[unlikely]]
      return nullptr;
  }
}

Bytes AvroDecoder::Optional(Code* pc, Bytes at) {
  std::int32_t index = 0;
  at = Index(at, 2, &index);
  if (at == nullptr) return nullptr;
  const Code op = *pc;
  if (index != op[1]) {
    *pc += 4;
    return at;
  }
  *pc = code_.data() + op[3];
  return into_.AppendEmpty(static_cast<std::uint32_t>(op[2])) ? at : nullptr;
}

Bytes AvroDecoder::Check(Code* pc, Bytes at) {
  const Code op = *pc;
  std::uint32_t length = 0;
  std::int32_t index = 0;
  switch (*op) {
    case kAvroOpSkipBool:
      *pc += 1;
      return at == end_ || *at > 1 ? Malformed(at) : at + 1;
    case kAvroOpSkipFixed:
      *pc += 2;
      return op[1] > end_ - at ? Malformed(at) : at + op[1];
    case kAvroOpSkipBytes:
      *pc += 1;
      at = Length(at, &length);
      return at == nullptr ? nullptr : at + length;
    case kAvroOpSkipIndex:
      *pc += 2;
      return Index(at, op[1], &index);
    default:
      *pc += 2 + op[1];
      return Symbol(op + 1, at, &index);
  }
}

Bytes AvroDecoder::Branch(Code* pc, Bytes at) {
  const Code op = *pc;
  switch (*op) {
    case kAvroOpRefuse:
      return Incompatible(at);
    case kAvroOpJump:
      *pc = code_.data() + op[1];
      return at;
    case kAvroOpUnion: {
      std::int32_t index = 0;
      at = Index(at, op[1], &index);
      if (at != nullptr) *pc = code_.data() + op[2 + index];
      return at;
    }
    case kAvroOpLazy:
      *pc = code_.data() + op[3];
      return Lazy(op, at);
    case kAvroOpPick: {
      const auto column = static_cast<std::uint32_t>(op[1]);
      std::uint32_t child = column + 1;
      for (std::int32_t i = 0; i < op[2]; i++) child = into_.types()[child].next;
      *pc += 3;
      return into_.Pick(column, static_cast<std::uint8_t>(op[2]), child) ? at : nullptr;
    }
    default:
      return *op < kAvroOpNull ? Promote(pc, at) : Constant(pc, at);
  }
}

Bytes AvroDecoder::Promote(Code* pc, Bytes at) {
  const Code op = *pc;
  const auto column = static_cast<std::uint32_t>(op[1]);
  *pc += 2;
  switch (*op) {
    case kAvroOpFloat:
      return Cell<std::uint32_t>(column, at);
    case kAvroOpBytes:
      return Binary(column, at);
    case kAvroOpIntToFloat:
      return Int<float>(column, at);
    case kAvroOpLongToFloat:
      return Long<float>(column, at);
    case kAvroOpIntToDouble:
      return Int<double>(column, at);
    case kAvroOpLongToDouble:
      return Long<double>(column, at);
    case kAvroOpFloatToDouble:
      return FloatAsDouble(column, at);
    case kAvroOpFixed:
      return Fixed(column, at);
    default:
      *pc += 1;
      return Decimal(column, at, op[2]);
  }
}

Bytes AvroDecoder::Constant(Code* pc, Bytes at) {
  const Code op = *pc;
  const auto column = static_cast<std::uint32_t>(op[1]);
  *pc += 2;
  bool done = false;
  switch (*op) {
    case kAvroOpNull:
      done = into_.AppendEmpty(column);
      break;
    case kAvroOpConstBool:
      *pc += 1;
      done = into_.AppendBool(column, op[2] == 1);
      break;
    case kAvroOpConstInt:
      *pc += 1;
      done = into_.AppendCell(column, op[2]);
      break;
    case kAvroOpConstBytes: {
      *pc += 2;
      std::uint64_t seen = 0;
      const Bytes value = pool_.data() + op[2];
      done = IsText(into_.types()[column].kind)
                 ? into_.AppendText(column, value, static_cast<std::uint32_t>(op[3]), &seen)
                 : into_.AppendFixed(column, value);
      break;
    }
    default:
      done = into_.Close(column);
  }
  return done ? at : nullptr;
}

Bytes AvroDecoder::Lazy(Code pc, Bytes at) {
  const Bytes next = Run(pc + 4, at);
  if (next == nullptr) return nullptr;
  const auto column = static_cast<std::uint32_t>(pc[1]);
  const auto size = static_cast<std::uint32_t>(next - at);
  std::uint64_t seen = 0;
  const bool done = pc[2] < 0
                        ? into_.AppendText(column, at, size, &seen)
                        : into_.AppendTagged(column, static_cast<std::uint8_t>(pc[2]), at, size);
  return done ? next : nullptr;
}

Bytes AvroDecoder::Composite(Code pc, Bytes at) {
  if (*pc == kAvroOpRefuse) return Incompatible(at);
  if (++depth_ > kAvroLimitDepth) return Malformed(at);
  at = *pc == kAvroOpRecord ? Record(pc, at) : *pc == kAvroOpArray ? Array(pc, at) : Map(pc, at);
  return at;
}

Bytes AvroDecoder::Record(Code pc, Bytes at) {
  const Bytes begun = at;
  at = Run(pc + 3, at);
  if (at == nullptr) return nullptr;
  depth_--;
  if (pc[1] > 0 && !CountEmpty(static_cast<std::uint64_t>(pc[1]))) return Malformed(at);
  if (at == begun && !CountEmpty(1)) return Malformed(at);
  if (pc[2] >= 0 && !into_.CloseStruct(static_cast<std::uint32_t>(pc[2]))) return nullptr;
  return at;
}

Bytes AvroDecoder::BlockHead(Bytes at, std::uint64_t* items, Bytes* block_end) {
  std::int64_t count = 0;
  Bytes next = ReadLong(at, end_, &count);
  *block_end = nullptr;
  *items = static_cast<std::uint64_t>(count);
  if (next == nullptr) return Malformed(at);
  if (count >= 0) return next;
  *items = 0 - static_cast<std::uint64_t>(count);
  std::uint32_t length = 0;
  next = Length(next, &length);
  if (next != nullptr) *block_end = next + length;
  return next;
}

Bytes AvroDecoder::Array(Code pc, Bytes at) {
  const bool never_have_bytes = pc[1] != 0;
  // Most items are one record: its block runs without the instructions around it.
  const Code item = pc + 3;
  const bool is_call = item[0] == kAvroOpCall && item[2] == kAvroOpEnd;
  for (;;) {
    std::uint64_t items = 0;
    Bytes block_end = nullptr;
    at = BlockHead(at, &items, &block_end);
    if (at == nullptr) return nullptr;
    if (items == 0) break;
    if (never_have_bytes && !CountEmpty(items)) return Malformed(at);
    for (; items > 0; items--) {
      const Bytes before = at;
      const std::uint64_t empties = empty_values_;
      at = is_call ? Composite(code_.data() + item[1], at) : Run(item, at);
      if (at == nullptr) return nullptr;
      // Bounds programs whose items read nothing; compiled ones count such items before.
      if (at == before && !never_have_bytes && empty_values_ == empties && !CountEmpty(1)) {
        return Malformed(at);
      }
    }
    if (block_end != nullptr && at != block_end) return Malformed(at);
  }
  depth_--;
  if (pc[2] >= 0 && !into_.CloseList(static_cast<std::uint32_t>(pc[2]))) return nullptr;
  return at;
}

Bytes AvroDecoder::Map(Code pc, Bytes at) {
  const bool has_column = pc[1] >= 0;
  const auto column = static_cast<std::uint32_t>(pc[1]);
  for (;;) {
    std::uint64_t items = 0;
    Bytes block_end = nullptr;
    at = BlockHead(at, &items, &block_end);
    if (at == nullptr) return nullptr;
    if (items == 0) break;
    for (; items > 0; items--) {
      at = has_column ? Text(column + 2, at) : SkipText(at);
      if (at != nullptr) at = Run(pc + 2, at);
      if (at == nullptr) return nullptr;
      if (has_column && !into_.CloseStruct(column + 1)) return nullptr;
    }
    if (block_end != nullptr && at != block_end) return Malformed(at);
  }
  depth_--;
  if (has_column && !into_.CloseList(column)) return nullptr;
  return at;
}

}  // namespace

Status OpenAvro(Span<const std::int32_t> code, Span<const std::uint8_t> pool,
                Span<const std::int32_t> table, std::unique_ptr<Decoder>* out, std::int64_t* bad) {
  std::vector<ColumnType> types;
  *bad = -1;
  const Status status = ReadColumnTypes(table, &types);
  if (status != Status::kOk) return status;
  CheckAvroProgram(code, pool.size, types, bad);
  if (*bad >= 0) return Status::kBadArgument;
  *out = std::make_unique<AvroDecoder>(code, pool, std::move(types));
  return Status::kOk;
}

}  // namespace millrace::kernel::codec
