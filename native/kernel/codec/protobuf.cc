#include "kernel/codec/protobuf.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "kernel/codec/protobuf_ordered.h"
#include "kernel/codec/text.h"
#include "kernel/codec/varint.h"

namespace millrace::kernel::codec {
namespace {

using namespace layout;

// Greatest number of payloads of a call that are left to the general reader because of those
// before.
constexpr std::uint32_t kPauseMax = 63;

// Value of a field while its message is read.
struct Slot {
  // Bits of a scalar; start and length of a text; index of a message's frame; byte behind the one
  // where an element of a list lacked a required field.
  std::uint64_t value = 0;
  bool is_set = false;
  // Number of the last part of a message as bytes; 0 for none.
  std::uint32_t part = 0;
};

// Part of a message as bytes.
struct Part {
  std::uint32_t start;
  std::uint32_t length;
  // Number of the part before it; 0 for none.
  std::uint32_t before;
};

// Key of a map entry whose value lacks a required field: `text` of a string, `number` of the
// others.
struct LackingKey {
  std::uint32_t slot;
  std::uint64_t number;
  std::string_view text;
  auto operator<=>(const LackingKey&) const = default;
};

struct LackingEntry {
  // Number of the entry in the order in which entries began to lack a field.
  std::uint32_t order;
  std::int64_t at;
};

// Reads return the position behind the value. nullptr ends the row: with a verdict in `status_`, or
// with kNoRoom where a buffer lacks room.
//
// A frame holds the values of a message that is not complete: the slot `base` with the byte behind
// the last part that lacked a required field, then a slot for each field. Frames are a stack: the
// frames of a message's parts are above its own.
class ProtoDecoder final : public Decoder {
 public:
  ProtoDecoder(ProtoProgram program, std::vector<ColumnType> types)
      : program_(std::move(program)), into_(std::move(types)), ordered_(program_, &into_) {}

  Status Decode(const Payloads& payloads, std::uint32_t from, std::uint32_t to, bool skips,
                Span<std::uint8_t> buffer, Span<std::uint32_t> state, std::uint32_t* rows) override;

 private:
  // No value of COLUMN_STATUS.
  static constexpr std::uint8_t kNoRoom = 0xff;

  bool DecodeRow(Bytes payload, std::int32_t length);
  bool DecodeOrdered(Bytes payload, std::int32_t length);
  bool DecodeRoot();
  bool AppendBadRow(std::uint8_t status, std::uint32_t at);

  [[gnu::cold]] Bytes Malformed(Bytes at) {
    status_ = static_cast<std::uint8_t>(kColumnStatusMalformed);
    error_at_ = at;
    return nullptr;
  }

  const ProtoNode& NodeOf(const ProtoField& field) const {
    return program_.nodes[static_cast<std::size_t>(field.child)];
  }
  bool Spend(std::int64_t fields) {
    fields_left_ -= fields;
    return fields_left_ >= 0;
  }
  // Makes an empty frame. False where the payload has too many fields.
  bool NewFrame(const ProtoNode& node, std::uint32_t* base);
  void FreeFrames(std::uint32_t base) {
    top_ = base;
    if (!lacking_.empty()) lacking_.erase(lacking_.lower_bound({base, 0, {}}), lacking_.end());
  }
  void EndPart(const ProtoNode& node, std::uint32_t base, Bytes at);

  Bytes ReadTag(Bytes at, std::uint32_t* tag) {
    const Bytes next = ReadShortVarint(at, limit_, tag);
    return next == nullptr || *tag < 8 ? Malformed(at) : next;
  }
  Bytes Length(Bytes at, std::uint32_t* length) {
    const Bytes next = ReadShortVarint(at, limit_, length);
    const bool is_good = next != nullptr && *length <= static_cast<std::size_t>(limit_ - next);
    return is_good ? next : Malformed(at);
  }
  bool Descend() { return ++depth_ <= kProtoLimitDepth; }

  Bytes ReadMessage(const ProtoNode& node, std::uint32_t base, Bytes at);
  Bytes ReadGroup(const ProtoNode& node, std::uint32_t base, std::uint32_t number, Bytes at,
                  Bytes* end);
  // Reads a message behind its length, or a group. `start` and `end` are those of its bytes.
  Bytes ReadNested(const ProtoNode& node, std::uint32_t base, std::uint32_t tag, Bytes at,
                   Bytes* start, Bytes* end);
  Bytes ReadField(const ProtoNode& node, std::uint32_t base, std::uint32_t tag, Bytes start,
                  Bytes at, std::uint32_t* hint);
  Bytes ReadSingle(const ProtoNode& node, std::uint32_t base, std::uint32_t field,
                   std::uint32_t tag, Bytes at);
  Bytes ReadElement(std::uint32_t slot, const ProtoField& field, std::uint32_t tag, Bytes at);
  Bytes ReadRun(const ProtoField& field, Bytes at);
  Bytes ReadItem(const ProtoField& field, Bytes at);
  Bytes ReadEntry(std::uint32_t slot, const ProtoField& field, Bytes at);
  bool AppendEntry(std::uint32_t slot, const ProtoField& field, std::uint64_t key,
                   std::uint64_t value, std::uint32_t base, std::uint32_t part);
  Bytes ReadScalar(std::int32_t kind, Bytes at, std::uint64_t* bits);
  // Reads a value; `is_known` is false for a number that its closed enum lacks.
  Bytes ReadValue(const ProtoField& field, Bytes at, std::uint64_t* bits, bool* is_known);
  Bytes Skip(std::uint32_t tag, Bytes start, Bytes at);

  bool Select(const ProtoNode& node, std::uint32_t base, std::uint32_t field);
  void AddPart(Bytes start, Bytes end, std::uint32_t* part);
  void RecordEntry(std::uint32_t slot, std::int32_t kind, std::uint64_t key, std::int64_t at);

  bool Append(std::int32_t kind, std::uint32_t column, std::uint64_t bits);
  bool AppendParts(std::uint32_t column, std::uint32_t part);
  // Appends the values of a complete message. `lacking` is where it, or a message in it, lacked a
  // required field; -1 for nowhere. False where room lacks.
  bool Flush(const ProtoNode& node, std::uint32_t base, std::int64_t* lacking);
  bool FlushField(const ProtoField& field, std::uint32_t slot, std::int64_t* lacking);
  bool FlushList(const ProtoField& field, std::uint32_t slot, std::int64_t* lacking);

  ProtoProgram program_;
  Columns into_;
  OrderedReader ordered_;
  // Payloads that are left to the general reader: how many at last, and still.
  std::uint32_t pause_ = 0;
  std::uint32_t pause_left_ = 0;
  std::vector<Slot> slots_;
  std::vector<Part> parts_;
  // A tree, because the payload chooses the keys: it could make those of a hash table collide.
  std::map<LackingKey, LackingEntry> lacking_;
  std::uint32_t lacking_order_ = 0;
  std::vector<std::uint8_t> joined_;
  std::vector<std::uint32_t> groups_;
  Bytes payload_ = nullptr;
  // End of the current message.
  Bytes limit_ = nullptr;
  Bytes error_at_ = nullptr;
  std::int64_t fields_left_ = 0;
  std::uint32_t top_ = 0;
  std::int32_t depth_ = 0;
  std::uint8_t status_ = kNoRoom;
};

Status ProtoDecoder::Decode(const Payloads& payloads, std::uint32_t from, std::uint32_t to,
                            bool skips, Span<std::uint8_t> buffer, Span<std::uint32_t> state,
                            std::uint32_t* rows) {
  Status status = CheckPayloads(payloads, from, to);
  if (status == Status::kOk) status = into_.Open(buffer, state);
  if (status != Status::kOk) return status;
  if (to - from > into_.row_capacity() - into_.row_count()) return Status::kTooFewRows;
  ordered_.Open(LastShortText(payloads));
  pause_ = 0;
  pause_left_ = 0;
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
bool ProtoDecoder::DecodeRow(Bytes payload, std::int32_t length) {
  if (DecodeOrdered(payload, length)) [[likely]] {
    into_.Commit(kColumnStatusOk, 0);
    return true;
  }
  payload_ = payload;
  limit_ = payload + length;
  fields_left_ = FieldsMax(length);
  depth_ = 0;
  top_ = 0;
  status_ = kNoRoom;
  parts_.clear();
  lacking_.clear();
  lacking_order_ = 0;
  if (DecodeRoot()) {
    into_.Commit(kColumnStatusOk, 0);
    return true;
  }
  if (status_ == kNoRoom) return false;
  return AppendBadRow(status_, static_cast<std::uint32_t>(error_at_ - payload));
}

// Writers with another order of fields, and payloads that are malformed, are rare or come together:
// after each, more of the next payloads are not read twice.
bool ProtoDecoder::DecodeOrdered(Bytes payload, std::int32_t length) {
  if (pause_left_ > 0) {
    pause_left_--;
    return false;
  }
  if (ordered_.Read(payload, length)) {
    pause_ = 0;
    return true;
  }
  into_.Rollback();
  pause_ = std::min(2 * pause_ + 1, kPauseMax);
  pause_left_ = pause_;
  return false;
}

bool ProtoDecoder::DecodeRoot() {
  const ProtoNode& root = program_.nodes[0];
  std::uint32_t base = 0;
  if (!NewFrame(root, &base)) return Malformed(payload_) != nullptr;
  std::int64_t lacking = -1;
  if (ReadMessage(root, base, payload_) == nullptr || !Flush(root, base, &lacking)) return false;
  return lacking < 0 || Malformed(payload_ + lacking) != nullptr;
}

bool ProtoDecoder::AppendBadRow(std::uint8_t status, std::uint32_t at) {
  into_.Rollback();
  if (!into_.AppendEmptyRow()) return false;
  into_.Commit(status, at);
  return true;
}

bool ProtoDecoder::NewFrame(const ProtoNode& node, std::uint32_t* base) {
  if (!Spend(node.spend)) return false;
  *base = top_;
  const std::size_t top = top_ + node.fields.size() + 1;
  if (top > slots_.size()) slots_.resize(std::max(top, slots_.size() * 2));
  std::fill(slots_.begin() + top_, slots_.begin() + static_cast<std::ptrdiff_t>(top), Slot{});
  top_ = static_cast<std::uint32_t>(top);
  return true;
}

void ProtoDecoder::EndPart(const ProtoNode& node, std::uint32_t base, Bytes at) {
  for (const std::uint32_t field : node.required) {
    if (slots_[base + 1 + field].is_set) continue;
    slots_[base].value = static_cast<std::uint64_t>(at - payload_) + 1;
    return;
  }
}

Bytes ProtoDecoder::ReadMessage(const ProtoNode& node, std::uint32_t base, Bytes at) {
  std::uint32_t hint = 0;
  while (at < limit_) {
    const Bytes start = at;
    std::uint32_t tag = 0;
    at = ReadTag(at, &tag);
    if (at != nullptr) at = ReadField(node, base, tag, start, at, &hint);
    if (at == nullptr) return nullptr;
  }
  EndPart(node, base, at);
  return at;
}

Bytes ProtoDecoder::ReadGroup(const ProtoNode& node, std::uint32_t base, std::uint32_t number,
                              Bytes at, Bytes* end) {
  std::uint32_t hint = 0;
  for (;;) {
    const Bytes start = at;
    std::uint32_t tag = 0;
    at = ReadTag(at, &tag);
    if (at == nullptr) return nullptr;
    if ((tag & 7U) == kWireEnd) {
      if (tag >> 3 != number) return Malformed(start);
      EndPart(node, base, at);
      *end = start;
      return at;
    }
    at = ReadField(node, base, tag, start, at, &hint);
    if (at == nullptr) return nullptr;
  }
}

Bytes ProtoDecoder::ReadNested(const ProtoNode& node, std::uint32_t base, std::uint32_t tag,
                               Bytes at, Bytes* start, Bytes* end) {
  if (!Descend()) return Malformed(at);
  *start = at;
  if ((tag & 7U) == kWireGroup) {
    at = ReadGroup(node, base, tag >> 3, at, end);
  } else {
    std::uint32_t length = 0;
    at = Length(at, &length);
    if (at == nullptr) return nullptr;
    const Bytes outer = limit_;
    *start = at;
    limit_ = at + length;
    *end = limit_;
    at = ReadMessage(node, base, at);
    limit_ = outer;
  }
  depth_--;
  return at;
}

const ProtoTag* FindTag(const ProtoNode& node, std::uint32_t tag, std::uint32_t* hint) {
  const std::vector<ProtoTag>& tags = node.tags;
  // Most writers keep the order of the numbers, and repeat a tag for each item.
  for (std::uint32_t i = *hint; i < tags.size() && i < *hint + 2; i++) {
    if (tags[i].tag == tag) {
      *hint = i;
      return &tags[i];
    }
  }
  const auto found =
      std::lower_bound(tags.begin(), tags.end(), tag,
                       [](const ProtoTag& one, std::uint32_t value) { return one.tag < value; });
  if (found == tags.end() || found->tag != tag) return nullptr;
  *hint = static_cast<std::uint32_t>(found - tags.begin());
  return &*found;
}

Bytes ProtoDecoder::ReadField(const ProtoNode& node, std::uint32_t base, std::uint32_t tag,
                              Bytes start, Bytes at, std::uint32_t* hint) {
  const ProtoTag* found = FindTag(node, tag, hint);
  if (found == nullptr) return Skip(tag, start, at);
  const ProtoField& field = node.fields[found->field];
  const std::uint32_t slot = base + 1 + found->field;
  if (field.Has(kProtoFlagRepeated)) {
    if (found->is_run) return ReadRun(field, at);
    return field.kind == kProtoKindMessage ? ReadElement(slot, field, tag, at)
                                           : ReadItem(field, at);
  }
  if (field.Has(kProtoFlagMap)) return ReadEntry(slot, field, at);
  if (field.kind == kProtoKindMessage) return ReadSingle(node, base, found->field, tag, at);
  std::uint64_t bits = 0;
  bool is_known = true;
  at = ReadValue(field, at, &bits, &is_known);
  if (at == nullptr || !is_known) return at;
  if (!Select(node, base, found->field)) return Malformed(at);
  slots_[slot].value = bits;
  slots_[slot].is_set = true;
  return at;
}

// Clears the other members of the oneof of a field that is absent so far. False where the payload
// has too many fields.
bool ProtoDecoder::Select(const ProtoNode& node, std::uint32_t base, std::uint32_t field) {
  const std::int32_t oneof = node.fields[field].oneof;
  if (oneof < 0 || slots_[base + 1 + field].is_set) return true;
  const std::vector<std::uint32_t>& members = program_.oneofs[static_cast<std::size_t>(oneof)];
  if (!Spend(static_cast<std::int64_t>(members.size()))) return false;
  for (const std::uint32_t member : members) {
    const ProtoField& other = node.fields[member];
    Slot& slot = slots_[base + 1 + member];
    const bool is_struct = other.kind == kProtoKindMessage && !other.Has(kProtoFlagRaw);
    if (is_struct && other.column >= 0 && slot.is_set) {
      into_.TruncateOpen(static_cast<std::uint32_t>(other.column));
    }
    slot = Slot{};
  }
  return true;
}

Bytes ProtoDecoder::ReadSingle(const ProtoNode& node, std::uint32_t base, std::uint32_t index,
                               std::uint32_t tag, Bytes at) {
  const ProtoField& field = node.fields[index];
  const ProtoNode& child = NodeOf(field);
  const std::uint32_t slot = base + 1 + index;
  if (!slots_[slot].is_set) {
    std::uint32_t frame = 0;
    if (!NewFrame(child, &frame) || !Select(node, base, index)) return Malformed(at);
    slots_[slot].value = frame;
    slots_[slot].is_set = true;
  }
  Bytes start = nullptr;
  Bytes end = nullptr;
  const auto frame = static_cast<std::uint32_t>(slots_[slot].value);
  at = ReadNested(child, frame, tag, at, &start, &end);
  if (at != nullptr && field.Has(kProtoFlagRaw)) AddPart(start, end, &slots_[slot].part);
  return at;
}

void ProtoDecoder::AddPart(Bytes start, Bytes end, std::uint32_t* part) {
  if (start == end) return;
  parts_.push_back({static_cast<std::uint32_t>(start - payload_),
                    static_cast<std::uint32_t>(end - start), *part});
  *part = static_cast<std::uint32_t>(parts_.size());
}

Bytes ProtoDecoder::ReadElement(std::uint32_t slot, const ProtoField& field, std::uint32_t tag,
                                Bytes at) {
  const ProtoNode& child = NodeOf(field);
  std::uint32_t base = 0;
  if (!NewFrame(child, &base)) return Malformed(at);
  Bytes start = nullptr;
  Bytes end = nullptr;
  at = ReadNested(child, base, tag, at, &start, &end);
  std::int64_t lacking = -1;
  if (at == nullptr || !Flush(child, base, &lacking)) return nullptr;
  FreeFrames(base);
  if (lacking >= 0 && slots_[slot].value == 0) {
    slots_[slot].value = static_cast<std::uint64_t>(lacking) + 1;
  }
  if (!field.Has(kProtoFlagRaw) || field.column < 0) return at;
  const auto length = static_cast<std::uint32_t>(end - start);
  return into_.AppendBinary(into_[field.ValueColumn()], start, length) ? at : nullptr;
}

Bytes ProtoDecoder::ReadRun(const ProtoField& field, Bytes at) {
  std::uint32_t length = 0;
  at = Length(at, &length);
  if (at == nullptr) return nullptr;
  const Bytes outer = limit_;
  limit_ = at + length;
  while (at != nullptr && at < limit_) at = ReadItem(field, at);
  limit_ = outer;
  return at;
}

Bytes ProtoDecoder::ReadItem(const ProtoField& field, Bytes at) {
  std::uint64_t bits = 0;
  bool is_known = true;
  at = ReadValue(field, at, &bits, &is_known);
  if (at == nullptr || !is_known || field.column < 0) return at;
  return Append(field.kind, field.ValueColumn(), bits) ? at : nullptr;
}

// Reads a map entry, a message of a key = 1 and a value = 2, and appends it. An entry whose last
// value is a number that a closed enum lacks is dropped.
Bytes ProtoDecoder::ReadEntry(std::uint32_t slot, const ProtoField& field, Bytes at) {
  if (!Descend()) return Malformed(at);
  std::uint32_t length = 0;
  at = Length(at, &length);
  if (at == nullptr) return nullptr;
  const Bytes outer = limit_;
  limit_ = at + length;
  const bool is_message = field.kind == kProtoKindMessage;
  const std::uint32_t key_tag = 1U << 3 | WireOf(field.key);
  const std::uint32_t value_tag = 2U << 3 | WireOf(field.kind);
  std::uint32_t base = 0;
  if (is_message && !NewFrame(NodeOf(field), &base)) return Malformed(at);
  std::uint64_t key = 0;
  std::uint64_t value = field.kind == kProtoKindEnum ? static_cast<std::uint32_t>(field.zero) : 0;
  bool is_known = true;
  std::uint32_t part = 0;
  while (at < limit_) {
    const Bytes start = at;
    std::uint32_t tag = 0;
    at = ReadTag(at, &tag);
    if (at == nullptr) return nullptr;
    if (tag == key_tag) {
      at = ReadScalar(field.key, at, &key);
    } else if (tag != value_tag) {
      at = Skip(tag, start, at);
    } else if (!is_message) {
      at = ReadValue(field, at, &value, &is_known);
    } else {
      Bytes from = nullptr;
      Bytes to = nullptr;
      at = ReadNested(NodeOf(field), base, tag, at, &from, &to);
      if (at != nullptr && field.Has(kProtoFlagRaw)) AddPart(from, to, &part);
    }
    if (at == nullptr) return nullptr;
  }
  if (is_message) EndPart(NodeOf(field), base, at);
  limit_ = outer;
  depth_--;
  if (!is_known) return at;
  return AppendEntry(slot, field, key, value, base, part) ? at : nullptr;
}

bool ProtoDecoder::AppendEntry(std::uint32_t slot, const ProtoField& field, std::uint64_t key,
                               std::uint64_t value, std::uint32_t base, std::uint32_t part) {
  const bool has_column = field.column >= 0;
  const auto column = static_cast<std::uint32_t>(field.column);
  if (has_column && !Append(field.key, column + 2, key)) return false;
  if (field.kind == kProtoKindMessage) {
    std::int64_t lacking = -1;
    if (!Flush(NodeOf(field), base, &lacking)) return false;
    FreeFrames(base);
    RecordEntry(slot, field.key, key, lacking);
    if (has_column && field.Has(kProtoFlagRaw) && !AppendParts(column + 3, part)) return false;
  } else if (has_column && !Append(field.kind, column + 3, value)) {
    return false;
  }
  return !has_column || into_.CloseStruct(into_[column + 1]);
}

// The last entry of a key decides whether the entry lacks a required field.
void ProtoDecoder::RecordEntry(std::uint32_t slot, std::int32_t kind, std::uint64_t key,
                               std::int64_t at) {
  if (at < 0 && lacking_.empty()) return;
  LackingKey name{slot, key, {}};
  if (kind == kProtoKindString) {
    const auto* const text = reinterpret_cast<const char*>(payload_) + (key >> 32);
    name = {slot, 0, {text, key & 0xffffffffU}};
  }
  if (at < 0) {
    lacking_.erase(name);
    return;
  }
  const auto [entry, is_new] = lacking_.try_emplace(name, LackingEntry{lacking_order_, at});
  if (is_new) {
    lacking_order_++;
  } else {
    entry->second.at = at;
  }
}

Bytes ProtoDecoder::ReadValue(const ProtoField& field, Bytes at, std::uint64_t* bits,
                              bool* is_known) {
  at = ReadScalar(field.kind, at, bits);
  if (at == nullptr || field.kind != kProtoKindClosedEnum) return at;
  const ProtoSymbol* const symbol = program_.FindSymbol(field, *bits);
  *is_known = symbol != nullptr;
  if (*is_known) *bits = static_cast<std::uint64_t>(symbol->index);
  return at;
}

Bytes ProtoDecoder::ReadScalar(std::int32_t kind, Bytes at, std::uint64_t* bits) {
  switch (kind) {
    case kProtoKindString:
    case kProtoKindBytes: {
      std::uint32_t length = 0;
      const Bytes text = Length(at, &length);
      if (text == nullptr) return nullptr;
      if (kind == kProtoKindString && !IsUtf8(text, length, limit_)) return Malformed(text);
      *bits = static_cast<std::uint64_t>(text - payload_) << 32 | length;
      return text + length;
    }
    case kProtoKindFixed32: {
      if (limit_ - at < 4) return Malformed(at);
      std::uint32_t word;
      std::memcpy(&word, at, sizeof word);
      *bits = word;
      return at + 4;
    }
    case kProtoKindFixed64:
      if (limit_ - at < 8) return Malformed(at);
      std::memcpy(bits, at, sizeof *bits);
      return at + 8;
    default:
      break;
  }
  const Bytes next = ReadSmallVarint(at, limit_, bits);
  if (next == nullptr) return Malformed(at);
  switch (kind) {
    case kProtoKindBool:
      *bits = *bits != 0 ? 1 : 0;
      break;
    case kProtoKindSint64:
      *bits = *bits >> 1 ^ (0 - (*bits & 1U));
      break;
    case kProtoKindSint32: {
      const auto low = static_cast<std::uint32_t>(*bits);
      *bits = low >> 1 ^ (0 - (low & 1U));
      break;
    }
    case kProtoKindInt64:
      break;
    default:
      *bits &= 0xffffffffU;
  }
  return next;
}

// Skips the value of an unknown field, a group with its content. `start` is that of the tag.
Bytes ProtoDecoder::Skip(std::uint32_t tag, Bytes start, Bytes at) {
  groups_.clear();
  for (;;) {
    switch (tag & 7U) {
      case kWireVarint: {
        std::uint64_t bits = 0;
        const Bytes next = ReadSmallVarint(at, limit_, &bits);
        if (next == nullptr) return Malformed(at);
        at = next;
        break;
      }
      case kWireFixed64:
        if (limit_ - at < 8) return Malformed(at);
        at += 8;
        break;
      case kWireFixed32:
        if (limit_ - at < 4) return Malformed(at);
        at += 4;
        break;
      case kWireLength: {
        std::uint32_t length = 0;
        at = Length(at, &length);
        if (at == nullptr) return nullptr;
        at += length;
        break;
      }
      case kWireGroup:
        groups_.push_back(tag >> 3);
        if (static_cast<std::size_t>(depth_) + groups_.size() > kProtoLimitDepth) {
          return Malformed(start);
        }
        break;
      case kWireEnd:
        if (groups_.empty() || groups_.back() != tag >> 3) return Malformed(start);
        groups_.pop_back();
        break;
      default:
        return Malformed(start);
    }
    if (groups_.empty()) return at;
    start = at;
    at = ReadTag(at, &tag);
    if (at == nullptr) return nullptr;
  }
}

bool ProtoDecoder::Append(std::int32_t kind, std::uint32_t column, std::uint64_t bits) {
  Cursor& into = into_[column];
  switch (kind) {
    case kProtoKindString:
    case kProtoKindBytes:
      return into_.AppendBinary(into, payload_ + (bits >> 32), static_cast<std::uint32_t>(bits));
    case kProtoKindBool:
      return into_.AppendBool(into, bits != 0);
    case kProtoKindInt64:
    case kProtoKindSint64:
    case kProtoKindFixed64:
      return into_.AppendCell(into, bits);
    default:
      return into_.AppendCell(into, static_cast<std::uint32_t>(bits));
  }
}

// Appends the parts of a message as one value.
bool ProtoDecoder::AppendParts(std::uint32_t column, std::uint32_t part) {
  Cursor& into = into_[column];
  if (part == 0) return into_.AppendBinary(into, payload_, 0);
  const Part& last = parts_[part - 1];
  if (last.before == 0) return into_.AppendBinary(into, payload_ + last.start, last.length);
  std::size_t size = 0;
  for (std::uint32_t at = part; at != 0; at = parts_[at - 1].before) size += parts_[at - 1].length;
  joined_.resize(size);
  for (std::uint32_t at = part; at != 0; at = parts_[at - 1].before) {
    size -= parts_[at - 1].length;
    std::memcpy(joined_.data() + size, payload_ + parts_[at - 1].start, parts_[at - 1].length);
  }
  return into_.AppendBinary(into, joined_.data(), static_cast<std::uint32_t>(joined_.size()));
}

bool ProtoDecoder::Flush(const ProtoNode& node, std::uint32_t base, std::int64_t* lacking) {
  for (const std::uint32_t field : node.required) {
    if (slots_[base + 1 + field].is_set) continue;
    *lacking = static_cast<std::int64_t>(slots_[base].value) - 1;
    break;
  }
  for (std::size_t i = 0; i < node.fields.size(); i++) {
    std::int64_t found = -1;
    const auto slot = static_cast<std::uint32_t>(base + 1 + i);
    if (!FlushField(node.fields[i], slot, &found)) return false;
    if (*lacking < 0) *lacking = found;
  }
  return node.column < 0 || into_.CloseStruct(into_[static_cast<std::uint32_t>(node.column)]);
}

bool ProtoDecoder::FlushField(const ProtoField& field, std::uint32_t slot, std::int64_t* lacking) {
  if (field.Has(kProtoFlagRepeated | kProtoFlagMap)) return FlushList(field, slot, lacking);
  const Slot held = slots_[slot];
  const bool has_column = field.column >= 0;
  const auto column = static_cast<std::uint32_t>(field.column);
  if (field.kind == kProtoKindMessage) {
    if (!held.is_set) return !has_column || into_.AppendEmpty(into_[column]);
    if (!Flush(NodeOf(field), static_cast<std::uint32_t>(held.value), lacking)) return false;
    return !has_column || !field.Has(kProtoFlagRaw) || AppendParts(column, held.part);
  }
  if (!has_column) return true;
  if (held.is_set) return Append(field.kind, column, held.value);
  if (field.Has(kProtoFlagPresence) || field.kind != kProtoKindEnum) {
    return into_.AppendEmpty(into_[column]);
  }
  return Append(field.kind, column, static_cast<std::uint32_t>(field.zero));
}

bool ProtoDecoder::FlushList(const ProtoField& field, std::uint32_t slot, std::int64_t* lacking) {
  if (field.column >= 0 && !into_.CloseList(into_[static_cast<std::uint32_t>(field.column)]))
    return false;
  *lacking = static_cast<std::int64_t>(slots_[slot].value) - 1;
  if (*lacking >= 0 || lacking_.empty()) return true;
  auto entry = lacking_.lower_bound({slot, 0, {}});
  for (auto first = UINT32_MAX; entry != lacking_.end() && entry->first.slot == slot; entry++) {
    if (entry->second.order >= first) continue;
    first = entry->second.order;
    *lacking = entry->second.at;
  }
  return true;
}

}  // namespace

Status OpenProtobuf(Span<const std::int32_t> code, Span<const std::int32_t> table,
                    std::unique_ptr<Decoder>* out, std::int64_t* bad) {
  std::vector<ColumnType> types;
  *bad = -1;
  const Status status = ReadColumnTypes(table, &types);
  if (status != Status::kOk) return status;
  ProtoProgram program;
  *bad = ReadProtoProgram(code, types, &program);
  if (*bad >= 0) return Status::kBadArgument;
  *out = std::make_unique<ProtoDecoder>(std::move(program), std::move(types));
  return Status::kOk;
}

}  // namespace millrace::kernel::codec
