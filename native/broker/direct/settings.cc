#include "broker/direct/settings.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace millrace::broker::direct {
namespace {

constexpr std::string_view kSchemeEnd = "://";

// One entry of the list of brokers: scheme, host, port; the host may be an address in brackets.
bool ReadEndpoint(std::string_view text, Endpoint* out) {
  if (const std::size_t at = text.find(kSchemeEnd); at != std::string_view::npos)
    text.remove_prefix(at + kSchemeEnd.size());
  std::string_view port;
  const std::size_t close = text.find(']');
  if (text.starts_with('[') && close != std::string_view::npos) {
    out->host = text.substr(1, close - 1);
    if (text.substr(close + 1).starts_with(':')) port = text.substr(close + 2);
  } else {
    const std::size_t colon = text.rfind(':');
    out->host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon + 1);
  }
  if (!port.empty()) {
    const long number = std::strtol(std::string(port).c_str(), nullptr, 10);
    if (number < 1 || number > 65535) return false;
    out->port = static_cast<std::uint16_t>(number);
  }
  return !out->host.empty();
}

bool ReadEndpoints(std::string_view text, std::vector<Endpoint>* out) {
  out->clear();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    Endpoint endpoint;
    if (!one.empty()) {
      if (!ReadEndpoint(one, &endpoint)) return false;
      out->push_back(std::move(endpoint));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return !out->empty();
}

template <typename T>
void ReadNumber(const std::string& text, std::int64_t least, std::int64_t greatest, T* out) {
  const long long value = std::strtoll(text.c_str(), nullptr, 10);
  *out = static_cast<T>(std::clamp<std::int64_t>(value, least, greatest));
}

struct NumberProperty {
  std::string_view name;
  std::int64_t least;
  void (*set)(Settings*, const std::string&, std::int64_t least);
};

template <auto Field>
void SetNumber(Settings* to, const std::string& text, std::int64_t least) {
  ReadNumber(text, least, INT32_MAX, &(to->*Field));
}
template <auto Field>
void SetLimit(Settings* to, const std::string& text, std::int64_t least) {
  ReadNumber(text, least, INT32_MAX, &(to->fetch.*Field));
}

constexpr NumberProperty kNumbers[] = {
    {"fetch.wait.max.ms", 0, SetLimit<&wire::FetchLimits::wait_ms>},
    {"fetch.min.bytes", 1, SetLimit<&wire::FetchLimits::bytes_min>},
    {"fetch.max.bytes", 1, SetLimit<&wire::FetchLimits::bytes_max>},
    {"max.partition.fetch.bytes", 1, SetLimit<&wire::FetchLimits::partition_bytes_max>},
    {"fetch.message.max.bytes", 1, SetLimit<&wire::FetchLimits::partition_bytes_max>},
    {"message.max.bytes", 1000, SetNumber<&Settings::message_bytes_max>},
    {"receive.message.max.bytes", 1000, SetNumber<&Settings::response_bytes_max>},
    {"socket.timeout.ms", 10, SetNumber<&Settings::request_timeout_ms>},
    {"socket.connection.setup.timeout.ms", 1000, SetNumber<&Settings::connect_timeout_ms>},
    {"reconnect.backoff.ms", 1, SetNumber<&Settings::reconnect_ms>},
    {"reconnect.backoff.max.ms", 1, SetNumber<&Settings::reconnect_max_ms>},
    {"topic.metadata.refresh.interval.ms", -1, SetNumber<&Settings::metadata_ms>},
};

struct TextProperty {
  std::string_view name;
  std::string* (*field)(Settings*);
};

constexpr TextProperty kTexts[] = {
    {"client.id", [](Settings* to) { return &to->client_id; }},
    {"sasl.mechanism", [](Settings* to) { return &to->sasl.mechanism; }},
    {"sasl.mechanisms", [](Settings* to) { return &to->sasl.mechanism; }},
    {"sasl.username", [](Settings* to) { return &to->sasl.user; }},
    {"sasl.password", [](Settings* to) { return &to->sasl.password; }},
    {"ssl.ca.location", [](Settings* to) { return &to->tls.ca_location; }},
    {"ssl.ca.pem", [](Settings* to) { return &to->tls.ca_pem; }},
    {"ssl.certificate.location", [](Settings* to) { return &to->tls.certificate_location; }},
    {"ssl.certificate.pem", [](Settings* to) { return &to->tls.certificate_pem; }},
    {"ssl.key.location", [](Settings* to) { return &to->tls.key_location; }},
    {"ssl.key.pem", [](Settings* to) { return &to->tls.key_pem; }},
    {"ssl.key.password", [](Settings* to) { return &to->tls.key_password; }},
    {"ssl.keystore.location", [](Settings* to) { return &to->tls.keystore_location; }},
    {"ssl.keystore.password", [](Settings* to) { return &to->tls.keystore_password; }},
};

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// A word as librdkafka compares it: without blanks before it, in lower case.
std::string WordOf(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  std::string word(text);
  for (char& one : word) {
    if (one >= 'A' && one <= 'Z') one = static_cast<char>(one - 'A' + 'a');
  }
  return word;
}

// Reads one of two lists of words. False for any other, so that a value that is not understood
// never turns a check off.
bool ReadEither(const std::string& word, std::initializer_list<std::string_view> yes,
                std::initializer_list<std::string_view> no, bool* out) {
  *out = IsOneOf(word, yes);
  return *out || IsOneOf(word, no);
}

bool ReadFlag(const std::string& word, bool* out) {
  return ReadEither(word, {"true", "t", "1"}, {"false", "f", "0"}, out);
}

bool ReadProtocol(const std::string& word, Settings* out) {
  out->tls.is_on = IsOneOf(word, {"ssl", "sasl_ssl"});
  out->sasl.is_on = IsOneOf(word, {"sasl_plaintext", "sasl_ssl"});
  return out->tls.is_on || out->sasl.is_on || word == "plaintext";
}

bool ReadReset(const std::string& word, Settings* out) {
  const bool is_earliest = IsOneOf(word, {"smallest", "earliest", "beginning"});
  out->reset = is_earliest ? Reset::kEarliest : word == "error" ? Reset::kError : Reset::kLatest;
  return is_earliest || IsOneOf(word, {"error", "largest", "latest", "end"});
}

struct WordProperty {
  std::string_view name;
  // False for a word that is not one of the property.
  bool (*read)(const std::string& word, Settings* to);
};

constexpr WordProperty kWords[] = {
    {"security.protocol", ReadProtocol},
    {"auto.offset.reset", ReadReset},
    {"enable.ssl.certificate.verification",
     [](const std::string& word, Settings* to) { return ReadFlag(word, &to->tls.verifies); }},
    {"ssl.endpoint.identification.algorithm",
     [](const std::string& word, Settings* to) {
       return ReadEither(word, {"https"}, {"none"}, &to->tls.checks_name);
     }},
    {"socket.keepalive.enable",
     [](const std::string& word, Settings* to) { return ReadFlag(word, &to->keeps_alive); }},
    {"enable.partition.eof",
     [](const std::string& word, Settings* to) { return ReadFlag(word, &to->reports_ends); }},
    {"isolation.level",
     [](const std::string& word, Settings* to) {
       return ReadEither(word, {"read_committed"}, {"read_uncommitted"}, &to->committed_only);
     }},
};

// Reads a property whose values are words. False, with `error` set, for a word that is not one of
// them; any other property is left to the caller.
bool ReadWord(const std::string& name, const std::string& value, Settings* out,
              std::string* error) {
  for (const WordProperty& property : kWords) {
    if (property.name != name || property.read(WordOf(value), out)) continue;
    *error = "the value of " + name + " is not one that librdkafka has";
    return false;
  }
  return true;
}

// Limits that follow from others where they are not given, as in librdkafka: a fetch has room for
// the greatest message and fits in the queue, and a response has room for a fetch and its framing.
void DeriveLimits(const Properties& properties, Settings* out) {
  const auto has = [&](std::string_view name) {
    return std::any_of(properties.begin(), properties.end(),
                       [&](const auto& one) { return one.first == name; });
  };
  constexpr std::int64_t kFramingBytes = 512;
  std::int64_t fetch_bytes = out->fetch.bytes_max;
  if (!has("fetch.max.bytes")) {
    fetch_bytes = std::min(fetch_bytes, static_cast<std::int64_t>(out->queue_bytes_max));
    fetch_bytes = std::max<std::int64_t>(fetch_bytes, out->message_bytes_max);
    out->fetch.bytes_max = static_cast<std::int32_t>(fetch_bytes);
  }
  if (has("receive.message.max.bytes")) return;
  const std::int64_t response = std::min<std::int64_t>(fetch_bytes + kFramingBytes, INT32_MAX);
  out->response_bytes_max = std::max(out->response_bytes_max, static_cast<std::int32_t>(response));
}

}  // namespace

bool ReadSettings(const Properties& properties, Settings* out, std::string* error) {
  for (const auto& [name, value] : properties) {
    if (!ReadWord(name, value, out, error)) return false;
    for (const NumberProperty& number : kNumbers) {
      if (number.name == name) number.set(out, value, number.least);
    }
    for (const TextProperty& text : kTexts) {
      if (text.name == name) *text.field(out) = value;
    }
    if (name == "queued.max.messages.kbytes") {
      ReadNumber(value, 1, INT32_MAX, &out->queue_bytes_max);
      out->queue_bytes_max *= 1024;
    } else if (name == "metadata.broker.list" || name == "bootstrap.servers") {
      if (!ReadEndpoints(value, &out->bootstrap)) {
        *error = name + " is not host:port with commas between";
        return false;
      }
    }
  }
  if (out->bootstrap.empty()) {
    *error = "no brokers are given";
    return false;
  }
  DeriveLimits(properties, out);
  return true;
}

}  // namespace millrace::broker::direct
