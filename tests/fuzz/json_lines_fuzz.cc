// Any bytes as the JSON-lines file that a resumed run finds.
//
// The writer either refuses the file and leaves it unchanged, or keeps all its
// whole lines, cuts only the bytes after the last newline and appends.
#include <spdlog/spdlog.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/json_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const replicant::TemporaryFolder folder("json-lines-fuzz");
  spdlog::set_level(spdlog::level::off);
  const std::string_view before(reinterpret_cast<const char*>(data), size);
  const auto path = folder.path() / "metrics.jsonl";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << before;

  bool is_taken = true;
  try {
    replicant::metrics::JsonLinesWriter({path}).Write(
        replicant::metrics::JsonObject().Add("a", 1));
  } catch (const replicant::IoError&) {
    is_taken = false;
  }
  const std::string after = replicant::ReadFile(path);
  if (is_taken) {
    const size_t num_kept = before.rfind('\n') + 1;
    REPLICANT_CHECK(
        after == std::string(before.substr(0, num_kept)) + "{\"a\":1}\n",
        "a whole line changed");
  } else {
    REPLICANT_CHECK(after == before, "a refused file changed");
  }
  return 0;
}
