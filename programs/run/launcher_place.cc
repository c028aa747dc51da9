#include "programs/run/launcher_place.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fleet/protocol/heartbeat_sender.h"

namespace replicant::programs {
namespace {

using nlohmann::json;

// Ports for the jobs of Slurm, below those that systems hand out by themselves.
constexpr int64_t kFirstSlurmPort = 20000;
constexpr int64_t kNumSlurmPorts = 10000;

int64_t ParseVariable(const char* name, const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) {
    throw ConfigError(
        fmt::format("{}='{}': want a number of 0 or more", name, text));
  }
  return value;
}

// The place that two numbers give.
struct Names {
  const char* rank;
  const char* size;
};
std::optional<LauncherPlace> PlaceOf(const Environment& environment,
                                     const Names& names) {
  const auto rank = environment(names.rank);
  const auto size = environment(names.size);
  if (!rank || !size) return std::nullopt;
  const int64_t index = ParseVariable(names.rank, *rank);
  const int64_t count = ParseVariable(names.size, *size);
  if (index >= count) {
    throw ConfigError(fmt::format("{}={}: want less than {}={}", names.rank,
                                  index, names.size, count));
  }
  return LauncherPlace{
      .index = static_cast<int>(index),
      .num_workers = static_cast<int>(count),
      .rendezvous = {},
      .source = fmt::format("{} and {}", names.rank, names.size)};
}

// "rack0n07.site" of "rack[0-1]n[07-09,12].site,login".
std::string FirstHost(const char* name, const std::string& nodes) {
  std::string host;
  size_t at = 0;
  while (at < nodes.size() && nodes[at] != ',') {
    if (nodes[at] != '[') {
      host += nodes[at++];
      continue;
    }
    const size_t end = nodes.find(']', at);
    const size_t first_end = nodes.find_first_not_of("0123456789", at + 1);
    if (end == std::string::npos || first_end == at + 1 ||
        std::string_view(",-]").find(nodes[first_end]) ==
            std::string_view::npos) {
      host.clear();
      break;
    }
    host += nodes.substr(at + 1, first_end - at - 1);
    at = end + 1;
  }
  if (host.empty() || host.find(']') != std::string::npos) {
    throw ConfigError(fmt::format(
        "{}='{}': want a list of hosts such as rack[0-1]n[01-04],login", name,
        nodes));
  }
  return host;
}

std::optional<LauncherPlace> PlaceOfTensorFlow(const Environment& environment) {
  const auto text = environment("TF_CONFIG");
  if (!text) return std::nullopt;
  try {
    const json all = json::parse(*text);
    const json& cluster = all.at("cluster");
    std::vector<std::string> workers =
        cluster.value("chief", std::vector<std::string>());
    const size_t num_chiefs = workers.size();
    for (const std::string& address :
         cluster.value("worker", std::vector<std::string>())) {
      workers.push_back(address);
    }
    const std::string type = all.at("task").at("type");
    const size_t index = all.at("task").at("index");
    LauncherPlace place{.role = "worker",
                        .index = static_cast<int>(index),
                        .num_workers = static_cast<int>(workers.size()),
                        .rendezvous = {},
                        .source = "TF_CONFIG"};
    size_t count = workers.size();
    if (type == "ps") {
      place.role = "server";
      count = cluster.at("ps").size();
    } else if (type == "worker") {
      place.index += static_cast<int>(num_chiefs);
    } else if (type != "chief") {
      throw ConfigError(fmt::format(
          "TF_CONFIG: task type '{}'; want chief, worker or ps", type));
    }
    if (static_cast<size_t>(place.index) >= count) {
      throw ConfigError(fmt::format(
          "TF_CONFIG: task {} {} is not in the cluster", type, index));
    }
    if (!workers.empty()) place.rendezvous = "tcp://" + workers[0];
    return place;
  } catch (const json::exception& e) {
    throw ConfigError(fmt::format("TF_CONFIG: {}", e.what()));
  }
}

std::optional<LauncherPlace> PlaceOfTorch(const Environment& environment) {
  auto place = PlaceOf(environment, {"RANK", "WORLD_SIZE"});
  const auto host = environment("MASTER_ADDR");
  const auto port = environment("MASTER_PORT");
  if (!place || !host || !port) return place;
  // torchrun's own store listens at the port itself
  const bool is_taken =
      environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  place->rendezvous =
      fmt::format("tcp://{}:{}", *host,
                  ParseVariable("MASTER_PORT", *port) + (is_taken ? 1 : 0));
  return place;
}

std::optional<LauncherPlace> PlaceOfSlurm(const Environment& environment) {
  auto place = PlaceOf(environment, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"});
  const auto nodes = environment("SLURM_STEP_NODELIST");
  const auto job = environment("SLURM_JOB_ID");
  if (!place || !nodes || !job) return place;
  place->rendezvous = fmt::format(
      "tcp://{}:{}", FirstHost("SLURM_STEP_NODELIST", *nodes),
      kFirstSlurmPort + ParseVariable("SLURM_JOB_ID", *job) % kNumSlurmPorts);
  return place;
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

std::optional<LauncherPlace> FindLauncherPlace(const Environment& environment) {
  std::optional<LauncherPlace> place = PlaceOfTensorFlow(environment);
  if (!place) place = PlaceOfTorch(environment);
  if (!place) {
    place =
        PlaceOf(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  }
  if (!place) place = PlaceOf(environment, {"PMI_RANK", "PMI_SIZE"});
  if (!place) place = PlaceOfSlurm(environment);
  const bool is_alone =
      place && place->role == "worker" && place->num_workers == 1;
  return is_alone ? std::nullopt : place;
}

std::optional<LauncherPlace> PlaceOfLearner(
    const replicator::ReplicationConfig& replication) {
  const bool is_of_fleet =
      !fleet::HeartbeatSenderOptions::FromEnvironment({}).endpoint.empty();
  if (is_of_fleet || replication.uses_mpi()) return std::nullopt;
  auto place = FindLauncherPlace();
  if (!place || place->num_workers == replication.num_workers()) return place;
  if (replication.is_elastic() && place->role == "worker" &&
      place->num_workers >= replication.min_processes &&
      place->num_workers < replication.num_processes()) {
    return place;
  }
  throw ConfigError(fmt::format(
      "{}: a launcher has started {} workers, and learner.replication has {}; "
      "hint: strategy between_graph, communicator tcp, replicas {}",
      place->source, place->num_workers, replication.num_workers(),
      place->num_workers * replication.replicas_per_process));
}

}  // namespace replicant::programs
