#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rpc/frame.h"
#include "base/rpc/wire.h"

// Messages of one part that declare their fields once, in the order of the
// wire:
//
//   struct Ack {
//     static constexpr std::string_view kName = "queue.ack";  // for errors
//     Verdict verdict = Verdict::kTaken;
//     uint64_t last = 0;
//     std::vector<uint64_t> dropped;
//
//     template <class V>
//     void Fields(V& v) {
//       v.Enum("verdict", &verdict, {"taken", "refused"});
//       v.Number("last", &last);
//       v.Check(last > 0, "field 'last' must not be 0");
//       v.Array("dropped", &dropped, /*max_count=*/4096);
//     }
//   };
//
//   Message message = EncodeMessage(ack);
//   Ack read = DecodeMessage<Ack>(message);
//
// `v` writes the fields, or reads and checks them; in a test it lists them, to
// compare them with the message table of the protocol
// (tests/support/list_fields.h). Fields() must not change the message itself.
//
//   Number    WireNumber; `note` says what a value means
//   Bool      one byte, 0 or 1
//   Enum      u8, a value for each name
//   String    of at most `max_bytes`
//   CutString the same; a longer text is cut when it is written
//   Line      the same, one line: see OneLine(); other bytes are refused
//   Array     numbers
//   List      u32 count, then the fields of each element, or what `each` adds
//   Map       a List by name, in ascending order of the names
//   Optional  bool, and if it is true the fields of the value
//   Check     refuses a message that was read: MESSAGE: TEXT
namespace replicant::rpc {

class FieldWriter {
 public:
  template <WireNumber T>
  void Number(std::string_view, const T* value, std::string_view = "") {
    writer_.Write(*value);
  }
  void Bool(std::string_view, const bool* value) { writer_.WriteBool(*value); }
  template <class E, size_t N>
  void Enum(std::string_view, const E* value, const std::string_view (&)[N]) {
    writer_.Write(static_cast<uint8_t>(*value));
  }
  void String(std::string_view, const std::string* value, uint32_t) {
    writer_.WriteString(*value);
  }
  void CutString(std::string_view, const std::string* value,
                 uint32_t max_bytes) {
    writer_.WriteString(std::string_view(*value).substr(0, max_bytes));
  }
  void Line(std::string_view, const std::string* value, uint32_t max_bytes) {
    writer_.WriteString(OneLine(*value, max_bytes));
  }
  template <WireNumber T>
  void Array(std::string_view, const std::vector<T>* values, uint32_t) {
    writer_.WriteArray<T>(*values);
  }
  template <class T, class F>
  void List(std::string_view, std::vector<T>* values, uint32_t, F each) {
    writer_.Write(static_cast<uint32_t>(values->size()));
    for (T& value : *values) each(value);
  }
  template <class T>
  void List(std::string_view name, std::vector<T>* values, uint32_t max_count) {
    List(name, values, max_count, [this](T& value) { value.Fields(*this); });
  }
  template <class T>
  void Map(std::string_view, std::map<std::string, T>* values, uint32_t,
           uint32_t) {
    writer_.Write(static_cast<uint32_t>(values->size()));
    for (auto& [name, value] : *values) {
      writer_.WriteString(name);
      value.Fields(*this);
    }
  }
  template <class T>
  void Optional(std::string_view, std::optional<T>* value) {
    writer_.WriteBool(value->has_value());
    if (*value) (*value)->Fields(*this);
  }
  template <class... A>
  void Check(bool, fmt::format_string<A...>, A&&...) {}

  Frame Finish() { return writer_.Finish(); }

 private:
  WireWriter writer_;
};

// All methods throw MalformedMessage, naming message and field.
class FieldReader {
 public:
  // Borrows both.
  FieldReader(std::string_view message, std::span<const std::byte> bytes)
      : message_(message), reader_(message, bytes) {}

  template <WireNumber T>
  void Number(std::string_view name, T* value, std::string_view = "") {
    *value = reader_.Read<T>(name);
  }
  void Bool(std::string_view name, bool* value) {
    *value = reader_.ReadBool(name);
  }
  template <class E, size_t N>
  void Enum(std::string_view name, E* value, const std::string_view (&)[N]) {
    const auto number = reader_.Read<uint8_t>(name);
    Check(number < N, "field '{}': {} is not in [0, {}]", name, number, N - 1);
    *value = static_cast<E>(number);
  }
  void String(std::string_view name, std::string* value, uint32_t max_bytes) {
    *value = reader_.ReadString(name, max_bytes);
  }
  void CutString(std::string_view name, std::string* value,
                 uint32_t max_bytes) {
    String(name, value, max_bytes);
  }
  void Line(std::string_view name, std::string* value, uint32_t max_bytes);
  template <WireNumber T>
  void Array(std::string_view name, std::vector<T>* values,
             uint32_t max_count) {
    *values = reader_.ReadArray<T>(name, max_count);
  }
  template <class T, class F>
  void List(std::string_view name, std::vector<T>* values, uint32_t max_count,
            F each) {
    for (uint32_t left = Count(name, max_count); left > 0; --left) {
      each(values->emplace_back());
    }
  }
  template <class T>
  void List(std::string_view name, std::vector<T>* values, uint32_t max_count) {
    List(name, values, max_count, [this](T& value) { value.Fields(*this); });
  }
  template <class T>
  void Map(std::string_view name, std::map<std::string, T>* values,
           uint32_t max_count, uint32_t max_name_bytes) {
    for (uint32_t left = Count(name, max_count); left > 0; --left) {
      std::string key = reader_.ReadString("name", max_name_bytes);
      T value;
      value.Fields(*this);
      // as they are written; so none comes twice
      Check(values->empty() || key > values->rbegin()->first,
            "field 'name' is not in ascending order");
      values->emplace_hint(values->end(), std::move(key), std::move(value));
    }
  }
  template <class T>
  void Optional(std::string_view name, std::optional<T>* value) {
    if (reader_.ReadBool(name)) value->emplace().Fields(*this);
  }
  template <class... A>
  void Check(bool is_good, fmt::format_string<A...> text, A&&... arguments) {
    if (is_good) [[likely]]
      return;
    Refuse(fmt::format(text, std::forward<A>(arguments)...));
  }

  void Finish() const { reader_.Finish(); }

 private:
  uint32_t Count(std::string_view name, uint32_t max_count);
  [[noreturn]] void Refuse(const std::string& text) const;

  std::string_view message_;
  WireReader reader_;
};

// One part. `others` are further arguments of Fields(): what the part holds in
// another form than the message. Throws InvalidArgument for a string or an
// array of 2^32 elements.
template <class M, class... A>
Frame EncodePart(const M& message, A*... others) {
  FieldWriter writer;
  // which changes nothing
  const_cast<M&>(message).Fields(writer, others...);
  return writer.Finish();
}

template <class M>
Message EncodeMessage(const M& message) {
  return MakeMessage(EncodePart(message));
}

// Throws MalformedMessage, naming M::kName, for bytes that break the
// declaration, and for bytes after the last field.
template <class M, class... A>
M DecodePart(std::span<const std::byte> bytes, A*... others) {
  M message;
  FieldReader reader(M::kName, bytes);
  message.Fields(reader, others...);
  reader.Finish();
  return message;
}

template <class M>
M DecodeMessage(std::span<const Frame> payload) {
  CheckNumParts(M::kName, payload, 1);
  return DecodePart<M>(payload[0].bytes());
}

// A message whose other parts the caller reads.
template <class M>
M DecodeFirstPart(std::span<const Frame> payload) {
  if (payload.empty()) {
    throw MalformedMessage(fmt::format("{}: no parts", M::kName));
  }
  return DecodePart<M>(payload[0].bytes());
}

}  // namespace replicant::rpc
