#include "binding/broker/values.h"

namespace millrace::binding {

bool Texts(const Call& call, std::size_t index, const char* name, std::vector<std::string>* out) {
  const napi_env env = call.env();
  bool is = false;
  std::uint32_t count = 0;
  if (napi_is_array(env, call[index], &is) != napi_ok || !is ||
      napi_get_array_length(env, call[index], &count) != napi_ok) {
    ThrowType(env, "%s: expected an array of strings", name);
    return false;
  }
  if (count > kTopicsMax) {
    Throw(env, kOutOfRange, "%s: %u entries, more than %zu", name, count, kTopicsMax);
    return false;
  }
  for (std::uint32_t i = 0; i < count; i++) {
    napi_value item = nullptr;
    std::size_t length = 0;
    if (napi_get_element(env, call[index], i, &item) != napi_ok ||
        napi_get_value_string_utf8(env, item, nullptr, 0, &length) != napi_ok ||
        length > kTextBytesMax) {
      ThrowType(env, "%s: expected an array of strings", name);
      return false;
    }
    std::string text(length + 1, '\0');
    napi_get_value_string_utf8(env, item, text.data(), length + 1, &length);
    text.resize(length);
    out->push_back(std::move(text));
  }
  return true;
}

bool PropertiesOf(const Call& call, std::size_t index, broker::Properties* out) {
  std::vector<std::string> texts;
  if (!Texts(call, index, "properties", &texts)) return false;
  if (texts.size() % 2 != 0) {
    Throw(call.env(), kOutOfRange, "properties: a name without a value");
    return false;
  }
  for (std::size_t i = 0; i + 1 < texts.size(); i += 2) out->emplace_back(texts[i], texts[i + 1]);
  return true;
}

bool PlacesOf(Call& call, std::size_t index, std::vector<broker::Place>* out) {
  std::vector<std::string> topics;
  Span<std::int32_t> partitions;
  Span<std::int64_t> offsets;
  if (!Texts(call, index, "topics", &topics) || !call.Array(index + 1, "partitions", &partitions) ||
      !call.Array(index + 2, "offsets", &offsets)) {
    return false;
  }
  if (partitions.size != topics.size() || offsets.size != topics.size()) {
    Throw(call.env(), kOutOfRange, "topics, partitions and offsets differ in length");
    return false;
  }
  for (std::size_t i = 0; i < topics.size(); i++) {
    out->push_back({std::move(topics[i]), partitions.data[i], offsets.data[i]});
  }
  return true;
}

napi_value ToValue(napi_env env, const std::string& text) {
  return ToText(env, text.data(), text.size());
}

napi_value ToValue(napi_env env, const broker::Event& event) {
  napi_value list = nullptr;
  napi_value flag = nullptr;
  napi_value topic = nullptr;
  napi_create_array_with_length(env, 5, &list);
  napi_get_boolean(env, event.fatal, &flag);
  napi_get_null(env, &topic);
  napi_set_element(env, list, 0, ToNumber(env, event.code));
  napi_set_element(env, list, 1, ToValue(env, event.message));
  napi_set_element(env, list, 2, flag);
  napi_set_element(env, list, 3, event.topic.empty() ? topic : ToValue(env, event.topic));
  napi_set_element(env, list, 4, ToNumber(env, event.partition));
  return list;
}

napi_value ToValue(napi_env env, const broker::Place& place) {
  napi_value list = nullptr;
  napi_value offset = nullptr;
  napi_create_array_with_length(env, 3, &list);
  napi_create_bigint_int64(env, place.offset, &offset);
  napi_set_element(env, list, 0, ToValue(env, place.topic));
  napi_set_element(env, list, 1, ToNumber(env, place.partition));
  napi_set_element(env, list, 2, offset);
  return list;
}

napi_value ToAnswer(napi_env env, const broker::Event& event, napi_value payload) {
  napi_value list = nullptr;
  napi_value none = nullptr;
  napi_create_array_with_length(env, 2, &list);
  napi_get_null(env, &none);
  napi_set_element(env, list, 0, event.code == 0 ? none : ToValue(env, event));
  napi_set_element(env, list, 1, payload == nullptr ? none : payload);
  return list;
}

napi_value ToConsumed(napi_env env, const broker::ConsumeOutcome& outcome, double took_ms,
                      std::int64_t ended_us) {
  napi_value receipts = nullptr;
  napi_create_array_with_length(env, 2 * outcome.receipts.size(), &receipts);
  std::uint32_t at = 0;
  for (const broker::ReceiptRun& run : outcome.receipts) {
    const double age_ms = static_cast<double>(ended_us - run.at_us) / 1000;
    napi_set_element(env, receipts, at++, ToNumber(env, run.rows));
    napi_set_element(env, receipts, at++, ToNumber(env, age_ms));
  }
  napi_value list = nullptr;
  napi_create_array_with_length(env, 6, &list);
  napi_set_element(env, list, 0, ToNumber(env, outcome.rows));
  napi_set_element(env, list, 1, ToList(env, outcome.ends));
  napi_set_element(env, list, 2, ToList(env, outcome.events));
  napi_set_element(env, list, 3, ToList(env, outcome.topics));
  napi_set_element(env, list, 4, ToNumber(env, took_ms));
  napi_set_element(env, list, 5, receipts);
  return list;
}

}  // namespace millrace::binding
