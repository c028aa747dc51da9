// Loads a PJRT plugin and prints its description of itself and its devices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "engine/pjrt/client.h"

namespace replicant::pjrt {
namespace {

void Print(const std::string& file, const std::vector<std::string>& texts) {
  const Plugin& plugin = Plugin::Load(file);
  fmt::print("{}: version {} of PJRT\n", plugin.file(), plugin.version());
  for (const auto& [name, value] : plugin.attributes()) {
    fmt::print("{}: {}\n", name, value);
  }
  // shown even if there is no device
  std::fflush(stdout);
  std::vector<ClientOption> options;
  options.reserve(texts.size());
  for (const std::string& text : texts) {
    options.push_back(ParseClientOption(text));
  }
  const Client client(plugin, options);
  fmt::print("platform: {} ({})\n", client.platform(),
             client.platform_version());
  for (int i = 0; i < client.num_devices(); ++i) {
    fmt::print("device {}: {}, id {}\n", i, client.device_kind(i),
               client.device_id(i));
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Prints version, attributes and devices of a PJRT plugin.");
  std::string file;
  std::vector<std::string> options;
  app.add_option("plugin", file, "file of the plugin")->required();
  app.add_option("options", options, "NAME=VALUE of the plugin's client");
  CLI11_PARSE(app, argc, argv);
  Print(file, options);
  return 0;
}

}  // namespace
}  // namespace replicant::pjrt

int main(int argc, char** argv) {
  try {
    return replicant::pjrt::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "pjrt_info: {}\n", e.what());
    return 1;
  }
}
