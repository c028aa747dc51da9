// Any bytes as configuration files and overrides. The loader returns a
// configuration or throws ConfigError; the result reads back equal after it is
// written as YAML.
//
// Input: files separated by lines "===". The first is run.yaml, the others are
// base0.yaml, base1.yaml, ...; a part that starts with "--set " is an override.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/config/load.h"
#include "base/error.h"
#include "tests/base/config/sample_config.h"

namespace replicant::config {
namespace {

using testing::SampleConfig;

struct Input {
  std::map<std::string, std::string> files;
  std::vector<std::string> overrides;
};

Input SplitInput(std::string_view bytes) {
  constexpr std::string_view kSeparator = "\n===\n";
  constexpr std::string_view kSet = "--set ";
  Input input;
  while (true) {
    const size_t end = bytes.find(kSeparator);
    const std::string_view part = bytes.substr(0, end);
    if (part.starts_with(kSet)) {
      input.overrides.emplace_back(part.substr(kSet.size()));
    } else if (input.files.empty()) {
      input.files["run.yaml"] = part;
    } else {
      const size_t number = input.files.size() - 1;
      input.files["base" + std::to_string(number) + ".yaml"] = part;
    }
    if (end == std::string_view::npos) return input;
    bytes.remove_prefix(end + kSeparator.size());
  }
}

void TestOneInput(std::string_view bytes) {
  const Input input = SplitInput(bytes);
  const auto read_file = [&input](const std::filesystem::path& path) {
    const auto file = input.files.find(path.string());
    if (file == input.files.end()) throw IoError("no such file");
    return file->second;
  };
  Loaded<SampleConfig> first;
  try {
    first = Load<SampleConfig>(
        Document::FromFile("run.yaml", input.overrides, read_file));
  } catch (const ConfigError&) {
    return;
  }
  const auto second = Load<SampleConfig>(
      Document::FromText("resolved.yaml", first.resolved_yaml));
  REPLICANT_CHECK(second.config == first.config, "{}", first.resolved_yaml);
  REPLICANT_CHECK_EQ(second.resolved_yaml, first.resolved_yaml);
}

}  // namespace
}  // namespace replicant::config

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  replicant::config::TestOneInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
