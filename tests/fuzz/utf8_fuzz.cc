// Any bytes as text for readers that require UTF-8.
//
// Another implementation (the JSON library's) accepts the result of
// ToValidUtf8(), and a second call leaves it unchanged. A terminal line is
// never wider than requested and holds no control character.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/metrics/json_lines.h"
#include "base/utf8.h"
#include "fleet/terminal_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int columns = data[0] % 32;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1,
                              size - 1);

  const std::string valid = replicant::ToValidUtf8(text);
  REPLICANT_CHECK(replicant::ToValidUtf8(valid) == valid, "unstable");
  REPLICANT_CHECK(replicant::IsUtf8(text) == (valid == text), "disagree");

  // dump() throws for a string that is not valid UTF-8
  const std::string quoted = nlohmann::json(valid).dump();
  REPLICANT_CHECK(
      nlohmann::json(std::string(text))
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              .size() <= quoted.size(),
      "a well-formed character was replaced");
  const std::string line =
      replicant::metrics::JsonObject().Add(text, text).ToString();
  REPLICANT_CHECK(line.find('\n') == std::string::npos, "two lines");
  const nlohmann::json object = nlohmann::json::parse(line);
  REPLICANT_CHECK(object.at(valid) == valid, "read back as other text");

  const std::string fitted = replicant::fleet::FitToColumns(text, columns);
  int num_characters = 0;
  for (const char c : fitted) {
    REPLICANT_CHECK(static_cast<uint8_t>(c) >= 0x20 && c != 0x7F, "control");
    if ((c & 0xC0) != 0x80) ++num_characters;
  }
  REPLICANT_CHECK_LE(num_characters, columns);
  return 0;
}
