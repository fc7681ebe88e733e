#include "kernel/codec/avro.h"

#include <cmath>
#include <utility>

#include "kernel/codec/varint.h"

namespace millrace::kernel::codec {
namespace {

using namespace layout;

using Code = const std::int32_t*;

// A NaN has one form, so that every implementation writes the same bytes.
constexpr std::uint64_t kNan = 0x7ff8000000000000U;

// Words behind an instruction that may be loaded with it.
constexpr std::size_t kOperandsMax = 3;

// Instruction and payload position at which the interpreter continues. The position is nullptr
// where the row ends. Two registers.
struct Point {
  Code pc;
  Bytes at;
};

// Block of a record, array or map that runs.
struct Frame {
  // RECORD, ARRAY or MAP.
  Code block;
  // RECORD of the items of an array of records: it runs in the frame of the array, which is the
  // second of two then, because both count as levels.
  Code item;
  // Instruction that follows when the block has ended.
  Code next;
  // Start of the record or item.
  Bytes begun;
  // Items that are left in the block of an array or map, the current one included.
  std::uint64_t items;
  // End of that block; nullptr where it does not state its bytes.
  Bytes items_end;
  // Values without bytes before the item.
  std::uint64_t empties;
};

// Reads return the position behind the value. nullptr ends the row: with a verdict in `status_`, or
// with kNoRoom where a buffer lacks room.
//
// Blocks call each other on a stack of frames, not on the processor's: position and end of the
// payload stay in registers, and an item of an array costs no call.
class AvroDecoder final : public Decoder {
 public:
  AvroDecoder(Span<const std::int32_t> code, Span<const std::uint8_t> pool,
              std::vector<ColumnType> types)
      : code_(code.data, code.data + code.size),
        pool_(pool.data, pool.data + pool.size),
        into_(std::move(types)),
        frames_(kAvroLimitDepth + 1) {
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

  Cursor& ColumnAt(std::int32_t column) { return into_[static_cast<std::uint32_t>(column)]; }

  // Runs instructions from `start` to the end of their block.
  Bytes Run(Code start, Bytes begun);
  // Run an instruction of another kind than Run's own, and return the point behind it.
  Point Branch(Code pc, Bytes at);
  Point Optional(Code pc, Bytes at);
  Point Promote(Code pc, Bytes at);
  Point Constant(Code pc, Bytes at);
  // Checks a value that no column receives.
  Point Check(Code pc, Bytes at);
  Bytes Lazy(Code pc, Bytes at);

  // Starts a block, behind which `next` follows.
  Point Enter(Code block, Code next, Bytes at);
  // Ends the record, or the item of an array or map, of the top frame.
  Point Leave(Bytes at);
  // Closes a record that has begun at `begun`.
  Bytes EndRecord(Code block, Bytes begun, Bytes at);
  // Ends an item of an array of other types or a map.
  Bytes EndItem(const Frame& frame, Bytes at);
  // Starts the next item of an array or map, of the next block of items if there is one. Behind the
  // last item, the frame is removed.
  Point NextItem(Frame* frame, Bytes at);
  Point NextItems(Frame* frame, Bytes at);
  Bytes LongHead(Frame* frame, Bytes at);

  // Reads a length; the bytes behind it exist.
  Bytes Length(Bytes at, Bytes end, std::uint32_t* length) {
    // Most lengths have one byte, of which bit 0 is the sign.
    if (at != end && (*at & 0x81U) == 0) [[likely]] {
      *length = *at >> 1;
      return *length <= end - at - 1 ? at + 1 : Malformed(at);
    }
    std::int64_t value = 0;
    const Bytes next = ReadLong(at, end, &value);
    if (next == nullptr || value < 0 || value > end - next) [[unlikely]]
      return Malformed(at);
    *length = static_cast<std::uint32_t>(value);
    return next;
  }

  // Reads the index of one of `count` symbols or branches.
  Bytes Index(Bytes at, Bytes end, std::int32_t count, std::int32_t* index) {
    const Bytes next = ReadInt(at, end, index);
    if (next == nullptr || *index < 0 || *index >= count) [[unlikely]]
      return Malformed(at);
    return next;
  }

  // Reads an enum by the table at `table`: its count, then the reader's index of each symbol.
  Bytes Symbol(Code table, Bytes at, Bytes end, std::int32_t* symbol) {
    std::int32_t index = 0;
    const Bytes next = Index(at, end, table[0], &index);
    if (next == nullptr) return nullptr;
    *symbol = table[1 + index];
    return *symbol < 0 ? Incompatible(at) : next;
  }

  // Readers of one value into its column.
  Bytes Bool(Cursor& into, Bytes at, Bytes end) {
    if (at == end || *at > 1) [[unlikely]]
      return Malformed(at);
    return into_.AppendBool(into, *at == 1) ? at + 1 : nullptr;
  }

  template <typename T>
  Bytes Int(Cursor& into, Bytes at, Bytes end) {
    std::int32_t value = 0;
    const Bytes next = ReadInt(at, end, &value);
    if (next == nullptr) [[unlikely]]
      return Malformed(at);
    return into_.AppendCell(into, static_cast<T>(value)) ? next : nullptr;
  }

  template <typename T>
  Bytes Long(Cursor& into, Bytes at, Bytes end) {
    std::int64_t value = 0;
    const Bytes next = ReadLong(at, end, &value);
    if (next == nullptr) [[unlikely]]
      return Malformed(at);
    return into_.AppendCell(into, static_cast<T>(value)) ? next : nullptr;
  }

  // A cell that is stored as it was written.
  template <typename T>
  Bytes Cell(Cursor& into, Bytes at, Bytes end) {
    if (end - at < static_cast<std::ptrdiff_t>(sizeof(T))) [[unlikely]]
      return Malformed(at);
    T bits;
    std::memcpy(&bits, at, sizeof bits);
    return into_.AppendCell(into, bits) ? at + sizeof bits : nullptr;
  }

  Bytes FloatAsDouble(Cursor& into, Bytes at) {
    if (end_ - at < 4) return Malformed(at);
    float value;
    std::memcpy(&value, at, sizeof value);
    const double wide = value;
    const std::uint64_t bits = std::isnan(value) ? kNan : std::bit_cast<std::uint64_t>(wide);
    return into_.AppendCell(into, bits) ? at + 4 : nullptr;
  }

  [[gnu::always_inline]] Bytes Text(Cursor& into, Bytes at, Bytes end, Bytes last_short) {
    // The size of a short text has one byte, of which bit 0 is the sign.
    if (at > last_short || (*at & 0x81U) != 0 || !Columns::HasShortRoom(into)) [[unlikely]]
      return LongText(into, at);
    const std::uint32_t size = *at >> 1;
    const Bytes text = at + 1;
    if (text + size > end) [[unlikely]]
      return Malformed(at);
    if (!Columns::AppendShort(into, text, size) && !IsUtf8Beyond(text, size)) [[unlikely]]
      return Malformed(at);
    return text + size;
  }
  Bytes LongText(Cursor& into, Bytes at);
  Bytes Binary(Cursor& into, Bytes at);

  Bytes Enum(Code pc, Bytes at, Bytes end) {
    std::int32_t symbol = 0;
    at = Symbol(pc + 2, at, end, &symbol);
    return at != nullptr && into_.AppendCell(ColumnAt(pc[1]), symbol) ? at : nullptr;
  }

  Bytes Fixed(Cursor& into, Bytes at) {
    if (end_ - at < static_cast<std::ptrdiff_t>(into.size)) return Malformed(at);
    return into_.AppendFixed(into, at) ? at + into.size : nullptr;
  }

  Bytes Decimal(Cursor& into, Bytes at, std::int32_t size) {
    if (end_ - at < size) return Malformed(at);
    return into_.AppendDecimal(into, at, static_cast<std::uint32_t>(size)) ? at + size : nullptr;
  }

  template <typename T, Bytes (*kRead)(Bytes, Bytes, T*)>
  Bytes SkipNumber(Bytes at, Bytes end) {
    T value{};
    const Bytes next = kRead(at, end, &value);
    return next == nullptr ? Malformed(at) : next;
  }

  [[gnu::always_inline]] Bytes SkipText(Bytes at, Bytes end, Bytes last_short) {
    if (at > last_short || (*at & 0x81U) != 0) [[unlikely]]
      return SkipLongText(at);
    const std::uint32_t size = *at >> 1;
    const Bytes text = at + 1;
    if (text + size > end) [[unlikely]]
      return Malformed(at);
    if (!IsShortAscii(text, size) && !IsUtf8Beyond(text, size)) [[unlikely]]
      return Malformed(at);
    return text + size;
  }
  Bytes SkipLongText(Bytes at);

  std::vector<std::int32_t> code_;
  std::vector<std::uint8_t> pool_;
  Columns into_;
  std::vector<Frame> frames_;
  // Behind the frames in use.
  Frame* top_ = nullptr;
  Bytes end_ = nullptr;
  Bytes last_short_ = nullptr;
  Bytes error_at_ = nullptr;
  std::uint64_t empty_values_ = 0;
  std::uint8_t status_ = kNoRoom;
};

Status AvroDecoder::Decode(const Payloads& payloads, std::uint32_t from, std::uint32_t to,
                           bool skips, Span<std::uint8_t> buffer, Span<std::uint32_t> state,
                           std::uint32_t* rows) {
  Status status = CheckPayloads(payloads, from, to);
  if (status == Status::kOk) status = into_.Open(buffer, state);
  if (status != Status::kOk) return status;
  if (to - from > into_.row_capacity() - into_.row_count()) return Status::kTooFewRows;
  last_short_ = LastShortText(payloads);
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
  status_ = kNoRoom;
  top_ = frames_.data();
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

Bytes AvroDecoder::Run(Code start, Bytes begun) {
  const Frame* const base = top_;
  const Bytes end = end_;
  const Bytes last_short = last_short_;
  Cursor* const columns = into_.cursors();
  Point point = {start, begun};
  while (point.at != nullptr) [[likely]] {
    const auto [pc, at] = point;
    const auto column = static_cast<std::uint32_t>(pc[1]);
    switch (*pc) {
      case kAvroOpEnd:
        if (top_ == base) return at;
        point = Leave(at);
        break;
      case kAvroOpCall:
        point = Enter(code_.data() + pc[1], pc + 2, at);
        break;
      case kAvroOpOptional:
        point = Optional(pc, at);
        break;
      case kAvroOpBool:
        point = {pc + 2, Bool(columns[column], at, end)};
        break;
      case kAvroOpInt:
        point = {pc + 2, Int<std::int32_t>(columns[column], at, end)};
        break;
      case kAvroOpLong:
        point = {pc + 2, Long<std::int64_t>(columns[column], at, end)};
        break;
      case kAvroOpIntToLong:
        point = {pc + 2, Int<std::int64_t>(columns[column], at, end)};
        break;
      case kAvroOpDouble:
        point = {pc + 2, Cell<std::uint64_t>(columns[column], at, end)};
        break;
      case kAvroOpText:
        point = {pc + 2, Text(columns[column], at, end, last_short)};
        break;
      case kAvroOpEnum:
        point = {pc + 3 + pc[2], Enum(pc, at, end)};
        break;
      case kAvroOpSkipInt:
        point = {pc + 1, SkipNumber<std::int32_t, ReadInt>(at, end)};
        break;
      case kAvroOpSkipLong:
        point = {pc + 1, SkipNumber<std::int64_t, ReadLong>(at, end)};
        break;
      case kAvroOpSkipText:
        point = {pc + 1, SkipText(at, end, last_short)};
        break;
      case kAvroOpRecord ... kAvroOpMap:
        // The end of the inner block is the end of the block around it.
        point = Enter(pc, code_.data() + code_.size() - kOperandsMax, at);
        break;
      case kAvroOpSkipBool ... kAvroOpSkipBytes:
      case kAvroOpSkipIndex ... kAvroOpRefuse:
      case kAvroOpJump ... kAvroOpUnion:
      case kAvroOpLazy ... kAvroOpPick:
      case kAvroOpIntToFloat ... kAvroOpFloatToDouble:
      case kAvroOpBytes:
      case kAvroOpFixed ... kAvroOpDecimal:
      case kAvroOpNull ... kAvroOpClose:
        point = Branch(pc, at);
        break;
      default:
        // The check of the program lets no other pass: the dispatch needs none of its own.
        __builtin_unreachable();
    }
  }
  return nullptr;
}

[[gnu::always_inline]] inline Point AvroDecoder::Enter(Code block, Code next, Bytes at) {
  if (*block == kAvroOpRefuse) [[unlikely]]
    return {next, Incompatible(at)};
  if (top_ == frames_.data() + kAvroLimitDepth) [[unlikely]]
    return {next, Malformed(at)};
  Frame* frame = top_;
  Code item = nullptr;
  // Most items are one record.
  if (*block == kAvroOpArray && block[3] == kAvroOpCall && block[5] == kAvroOpEnd) {
    const Code called = code_.data() + block[4];
    if (*called == kAvroOpRecord) {
      item = called;
      frame++;
    }
  }
  top_ = frame + 1;
  frame->block = block;
  frame->item = item;
  frame->next = next;
  frame->begun = at;
  frame->items_end = nullptr;
  if (*block == kAvroOpRecord) return {block + 3, at};
  return NextItems(frame, at);
}

[[gnu::always_inline]] inline Point AvroDecoder::Leave(Bytes at) {
  Frame* const frame = top_ - 1;
  if (frame->item != nullptr) {
    at = EndRecord(frame->item, frame->begun, at);
    if (at == nullptr) [[unlikely]]
      return {frame->next, nullptr};
    if (--frame->items == 0) return NextItems(frame, at);
    frame->begun = at;
    return {frame->item + 3, at};
  }
  if (*frame->block == kAvroOpRecord) {
    top_ = frame;
    return {frame->next, EndRecord(frame->block, frame->begun, at)};
  }
  at = EndItem(*frame, at);
  if (at == nullptr) return {frame->next, nullptr};
  return --frame->items == 0 ? NextItems(frame, at) : NextItem(frame, at);
}

inline Bytes AvroDecoder::EndRecord(Code block, Bytes begun, Bytes at) {
  if (block[1] > 0 && !CountEmpty(static_cast<std::uint64_t>(block[1]))) [[unlikely]]
    return Malformed(at);
  if (at == begun && !CountEmpty(1)) [[unlikely]]
    return Malformed(at);
  return block[2] < 0 || into_.CloseStruct(ColumnAt(block[2])) ? at : nullptr;
}

Bytes AvroDecoder::EndItem(const Frame& frame, Bytes at) {
  const Code block = frame.block;
  if (*block == kAvroOpMap) {
    return block[1] < 0 || into_.CloseStruct(ColumnAt(block[1] + 1)) ? at : nullptr;
  }
  // Bounds programs whose items read nothing; compiled ones count such items before.
  const bool counts = at == frame.begun && block[1] == 0 && empty_values_ == frame.empties;
  return counts && !CountEmpty(1) ? Malformed(at) : at;
}

Point AvroDecoder::NextItem(Frame* frame, Bytes at) {
  const Code block = frame->block;
  frame->begun = at;
  frame->empties = empty_values_;
  if (*block == kAvroOpMap) {
    return {block + 2, block[1] >= 0 ? LongText(ColumnAt(block[1] + 2), at) : SkipLongText(at)};
  }
  if (frame->item == nullptr) return {block + 3, at};
  const bool is_too_deep = frame == frames_.data() + kAvroLimitDepth;
  return {frame->item + 3, is_too_deep ? Malformed(at) : at};
}

Bytes AvroDecoder::LongText(Cursor& into, Bytes at) {
  std::uint32_t size = 0;
  const Bytes text = Length(at, end_, &size);
  bool is_ascii = false;
  if (text == nullptr || !into_.AppendText(into, text, size, &is_ascii)) return nullptr;
  return is_ascii || IsUtf8Beyond(text, size) ? text + size : Malformed(at);
}

Bytes AvroDecoder::SkipLongText(Bytes at) {
  std::uint32_t size = 0;
  const Bytes text = Length(at, end_, &size);
  if (text == nullptr) return nullptr;
  return IsLongAscii(text, size) || IsUtf8Beyond(text, size) ? text + size : Malformed(at);
}

Bytes AvroDecoder::Binary(Cursor& into, Bytes at) {
  std::uint32_t size = 0;
  const Bytes value = Length(at, end_, &size);
  return value != nullptr && into_.AppendBinary(into, value, size) ? value + size : nullptr;
}

// Reads a number of items that has several bytes, or is negative: then the bytes of the block
// follow.
Bytes AvroDecoder::LongHead(Frame* frame, Bytes at) {
  std::int64_t count = 0;
  Bytes next = ReadLong(at, end_, &count);
  if (next == nullptr) return Malformed(at);
  frame->items = static_cast<std::uint64_t>(count);
  if (count >= 0) return next;
  frame->items = 0 - static_cast<std::uint64_t>(count);
  std::uint32_t length = 0;
  next = Length(next, end_, &length);
  if (next != nullptr) frame->items_end = next + length;
  return next;
}

// Ends a block of items, and reads the head of the next one: the number of items that follow, 0 at
// the end.
Point AvroDecoder::NextItems(Frame* frame, Bytes at) {
  const Code block = frame->block;
  if (frame->items_end != nullptr && at != frame->items_end) return {block, Malformed(at)};
  Bytes next = at + 1;
  frame->items_end = nullptr;
  if (at != end_ && (*at & 0x81U) == 0) [[likely]] {
    frame->items = *at >> 1;
  } else {
    next = LongHead(frame, at);
    if (next == nullptr) return {block, nullptr};
  }
  const bool is_array = *block == kAvroOpArray;
  if (frame->items == 0) {
    top_ = frame->item == nullptr ? frame : frame - 1;
    const std::int32_t column = is_array ? block[2] : block[1];
    return {frame->next, column < 0 || into_.CloseList(ColumnAt(column)) ? next : nullptr};
  }
  // Items that never have bytes.
  if (is_array && block[1] != 0 && !CountEmpty(frame->items)) return {block, Malformed(next)};
  return NextItem(frame, next);
}

Point AvroDecoder::Optional(Code pc, Bytes at) {
  std::int32_t index = 0;
  at = Index(at, end_, 2, &index);
  if (at == nullptr || index != pc[1]) return {pc + 4, at};
  return {code_.data() + pc[3], into_.AppendEmpty(ColumnAt(pc[2])) ? at : nullptr};
}

Point AvroDecoder::Check(Code pc, Bytes at) {
  std::uint32_t length = 0;
  std::int32_t index = 0;
  switch (*pc) {
    case kAvroOpSkipBool:
      return {pc + 1, at == end_ || *at > 1 ? Malformed(at) : at + 1};
    case kAvroOpSkipFixed:
      return {pc + 2, pc[1] > end_ - at ? Malformed(at) : at + pc[1]};
    case kAvroOpSkipBytes:
      at = Length(at, end_, &length);
      return {pc + 1, at == nullptr ? nullptr : at + length};
    case kAvroOpSkipIndex:
      return {pc + 2, Index(at, end_, pc[1], &index)};
    default:
      return {pc + 2 + pc[1], Symbol(pc + 1, at, end_, &index)};
  }
}

Point AvroDecoder::Branch(Code pc, Bytes at) {
  if (*pc < kAvroOpRefuse) return Check(pc, at);
  switch (*pc) {
    case kAvroOpRefuse:
      return {pc, Incompatible(at)};
    case kAvroOpJump:
      return {code_.data() + pc[1], at};
    case kAvroOpUnion: {
      std::int32_t index = 0;
      at = Index(at, end_, pc[1], &index);
      return at == nullptr ? Point{pc, at} : Point{code_.data() + pc[2 + index], at};
    }
    case kAvroOpLazy:
      return {code_.data() + pc[3], Lazy(pc, at)};
    case kAvroOpPick: {
      const auto column = static_cast<std::uint32_t>(pc[1]);
      std::uint32_t child = column + 1;
      for (std::int32_t i = 0; i < pc[2]; i++) child = into_.types()[child].next;
      const auto branch = static_cast<std::uint8_t>(pc[2]);
      return {pc + 3, into_.Pick(into_[column], branch, into_[child]) ? at : nullptr};
    }
    default:
      return *pc < kAvroOpNull ? Promote(pc, at) : Constant(pc, at);
  }
}

Point AvroDecoder::Promote(Code pc, Bytes at) {
  Cursor& column = ColumnAt(pc[1]);
  const Code next = pc + 2;
  switch (*pc) {
    case kAvroOpFloat:
      return {next, Cell<std::uint32_t>(column, at, end_)};
    case kAvroOpBytes:
      return {next, Binary(column, at)};
    case kAvroOpIntToFloat:
      return {next, Int<float>(column, at, end_)};
    case kAvroOpLongToFloat:
      return {next, Long<float>(column, at, end_)};
    case kAvroOpIntToDouble:
      return {next, Int<double>(column, at, end_)};
    case kAvroOpLongToDouble:
      return {next, Long<double>(column, at, end_)};
    case kAvroOpFloatToDouble:
      return {next, FloatAsDouble(column, at)};
    case kAvroOpFixed:
      return {next, Fixed(column, at)};
    default:
      return {next + 1, Decimal(column, at, pc[2])};
  }
}

Point AvroDecoder::Constant(Code pc, Bytes at) {
  Cursor& column = ColumnAt(pc[1]);
  switch (*pc) {
    case kAvroOpNull:
      return {pc + 2, into_.AppendEmpty(column) ? at : nullptr};
    case kAvroOpConstBool:
      return {pc + 3, into_.AppendBool(column, pc[2] == 1) ? at : nullptr};
    case kAvroOpConstInt:
      return {pc + 3, into_.AppendCell(column, pc[2]) ? at : nullptr};
    case kAvroOpConstBytes: {
      const Bytes value = pool_.data() + pc[2];
      const bool done = IsText(column.kind)
                            ? into_.AppendBinary(column, value, static_cast<std::uint32_t>(pc[3]))
                            : into_.AppendFixed(column, value);
      return {pc + 4, done ? at : nullptr};
    }
    default:
      return {pc + 2, into_.Close(column) ? at : nullptr};
  }
}

Bytes AvroDecoder::Lazy(Code pc, Bytes at) {
  const Bytes next = Run(pc + 4, at);
  if (next == nullptr) return nullptr;
  Cursor& column = ColumnAt(pc[1]);
  const auto size = static_cast<std::uint32_t>(next - at);
  const bool done = pc[2] < 0
                        ? into_.AppendBinary(column, at, size)
                        : into_.AppendTagged(column, static_cast<std::uint8_t>(pc[2]), at, size);
  return done ? next : nullptr;
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
