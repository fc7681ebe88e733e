#include "kernel/encode/protobuf.h"

#include <utility>

#include "kernel/encode/proto_fields.h"

namespace millrace::kernel::encode {
namespace {

using namespace layout;

inline std::uint8_t* PutTag(std::uint8_t* to, const Tag& tag) {
  std::memcpy(to, &tag.bytes, sizeof tag.bytes);
  return to + tag.size;
}

// Writes the length of a part that begins behind the byte at `start`, where one byte is reserved:
// a longer length moves the part.
inline std::uint8_t* FinishPart(std::uint8_t* start, std::uint8_t* to) {
  const auto length = static_cast<std::uint64_t>(to - start - 1);
  if (length < 0x80) [[likely]] {
    *start = static_cast<std::uint8_t>(length);
    return to;
  }
  std::uint8_t head[10];
  const auto bytes = static_cast<std::size_t>(PutVarint(head, length) - head);
  std::memmove(start + bytes, start + 1, length);
  std::memcpy(start, head, bytes);
  return to + bytes - 1;
}

class ProtoEncoder final : public RowEncoder {
 public:
  ProtoEncoder(const std::vector<codec::ColumnType>& types, PutProgram program)
      : RowEncoder(types), program_(std::move(program)), chosen_(types.size()) {}

 protected:
  Bytes PutRow(std::uint32_t row, Bytes to) override {
    return PutMessage(program_.messages[0], row, to);
  }

 private:
  Bytes PutMessage(const Message& message, std::uint32_t at, Bytes to);
  Bytes PutSingle(const Field& field, std::uint64_t visit, std::uint32_t at, Bytes to);
  Bytes PutList(const Field& field, std::uint32_t at, Bytes to);
  Bytes PutRun(const Field& field, std::uint32_t start, std::uint32_t count, Bytes to);
  Bytes PutMap(const Field& field, std::uint32_t at, Bytes to);
  // Writes a value without its tag; a message behind its length, or as the content of a group.
  Bytes PutValue(const Field& field, std::uint32_t at, Bytes to);
  Bytes PutNested(const Field& field, std::uint32_t at, Bytes to);
  Bytes PutScalar(std::int32_t kind, std::uint32_t column, std::uint32_t at, Bytes to);
  bool IsZero(const Field& field, std::uint32_t at) const;

  PutProgram program_;
  // Visit of the message that last had a member of each oneof.
  std::vector<std::uint64_t> chosen_;
  std::uint64_t visits_ = 0;
};

RowEncoder::Bytes ProtoEncoder::PutMessage(const Message& message, std::uint32_t at, Bytes to) {
  const std::uint64_t visit = ++visits_;
  for (const Field& field : message.fields) {
    if (field.Has(kProtoFlagRepeated)) {
      to = PutList(field, at, to);
    } else if (field.Has(kProtoFlagMap)) {
      to = PutMap(field, at, to);
    } else {
      to = PutSingle(field, visit, at, to);
    }
    if (to == nullptr) [[unlikely]]
      return nullptr;
  }
  return to;
}

RowEncoder::Bytes ProtoEncoder::PutSingle(const Field& field, std::uint64_t visit, std::uint32_t at,
                                          Bytes to) {
  if (At(field.column).IsNull(at)) {
    return field.Has(kProtoFlagRequired) ? Refuse(field.column) : to;
  }
  if (field.oneof >= 0) {
    std::uint64_t& chosen = chosen_[static_cast<std::size_t>(field.oneof)];
    if (chosen == visit) return Refuse(field.column);
    chosen = visit;
  }
  if (field.Has(kProtoFlagHidesZero) && IsZero(field, at)) return to;
  return PutValue(field, at, PutTag(to, field.tag));
}

bool ProtoEncoder::IsZero(const Field& field, std::uint32_t at) const {
  const Column& column = At(field.column);
  switch (column.kind) {
    case kColumnKindBool:
      return !column.Bit(at);
    case kColumnKindUtf8:
    case kColumnKindBinary:
      return column.offsets[at] == column.offsets[at + 1];
    case kColumnKindDictionary: {
      const std::vector<std::int32_t>& numbers = program_.enums[field.child];
      const auto symbol = column.Cell<std::uint32_t>(at);
      return symbol < numbers.size() && numbers[symbol] == 0;
    }
    case kColumnKindStruct:
      return false;
    default:
      return column.size == 8 ? column.Cell<std::uint64_t>(at) == 0
                              : column.Cell<std::uint32_t>(at) == 0;
  }
}

RowEncoder::Bytes ProtoEncoder::PutList(const Field& field, std::uint32_t at, Bytes to) {
  std::uint32_t start = 0;
  std::uint32_t count = 0;
  if (!At(field.column).Elements(at, At(field.value).length, &start, &count)) {
    return Break(field.column);
  }
  if (count == 0) return to;
  if (field.Has(kProtoFlagPacked)) return PutRun(field, start, count, PutTag(to, field.tag));
  for (std::uint32_t i = 0; i < count; i++) {
    if (!HasRoom(to, 0)) [[unlikely]]
      return Lack(to, 0);
    to = PutValue(field, start + i, PutTag(to, field.tag));
    if (to == nullptr) [[unlikely]]
      return nullptr;
  }
  return to;
}

RowEncoder::Bytes ProtoEncoder::PutRun(const Field& field, std::uint32_t start, std::uint32_t count,
                                       Bytes to) {
  const Column& column = At(field.value);
  if (field.kind == kProtoKindFixed32 || field.kind == kProtoKindFixed64) {
    const std::size_t size = std::size_t{count} * column.size;
    if (!HasRoom(to, size)) return Lack(to, size);
    to = PutVarint(to, size);
    std::memcpy(to, column.values + std::size_t{start} * column.size, size);
    return to + size;
  }
  const Bytes begun = to++;
  for (std::uint32_t i = 0; i < count; i++) {
    if (!HasRoom(to, 0)) [[unlikely]]
      return Lack(to, 0);
    to = PutValue(field, start + i, to);
    if (to == nullptr) [[unlikely]]
      return nullptr;
  }
  return FinishPart(begun, to);
}

RowEncoder::Bytes ProtoEncoder::PutMap(const Field& field, std::uint32_t at, Bytes to) {
  std::uint32_t start = 0;
  std::uint32_t count = 0;
  if (!At(field.column).Elements(at, At(field.column + 1).length, &start, &count)) {
    return Break(field.column);
  }
  for (std::uint32_t i = start; i < start + count; i++) {
    if (!HasRoom(to, 0)) [[unlikely]]
      return Lack(to, 0);
    to = PutTag(to, field.tag);
    const Bytes begun = to++;
    to = PutScalar(field.key, field.column + 2, i, PutTag(to, field.key_tag));
    if (to != nullptr) to = PutValue(field, i, PutTag(to, field.value_tag));
    if (to == nullptr) [[unlikely]]
      return nullptr;
    to = FinishPart(begun, to);
  }
  return to;
}

RowEncoder::Bytes ProtoEncoder::PutValue(const Field& field, std::uint32_t at, Bytes to) {
  switch (field.kind) {
    case kProtoKindMessage:
      return PutNested(field, at, to);
    case kProtoKindClosedEnum: {
      const std::vector<std::int32_t>& numbers = program_.enums[field.child];
      const auto symbol = At(field.value).Cell<std::uint32_t>(at);
      if (symbol >= numbers.size()) return Refuse(field.value);
      return PutVarint(to, static_cast<std::uint64_t>(std::int64_t{numbers[symbol]}));
    }
    default:
      return PutScalar(field.kind, field.value, at, to);
  }
}

RowEncoder::Bytes ProtoEncoder::PutNested(const Field& field, std::uint32_t at, Bytes to) {
  const bool is_group = field.Has(kProtoFlagGroup);
  if (!field.Has(kProtoFlagRaw)) {
    const Bytes begun = to;
    to = PutMessage(program_.messages[field.child], at, is_group ? to : to + 1);
    if (to == nullptr) return nullptr;
    return is_group ? PutTag(to, field.end) : FinishPart(begun, to);
  }
  const Column& column = At(field.value);
  std::uint32_t start = 0;
  std::uint32_t size = 0;
  if (!column.Elements(at, column.values_bytes, &start, &size)) return Break(field.value);
  if (!HasRoom(to, size)) return Lack(to, size);
  if (!is_group) to = PutVarint(to, size);
  std::memcpy(to, column.values + start, size);
  if (!program_.checks[field.child]->IsValue(to, size)) return Refuse(field.value);
  to += size;
  return is_group ? PutTag(to, field.end) : to;
}

RowEncoder::Bytes ProtoEncoder::PutScalar(std::int32_t kind, std::uint32_t index, std::uint32_t at,
                                          Bytes to) {
  const Column& column = At(index);
  switch (kind) {
    case kProtoKindUint32:
      return PutVarint(to, column.Cell<std::uint32_t>(at));
    case kProtoKindSint32:
      return PutVarint(to, Zigzag(column.Cell<std::int32_t>(at)) & 0xffffffffU);
    case kProtoKindBool:
      *to = column.Bit(at) ? 1 : 0;
      return to + 1;
    case kProtoKindInt64:
      return PutVarint(to, column.Cell<std::uint64_t>(at));
    case kProtoKindSint64:
      return PutVarint(to, Zigzag(column.Cell<std::int64_t>(at)));
    case kProtoKindFixed32:
      std::memcpy(to, column.values + std::size_t{at} * 4, 4);
      return to + 4;
    case kProtoKindFixed64:
      std::memcpy(to, column.values + std::size_t{at} * 8, 8);
      return to + 8;
    case kProtoKindString:
    case kProtoKindBytes:
      return PutBytes(index, at, 0, to);
    default:
      return PutVarint(to, static_cast<std::uint64_t>(std::int64_t{column.Cell<std::int32_t>(at)}));
  }
}

}  // namespace

Status OpenProtobufEncoder(Span<const std::int32_t> code, Span<const std::int32_t> tables,
                           Span<const std::int32_t> table, std::unique_ptr<Encoder>* out,
                           std::int64_t* bad) {
  *bad = -1;
  std::vector<codec::ColumnType> types;
  const Status status = codec::ReadColumnTypes(table, &types);
  if (status != Status::kOk) return status;
  PutProgram program;
  if (!ReadPutProgram(code, tables, types, &program, bad)) return Status::kBadArgument;
  *out = std::make_unique<ProtoEncoder>(types, std::move(program));
  return Status::kOk;
}

}  // namespace millrace::kernel::encode
