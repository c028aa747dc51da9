#include "base/tensor/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/tensor/safetensors_types.h"

namespace replicant {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

// Follows the JSON text and accepts only
//   {"__metadata__": {"key": "text", ...},
//    "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// A state names the next expected element. No tree is built. The values of
// unknown fields are passed over, whatever they are.
class HeaderSax : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderSax(const std::string& where) : where_(where) {}

  SafetensorsHeader TakeHeader() { return std::move(header_); }

  bool start_object(std::size_t /*count*/) override {
    if (state_ == State::kSkip) {
      ++skip_depth_;
    } else if (state_ == State::kStart) {
      state_ = State::kName;
    } else if (state_ == State::kTensor) {
      state_ = State::kField;
    } else if (state_ == State::kMetadata) {
      state_ = State::kMetadataName;
    } else {
      Unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (state_ == State::kSkip) return true;
    if (state_ == State::kName) {
      BeginEntry(text);
    } else if (state_ == State::kField) {
      BeginField(text);
    } else {
      metadata_name_ = text;
      if (header_.metadata.contains(text)) {
        Fail(fmt::format("two metadata entries are named '{}'", text));
      }
      state_ = State::kMetadataValue;
    }
    return true;
  }

  bool string(string_t& text) override {
    if (state_ == State::kSkip) return Pass();
    if (state_ == State::kDType) {
      info_.dtype_name = text;
      state_ = State::kField;
    } else if (state_ == State::kMetadataValue) {
      header_.metadata[metadata_name_] = text;
      state_ = State::kMetadataName;
    } else {
      Unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t /*count*/) override {
    if (state_ == State::kSkip) {
      ++skip_depth_;
      return true;
    }
    if (state_ == State::kShape) {
      state_ = State::kShapeItem;
    } else if (state_ == State::kOffsets) {
      state_ = State::kOffsetsItem;
    } else {
      Unexpected("an array");
    }
    numbers_size_ = 0;
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (state_ == State::kSkip) return Pass();
    const bool is_shape = state_ == State::kShapeItem;
    if (!is_shape && state_ != State::kOffsetsItem) Unexpected("a number");
    const size_t max_size = is_shape ? Shape::kMaxRank : 2;
    if (numbers_size_ == max_size) {
      Fail(fmt::format("{} has more than {} numbers; at most {} are allowed",
                       is_shape ? "shape" : "data_offsets", max_size,
                       max_size));
    }
    if (is_shape && number > uint64_t{Shape::kMaxElements}) {
      Fail(fmt::format("dimension {}; at most {} is allowed", number,
                       int64_t{Shape::kMaxElements}));
    }
    numbers_[numbers_size_++] = number;
    return true;
  }

  bool end_array() override {
    if (state_ == State::kSkip) return EndSkipped();
    if (state_ == State::kShapeItem) {
      info_.shape = TakeShape();
    } else {
      if (numbers_size_ != 2) Fail("data_offsets needs two numbers");
      info_.begin = numbers_[0];
      info_.end = numbers_[1];
    }
    state_ = State::kField;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kSkip) return EndSkipped();
    if (state_ == State::kField) EndEntry();
    info_ = {};
    // both end in the object of names; its own end is the last event
    state_ = State::kName;
    return true;
  }

  bool null() override {
    if (state_ == State::kSkip) return Pass();
    if (state_ != State::kMetadata) Unexpected("null");
    // no metadata
    info_ = {};
    state_ = State::kName;
    return true;
  }
  bool boolean(bool /*value*/) override {
    return state_ == State::kSkip ? Pass() : Unexpected("a boolean");
  }
  bool number_integer(number_integer_t /*value*/) override {
    return state_ == State::kSkip ? Pass() : Unexpected("a negative number");
  }
  bool number_float(number_float_t /*value*/,
                    const string_t& /*text*/) override {
    return state_ == State::kSkip
               ? Pass()
               : Unexpected("a number that is not whole or too large");
  }
  bool binary(binary_t& /*value*/) override { Unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    throw IoError(
        fmt::format("{}: the safetensors header is not valid JSON at byte {}",
                    where_, position));
  }

 private:
  enum class State {
    kStart,
    kName,
    kTensor,
    kField,
    kDType,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetsItem,
    kMetadata,
    kMetadataName,
    kMetadataValue,
    kSkip,
  };

  void BeginEntry(const std::string& name) {
    if (!names_.insert(name).second) {
      Fail(fmt::format("two entries are named '{}'", name));
    }
    info_ = {};
    info_.name = name;
    fields_.clear();
    state_ = name == kMetadataKey ? State::kMetadata : State::kTensor;
  }

  void BeginField(const std::string& field) {
    if (field == "dtype") {
      state_ = State::kDType;
    } else if (field == "shape") {
      state_ = State::kShape;
    } else if (field == "data_offsets") {
      state_ = State::kOffsets;
    } else {
      state_ = State::kSkip;
      return;
    }
    if (!fields_.insert(field).second) {
      Fail(fmt::format("second field '{}'", field));
    }
  }

  // A value inside an unknown field, or its only one.
  bool Pass() {
    if (skip_depth_ == 0) state_ = State::kField;
    return true;
  }
  bool EndSkipped() {
    --skip_depth_;
    return Pass();
  }

  void EndEntry() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) {
        Fail(fmt::format("the field '{}' is missing", field));
      }
    }
    header_.tensors.push_back(info_);
  }

  Shape TakeShape() const {
    std::array<int64_t, Shape::kMaxRank> dims{};
    for (size_t i = 0; i < numbers_size_; ++i) {
      dims[i] = static_cast<int64_t>(numbers_[i]);
    }
    try {
      return Shape(std::span(dims).first(numbers_size_));
    } catch (const ShapeError& e) {
      Fail(e.what());
    }
  }

  // Throws; bool for callers that return it.
  [[noreturn]] bool Unexpected(std::string_view what) const {
    // indexed by State
    static constexpr std::string_view kExpected[] = {
        "an object",         "a name",
        "a tensor's object", "a field",
        "a string as dtype", "an array as shape",
        "a whole number",    "an array as data_offsets",
        "a whole number",    "an object as metadata",
        "a metadata name",   "a string as metadata"};
    Fail(fmt::format("found {}, expected {}", what,
                     kExpected[static_cast<size_t>(state_)]));
  }
  [[noreturn]] void Fail(std::string_view problem) const {
    const std::string entry =
        info_.name.empty() ? "" : fmt::format(", entry '{}'", info_.name);
    throw IoError(
        fmt::format("{}: safetensors header{}: {}", where_, entry, problem));
  }

  const std::string& where_;
  SafetensorsHeader header_;
  std::set<std::string> names_;
  State state_ = State::kStart;
  // the entry being read
  SafetensorsInfo info_;
  std::set<std::string> fields_;
  std::string metadata_name_;
  uint64_t skip_depth_ = 0;  // brackets open in an unknown field
  // the array being read
  std::array<uint64_t, Shape::kMaxRank> numbers_{};
  size_t numbers_size_ = 0;
};

// Sorts the tensors by their data and throws IoError unless they cover
// [0, data_bytes) without gaps and overlaps, each with the size of its shape.
void CheckLayout(std::vector<SafetensorsInfo>& tensors, uint64_t data_bytes,
                 const std::string& where) {
  std::ranges::sort(tensors, {}, [](const SafetensorsInfo& info) {
    return std::tie(info.begin, info.end, info.name);
  });
  uint64_t position = 0;
  for (const SafetensorsInfo& info : tensors) {
    if (info.begin > info.end || info.end > data_bytes) {
      throw IoError(fmt::format(
          "{}: tensor '{}' lies at bytes [{}, {}) of the data, which has {}",
          where, info.name, info.begin, info.end, data_bytes));
    }
    if (info.begin != position) {
      throw IoError(fmt::format(
          "{}: tensor '{}' begins at byte {} of the data, but the previous "
          "tensor ends at {}; gaps and overlaps are not allowed",
          where, info.name, info.begin, position));
    }
    const SafetensorsType* const type = FindSafetensorsType(info.dtype_name);
    if (type != nullptr) {
      const auto size = static_cast<uint64_t>(info.shape.num_elements());
      // no overflow: at most 2^60 elements
      const uint64_t size_bytes =
          type->bits < 8 ? size * type->bits / 8 : size * (type->bits / 8);
      if (size_bytes != info.end - info.begin) {
        throw IoError(fmt::format(
            "{}: tensor '{}' of {} {} needs {} bytes, but its data_offsets "
            "give {}",
            where, info.name, info.dtype_name, info.shape.ToString(),
            size_bytes, info.end - info.begin));
      }
    }
    position = info.end;
  }
  if (position != data_bytes) {
    throw IoError(
        fmt::format("{}: the tensors end at byte {} of the data, which has {}",
                    where, position, data_bytes));
  }
}

std::string Quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    throw InvalidArgument(
        fmt::format("safetensors: name or metadata '{}' is not UTF-8", text));
  }
}

}  // namespace

SafetensorsHeader ParseSafetensorsHeader(std::string_view json,
                                         uint64_t data_bytes,
                                         const std::string& where) {
  // the JSON parser would also take a byte order mark
  const std::string_view blanks =
      json.substr(0, std::min(json.find_first_not_of(" \t\r\n"), json.size()));
  if (!json.substr(blanks.size()).starts_with('{')) {
    throw IoError(fmt::format(
        "{}: the safetensors header does not start with '{{'", where));
  }
  // the JSON parser reads a NUL as the end and would skip the bytes after it
  const size_t nul = json.find('\0');
  if (nul != std::string_view::npos) {
    throw IoError(
        fmt::format("{}: the safetensors header is not valid JSON at byte {}",
                    where, nul + 1));
  }
  HeaderSax sax(where);
  Json::sax_parse(json, &sax);
  SafetensorsHeader header = sax.TakeHeader();
  CheckLayout(header.tensors, data_bytes, where);
  return header;
}

std::string FormatSafetensorsHeader(const SafetensorsHeader& header) {
  std::vector<std::string> entries;
  if (!header.metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [name, value] : header.metadata) {
      pairs.push_back(Quoted(name) + ":" + Quoted(value));
    }
    entries.push_back(
        fmt::format("\"{}\":{{{}}}", kMetadataKey, fmt::join(pairs, ",")));
  }
  for (const SafetensorsInfo& info : header.tensors) {
    entries.push_back(
        fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                    Quoted(info.name), info.dtype_name, info.shape.ToString(),
                    info.begin, info.end));
  }
  std::string json = fmt::format("{{{}}}", fmt::join(entries, ","));
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

}  // namespace replicant
