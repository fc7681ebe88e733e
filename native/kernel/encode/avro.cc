#include "kernel/encode/avro.h"

#include <utility>

#include "kernel/codec/avro.h"
#include "kernel/encode/value_check.h"

namespace millrace::kernel::encode {
namespace {

using namespace layout;

// Words of a program about one column.
struct AvroPut {
  std::int32_t value_branch = -1;
  std::int32_t null_branch = -1;
  std::int32_t operand = -1;
};

// Greatest branch whose number is one byte.
constexpr std::int32_t kBranchMax = 63;

class AvroEncoder final : public RowEncoder {
 public:
  AvroEncoder(const std::vector<codec::ColumnType>& types, std::vector<AvroPut> puts,
              std::vector<ValueCheck> checks)
      : RowEncoder(types), puts_(std::move(puts)), checks_(std::move(checks)) {}

 protected:
  Bytes PutRow(std::uint32_t row, Bytes to) override {
    for (const std::uint32_t column : top()) {
      to = Put(column, row, to);
      if (to == nullptr) [[unlikely]]
        return nullptr;
    }
    return to;
  }

 private:
  Bytes Put(std::uint32_t index, std::uint32_t at, Bytes to);
  Bytes PutFixed(std::uint32_t index, std::uint32_t at, Bytes to);
  Bytes PutDecimal(std::uint32_t index, std::uint32_t at, Bytes to);
  Bytes PutChecked(std::uint32_t index, std::uint32_t at, Bytes to);
  Bytes PutList(std::uint32_t index, std::uint32_t at, Bytes to);
  Bytes PutFields(std::uint32_t index, std::uint32_t at, Bytes to);
  Bytes PutUnion(std::uint32_t index, std::uint32_t at, Bytes to);

  std::vector<AvroPut> puts_;
  std::vector<ValueCheck> checks_;
};

RowEncoder::Bytes AvroEncoder::Put(std::uint32_t index, std::uint32_t at, Bytes to) {
  const Column& column = At(index);
  const AvroPut& put = puts_[index];
  if (put.value_branch >= 0) {
    const bool is_null = column.IsNull(at);
    *to++ = static_cast<std::uint8_t>(2 * (is_null ? put.null_branch : put.value_branch));
    if (is_null) return to;
  }
  switch (column.kind) {
    case kColumnKindNull:
      return to;
    case kColumnKindBool:
      *to = column.Bit(at) ? 1 : 0;
      return to + 1;
    case kColumnKindInt32:
      return PutVarint(to, Zigzag(column.Cell<std::int32_t>(at)));
    case kColumnKindInt64:
      return PutVarint(to, Zigzag(column.Cell<std::int64_t>(at)));
    case kColumnKindFloat32:
      std::memcpy(to, column.values + std::size_t{at} * 4, 4);
      return to + 4;
    case kColumnKindFloat64:
      std::memcpy(to, column.values + std::size_t{at} * 8, 8);
      return to + 8;
    case kColumnKindUtf8:
      return PutBytes(index, at, 1, to);
    case kColumnKindBinary:
      return put.operand < 0 ? PutBytes(index, at, 1, to) : PutChecked(index, at, to);
    case kColumnKindDictionary: {
      const auto symbol = column.Cell<std::uint32_t>(at);
      if (symbol >= static_cast<std::uint32_t>(put.operand)) return Refuse(index);
      return PutVarint(to, Zigzag(symbol));
    }
    case kColumnKindFixed:
      return PutFixed(index, at, to);
    case kColumnKindList:
    case kColumnKindMap:
      return PutList(index, at, to);
    case kColumnKindStruct:
      return PutFields(index, at, to);
    case kColumnKindUnion:
      return PutUnion(index, at, to);
    default:
      return PutDecimal(index, at, to);
  }
}

RowEncoder::Bytes AvroEncoder::PutFixed(std::uint32_t index, std::uint32_t at, Bytes to) {
  const Column& column = At(index);
  if (!HasRoom(to, column.size)) return Lack(to, column.size);
  std::memcpy(to, column.values + std::size_t{at} * column.size, column.size);
  return to + column.size;
}

// Writes a big-endian number of the schema's size. Bytes beyond it must repeat the sign.
RowEncoder::Bytes AvroEncoder::PutDecimal(std::uint32_t index, std::uint32_t at, Bytes to) {
  const Column& column = At(index);
  const std::uint8_t* from = column.values + std::size_t{at} * column.size;
  const auto size = static_cast<std::uint32_t>(puts_[index].operand);
  for (std::uint32_t i = 0; i < size; i++) to[i] = from[size - 1 - i];
  const std::uint8_t sign = size > 0 && to[0] >= 0x80 ? 0xff : 0;
  for (std::uint32_t i = size; i < column.size; i++) {
    if (from[i] != sign) return Refuse(index);
  }
  return to + size;
}

RowEncoder::Bytes AvroEncoder::PutChecked(std::uint32_t index, std::uint32_t at, Bytes to) {
  const Column& column = At(index);
  std::uint32_t start = 0;
  std::uint32_t size = 0;
  if (!column.Elements(at, column.values_bytes, &start, &size)) return Break(index);
  if (!HasRoom(to, size)) return Lack(to, size);
  std::memcpy(to, column.values + start, size);
  return checks_[static_cast<std::size_t>(puts_[index].operand)].IsValue(to, size) ? to + size
                                                                                   : Refuse(index);
}

RowEncoder::Bytes AvroEncoder::PutList(std::uint32_t index, std::uint32_t at, Bytes to) {
  std::uint32_t start = 0;
  std::uint32_t count = 0;
  if (!At(index).Elements(at, At(index + 1).length, &start, &count)) return Break(index);
  if (count > 0) {
    to = PutVarint(to, std::uint64_t{count} << 1);
    for (std::uint32_t i = 0; i < count; i++) {
      if (!HasRoom(to, 0)) [[unlikely]]
        return Lack(to, 0);
      to = Put(index + 1, start + i, to);
      if (to == nullptr) [[unlikely]]
        return nullptr;
    }
  }
  *to = 0;
  return to + 1;
}

RowEncoder::Bytes AvroEncoder::PutFields(std::uint32_t index, std::uint32_t at, Bytes to) {
  const std::uint32_t next = At(index).next;
  for (std::uint32_t child = index + 1; child < next; child = At(child).next) {
    to = Put(child, at, to);
    if (to == nullptr) [[unlikely]]
      return nullptr;
  }
  return to;
}

RowEncoder::Bytes AvroEncoder::PutUnion(std::uint32_t index, std::uint32_t at, Bytes to) {
  const Column& column = At(index);
  const std::uint8_t branch = column.values[at];
  const auto element = static_cast<std::uint32_t>(column.offsets[at]);
  std::uint32_t child = index + 1;
  for (std::uint8_t i = 0; i < branch && child < column.next; i++) child = At(child).next;
  if (child >= column.next || element >= At(child).length) return Break(index);
  return Put(child, element, PutVarint(to, std::uint64_t{branch} << 1));
}

// True for words that encode a column of this kind.
bool IsGood(const codec::ColumnType& type, const AvroPut& put, std::size_t checks) {
  if (put.value_branch < -1 || put.value_branch > kBranchMax) return false;
  if (put.null_branch < -1 || put.null_branch > kBranchMax) return false;
  if (type.nullable != (put.null_branch >= 0)) return false;
  if (put.null_branch >= 0 && put.value_branch < 0) return false;
  switch (type.kind) {
    case kColumnKindUint32:
    case kColumnKindUint64:
      return false;
    case kColumnKindDictionary:
      return put.operand >= 0;
    case kColumnKindBinary:
      return put.operand >= -1 && put.operand < static_cast<std::int64_t>(checks);
    case kColumnKindDecimal128:
    case kColumnKindDecimal256:
      return put.operand >= 0 && static_cast<std::uint32_t>(put.operand) <= type.size;
    default:
      return put.operand == -1;
  }
}

}  // namespace

Status OpenAvroEncoder(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                       Span<const std::int32_t> table, std::unique_ptr<Encoder>* out,
                       std::int64_t* bad) {
  constexpr std::size_t kWords = kAvroPutCount;
  *bad = -1;
  std::vector<codec::ColumnType> types;
  const Status status = codec::ReadColumnTypes(table, &types);
  if (status != Status::kOk) return status;
  std::vector<std::vector<std::int32_t>> programs;
  if (!ReadTables(tables, &programs)) return Status::kBadArgument;
  std::vector<ValueCheck> checks;
  for (const std::vector<std::int32_t>& program : programs) {
    std::unique_ptr<codec::Decoder> decoder;
    std::int64_t word = -1;
    const Status opened =
        codec::OpenAvro({program.data(), program.size()}, {}, {}, &decoder, &word);
    if (opened != Status::kOk) return opened;
    checks.emplace_back(std::move(decoder), 0);
  }
  *bad = 0;
  if (code.size != types.size() * kWords) return Status::kBadArgument;
  std::vector<AvroPut> puts(types.size());
  for (std::size_t i = 0; i < types.size(); i++) {
    const std::int32_t* words = code.data + i * kWords;
    puts[i].value_branch = words[kAvroPutValueBranch];
    puts[i].null_branch = words[kAvroPutNullBranch];
    puts[i].operand = words[kAvroPutOperand];
    *bad = static_cast<std::int64_t>(i * kWords);
    if (!IsGood(types[i], puts[i], checks.size())) return Status::kBadArgument;
  }
  *bad = -1;
  *out = std::make_unique<AvroEncoder>(types, std::move(puts), std::move(checks));
  return Status::kOk;
}

}  // namespace millrace::kernel::encode
