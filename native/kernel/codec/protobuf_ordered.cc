#include "kernel/codec/protobuf_ordered.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/codec/text.h"
#include "kernel/codec/varint.h"

namespace millrace::kernel::codec {

using namespace layout;

namespace {

constexpr std::uint32_t kWireMask = 7;

// Oneofs of a message that fit into a word.
constexpr std::uint32_t kOneofsMax = 64;

bool IsList(const ProtoField& field) { return field.Has(kProtoFlagRepeated | kProtoFlagMap); }

}  // namespace

OrderedReader::OrderedReader(const ProtoProgram& program, Columns* into)
    : program_(program), into_(*into), nodes_(program.nodes.size()) {
  for (std::size_t i = 0; i < nodes_.size(); i++) {
    if (MakeNode(program.nodes[i], &nodes_[i])) continue;
    nodes_.clear();
    return;
  }
}

bool OrderedReader::MakeNode(const ProtoNode& from, Node* node) {
  node->from = &from;
  if (from.column >= 0) node->column = &into_[static_cast<std::uint32_t>(from.column)];
  std::vector<Lane> lanes(from.fields.size());
  for (const ProtoTag& tag : from.tags) {
    if (!AddTag(tag, &lanes[tag.field])) return false;
  }
  std::vector<std::int32_t> oneofs;
  for (std::size_t i = 0; i < lanes.size(); i++) {
    MakeLane(from.fields[i], &lanes[i]);
    const std::int32_t oneof = from.fields[i].oneof;
    if (oneof < 0) continue;
    const auto known = std::find(oneofs.begin(), oneofs.end(), oneof);
    const auto bit = static_cast<std::uint32_t>(known - oneofs.begin());
    if (known == oneofs.end()) {
      if (bit == kOneofsMax || !IsClosed(from, oneof)) return false;
      oneofs.push_back(oneof);
    }
    lanes[i].oneof = std::uint64_t{1} << bit;
    lanes[i].members =
        static_cast<std::int32_t>(program_.oneofs[static_cast<std::size_t>(oneof)].size());
  }
  // Stable: fields without a tag keep their order.
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const Lane& a, const Lane& b) { return a.number < b.number; });
  lanes.emplace_back().number = kNoNumber;
  for (Lane& lane : lanes)
    lane.next = lane.field != nullptr && IsList(*lane.field) ? &lane : &lane + 1;
  node->lanes = std::move(lanes);
  return true;
}

// True where the members of a oneof are fields of it.
bool OrderedReader::IsClosed(const ProtoNode& from, std::int32_t oneof) const {
  const std::vector<std::uint32_t>& members = program_.oneofs[static_cast<std::size_t>(oneof)];
  return std::all_of(members.begin(), members.end(),
                     [&](std::uint32_t member) { return from.fields[member].oneof == oneof; });
}

// A field has one tag; a list of numbers may have two of the same number.
bool OrderedReader::AddTag(const ProtoTag& tag, Lane* lane) {
  if (lane->tag == kNoTag) {
    lane->number = tag.tag >> 3;
    lane->other_tag = tag.tag;
  } else if (lane->number != tag.tag >> 3 || lane->tag != lane->other_tag) {
    return false;
  }
  // Newer writers pack, and the tag of a run is the greater one.
  lane->tag = tag.tag;
  if (tag.is_run) lane->run_tag = tag.tag;
  return true;
}

OrderedReader::Step OrderedReader::StepOf(std::int32_t kind, bool has_column) {
  switch (kind) {
    case kProtoKindString:
      return has_column ? kText : kCheckText;
    case kProtoKindBytes:
      return has_column ? kBinary : kCheckBinary;
    case kProtoKindFixed32:
      return has_column ? kFixed32 : kCheckFixed32;
    case kProtoKindFixed64:
      return has_column ? kFixed64 : kCheckFixed64;
    case kProtoKindClosedEnum:
      return kClosedEnum;
    case kProtoKindMessage:
      return kMessage;
    default:
      break;
  }
  if (!has_column) return kCheckVarint;
  switch (kind) {
    case kProtoKindBool:
      return kBool;
    case kProtoKindInt64:
      return kInt64;
    case kProtoKindSint32:
      return kSint32;
    case kProtoKindSint64:
      return kSint64;
    default:
      return kInt32;
  }
}

void OrderedReader::MakeLane(const ProtoField& field, Lane* lane) {
  const bool has_column = field.column >= 0;
  lane->field = &field;
  lane->item = StepOf(field.kind, has_column);
  if (has_column) {
    lane->whole = &into_[static_cast<std::uint32_t>(field.column)];
    lane->value = &into_[field.ValueColumn()];
  }
  if (field.kind == kProtoKindMessage) {
    lane->child = &nodes_[static_cast<std::size_t>(field.child)];
    if (field.Has(kProtoFlagRaw) && has_column) lane->item = kRaw;
    const bool is_group = !field.Has(kProtoFlagMap) && (lane->tag & kWireMask) == kWireGroup;
    if (is_group) lane->item = kOther;
  }
  lane->step = lane->item;
  if (field.Has(kProtoFlagMap)) {
    lane->key = StepOf(field.key, has_column);
    lane->step = kEntry;
  }
  if (lane->run_tag != kNoTag || field.oneof >= 0 || lane->step == kClosedEnum) {
    lane->step = kSpecial;
  }
  if (lane->tag == kNoTag) lane->step = kOther;
  if (field.Has(kProtoFlagRequired)) {
    lane->end = kRequired;
  } else if (has_column) {
    const bool is_zero = field.kind == kProtoKindEnum && !field.Has(kProtoFlagPresence);
    lane->end = IsList(field) ? kClose : (is_zero ? kZero : kEmpty);
  }
}

bool OrderedReader::Read(Bytes payload, std::int32_t length) {
  if (nodes_.empty()) return false;
  end_ = payload + length;
  fields_left_ = FieldsMax(length);
  const Node& root = nodes_[0];
  return Spend(root.from->spend) && ReadMessage(root, payload, end_, 0) != nullptr;
}

Bytes OrderedReader::ReadMessage(const Node& root, Bytes at, Bytes limit, int depth) {
  const int base = depth;
  const Bytes end = end_;
  const Node* node = &root;
  const Lane* lane = root.lanes.data();
  std::uint64_t oneofs = 0;
  while (at != nullptr) [[likely]] {
    if (at >= limit) {
      if (at != limit || !EndMessage(*node, lane)) return nullptr;
      if (depth == base) return at;
      const Frame& outer = frames_[--depth];
      node = outer.node;
      lane = outer.lane;
      limit = outer.limit;
      oneofs = outer.oneofs;
      continue;
    }
    std::uint32_t tag = *at++;
    if (tag >= 0x80) [[unlikely]] {
      at = ReadShortVarint(at - 1, end, &tag);
      if (at == nullptr) return nullptr;
    }
    if (tag != lane->tag) [[unlikely]] {
      for (const std::uint32_t number = tag >> 3; lane->number < number; lane++) {
        if (!EndField(*lane)) return nullptr;
      }
      if (tag != lane->tag && tag != lane->other_tag) {
        at = tag < 8 || IsLate(*node, tag) ? nullptr : Skip(tag, at);
        continue;
      }
    }
    if (lane->step < kMessage) [[likely]] {
      at = ReadValue(lane->step, *lane, lane->value, at, depth);
      lane = lane->next;
    } else if (lane->step == kMessage) {
      const Frame outer = {node, lane->next, limit, oneofs};
      at = ReadHead(*lane, at, depth, &limit);
      if (at == nullptr) return nullptr;
      frames_[depth++] = outer;
      node = lane->child;
      lane = node->lanes.data();
      oneofs = 0;
    } else {
      const Point point = ReadSpecial(*lane, tag, at, depth, &oneofs);
      at = point.at;
      lane = point.lane;
    }
  }
  return nullptr;
}

bool OrderedReader::IsLate(const Node& node, std::uint32_t tag) {
  const std::vector<ProtoTag>& tags = node.from->tags;
  return std::binary_search(tags.begin(), tags.end(), ProtoTag{tag},
                            [](const ProtoTag& a, const ProtoTag& b) { return a.tag < b.tag; });
}

bool OrderedReader::EndField(const Lane& lane) {
  switch (lane.end) {
    case kNothing:
      return true;
    case kEmpty:
      return into_.AppendEmpty(*lane.whole);
    case kZero:
      return into_.AppendCell(*lane.whole, static_cast<std::uint32_t>(lane.field->zero));
    case kClose:
      return into_.CloseList(*lane.whole);
    default:
      return false;
  }
}

inline bool OrderedReader::EndMessage(const Node& node, const Lane* lane) {
  for (; lane->number != kNoNumber; lane++) {
    if (!EndField(*lane)) return false;
  }
  return node.column == nullptr || into_.CloseStruct(*node.column);
}

inline Bytes OrderedReader::ReadLength(Bytes at, Bytes end, std::uint32_t* length) {
  at = ReadShortVarint(at, end, length);
  return at != nullptr && *length <= static_cast<std::size_t>(end - at) ? at : nullptr;
}

[[gnu::always_inline]] inline Bytes OrderedReader::ReadHead(const Lane& lane, Bytes at, int depth,
                                                            Bytes* limit) {
  std::uint32_t length = 0;
  at = ReadLength(at, end_, &length);
  if (at == nullptr || depth >= kProtoLimitDepth || !Spend(lane.child->from->spend)) [[unlikely]]
    return nullptr;
  *limit = at + length;
  return at;
}

Bytes OrderedReader::ReadNested(const Lane& lane, Bytes at, int depth) {
  Bytes limit = nullptr;
  at = ReadHead(lane, at, depth, &limit);
  return at == nullptr ? nullptr : ReadMessage(*lane.child, at, limit, depth + 1);
}

[[gnu::always_inline]] inline Bytes OrderedReader::ReadValue(Step step, const Lane& lane,
                                                             Cursor* into, Bytes at, int depth) {
  const Bytes end = end_;
  std::uint64_t bits = 0;
  switch (step) {
    case kText: {
      if (at > last_short_ || *at > kShortText || !Columns::HasShortRoom(*into)) [[unlikely]]
        return ReadLongText(into, at);
      const std::uint32_t size = *at++;
      if (at + size > end) [[unlikely]]
        return nullptr;
      if (!Columns::AppendShort(*into, at, size) && !IsUtf8Beyond(at, size)) [[unlikely]]
        return nullptr;
      return at + size;
    }
    case kInt32:
      at = ReadSmallVarint(at, end, &bits);
      if (at == nullptr) [[unlikely]]
        return nullptr;
      return into_.AppendCell(*into, static_cast<std::uint32_t>(bits)) ? at : nullptr;
    case kInt64:
      at = ReadSmallVarint(at, end, &bits);
      if (at == nullptr) [[unlikely]]
        return nullptr;
      return into_.AppendCell(*into, bits) ? at : nullptr;
    case kCheckText: {
      if (at > last_short_ || *at > kShortText) [[unlikely]]
        return ReadLongText(nullptr, at);
      const std::uint32_t size = *at++;
      if (at + size > end) [[unlikely]]
        return nullptr;
      if (!IsShortAscii(at, size) && !IsUtf8Beyond(at, size)) [[unlikely]]
        return nullptr;
      return at + size;
    }
    case kCheckVarint:
      return ReadSmallVarint(at, end, &bits);
    case kBinary:
    case kSint32:
    case kSint64:
    case kBool:
    case kFixed32:
    case kFixed64:
    case kClosedEnum:
    case kRaw:
    case kEntry:
    case kCheckBinary:
    case kCheckFixed32:
    case kCheckFixed64:
    case kOther:
    case kMessage:
    case kSpecial:
      return ReadOther(step, lane, into, at, depth);
  }
  __builtin_unreachable();
}

Bytes OrderedReader::ReadItem(Step step, const Lane& lane, Cursor* into, Bytes at, int depth) {
  return ReadValue(step, lane, into, at, depth);
}

// Reads the steps of rarer kinds.
Bytes OrderedReader::ReadOther(Step step, const Lane& lane, Cursor* into, Bytes at, int depth) {
  std::uint32_t length = 0;
  std::uint64_t bits = 0;
  bool is_known = true;
  switch (step) {
    case kFixed32:
    case kCheckFixed32:
      return ReadFixed<std::uint32_t>(into, at);
    case kFixed64:
    case kCheckFixed64:
      return ReadFixed<std::uint64_t>(into, at);
    case kBinary:
    case kCheckBinary:
      at = ReadLength(at, end_, &length);
      if (at == nullptr) return nullptr;
      return into == nullptr || into_.AppendBinary(*into, at, length) ? at + length : nullptr;
    case kMessage:
      return ReadNested(lane, at, depth);
    case kRaw: {
      const Bytes next = ReadNested(lane, at, depth);
      if (next == nullptr) return nullptr;
      at = ReadLength(at, end_, &length);
      return into_.AppendBinary(*into, at, length) ? next : nullptr;
    }
    case kEntry:
      return ReadEntry(lane, at, depth);
    case kClosedEnum:
      return ReadEnum(lane, at, &is_known);
    default:
      break;
  }
  if (step != kBool && step != kSint32 && step != kSint64) return nullptr;
  at = ReadSmallVarint(at, end_, &bits);
  if (at == nullptr) return nullptr;
  const auto low = static_cast<std::uint32_t>(bits);
  const bool done = step == kBool     ? into_.AppendBool(*into, bits != 0)
                    : step == kSint32 ? into_.AppendCell(*into, low >> 1 ^ (0 - (low & 1U)))
                                      : into_.AppendCell(*into, Unzigzag(bits));
  return done ? at : nullptr;
}

template <typename T>
Bytes OrderedReader::ReadFixed(Cursor* into, Bytes at) {
  if (end_ - at < static_cast<std::ptrdiff_t>(sizeof(T))) return nullptr;
  T bits;
  std::memcpy(&bits, at, sizeof bits);
  return into == nullptr || into_.AppendCell(*into, bits) ? at + sizeof bits : nullptr;
}

Bytes OrderedReader::ReadLongText(Cursor* into, Bytes at) {
  std::uint32_t size = 0;
  at = ReadLength(at, end_, &size);
  if (at == nullptr) return nullptr;
  bool is_ascii = false;
  if (into == nullptr) {
    is_ascii = IsLongAscii(at, size);
  } else if (!into_.AppendText(*into, at, size, &is_ascii)) {
    return nullptr;
  }
  return is_ascii || IsUtf8Beyond(at, size) ? at + size : nullptr;
}

// Reads a number of a closed enum. The enum may lack it: then nothing is appended.
Bytes OrderedReader::ReadEnum(const Lane& lane, Bytes at, bool* is_known) {
  std::uint64_t bits = 0;
  at = ReadSmallVarint(at, end_, &bits);
  if (at == nullptr) return nullptr;
  const ProtoSymbol* const symbol = program_.FindSymbol(*lane.field, bits);
  *is_known = symbol != nullptr;
  if (symbol == nullptr || lane.value == nullptr) return at;
  return into_.AppendCell(*lane.value, symbol->index) ? at : nullptr;
}

OrderedReader::Point OrderedReader::ReadSpecial(const Lane& lane, std::uint32_t tag, Bytes at,
                                                int depth, std::uint64_t* oneofs) {
  if (tag == lane.run_tag) return {ReadRun(lane, at), lane.next};
  bool is_known = true;
  at = lane.item == kClosedEnum ? ReadEnum(lane, at, &is_known)
                                : ReadItem(lane.item, lane, lane.value, at, depth);
  // A number that the enum lacks leaves the field as it is.
  if (at == nullptr || !is_known) return {at, &lane};
  if (lane.oneof != 0) {
    if ((*oneofs & lane.oneof) != 0 || !Spend(lane.members)) return {nullptr, &lane};
    *oneofs |= lane.oneof;
  }
  return {at, lane.next};
}

// Reads a packed run of numbers.
Bytes OrderedReader::ReadRun(const Lane& lane, Bytes at) {
  std::uint32_t length = 0;
  at = ReadLength(at, end_, &length);
  if (at == nullptr) return nullptr;
  const Bytes limit = at + length;
  while (at != nullptr && at < limit) {
    at = ReadValue(lane.item, lane, lane.value, at, 0);
  }
  return at == limit ? at : nullptr;
}

// Reads a map entry that has its key and its value, in this order.
Bytes OrderedReader::ReadEntry(const Lane& lane, Bytes at, int depth) {
  std::uint32_t length = 0;
  at = ReadLength(at, end_, &length);
  if (at == nullptr || depth >= kProtoLimitDepth) return nullptr;
  const Bytes limit = at + length;
  const ProtoField& field = *lane.field;
  const std::uint32_t key_tag = 1U << 3 | WireOf(field.key);
  const std::uint32_t value_tag = 2U << 3 | WireOf(field.kind);
  if (at == limit || *at != key_tag) return nullptr;
  at = ReadItem(lane.key, lane, lane.whole == nullptr ? nullptr : lane.whole + 2, at + 1, depth);
  if (at == nullptr || at >= limit || *at != value_tag) return nullptr;
  bool is_known = true;
  at++;
  at = lane.item == kClosedEnum ? ReadEnum(lane, at, &is_known)
                                : ReadItem(lane.item, lane, lane.value, at, depth + 1);
  if (at != limit || !is_known) return nullptr;
  return lane.whole == nullptr || into_.CloseStruct(*(lane.whole + 1)) ? at : nullptr;
}

// Skips the value of an unknown field that is no group.
Bytes OrderedReader::Skip(std::uint32_t tag, Bytes at) {
  std::uint32_t length = 0;
  std::uint64_t bits = 0;
  switch (tag & kWireMask) {
    case kWireVarint:
      return ReadSmallVarint(at, end_, &bits);
    case kWireFixed64:
      return end_ - at < 8 ? nullptr : at + 8;
    case kWireFixed32:
      return end_ - at < 4 ? nullptr : at + 4;
    case kWireLength:
      at = ReadLength(at, end_, &length);
      return at == nullptr ? nullptr : at + length;
    default:
      return nullptr;
  }
}

}  // namespace millrace::kernel::codec
