#include "replay/service/service_status.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace replicant::replay {
namespace {

using nlohmann::json;

json ToObject(const WaitStatus& wait) {
  if (!wait.is_waiting) return nullptr;
  return {{"who", wait.who}, {"why", wait.why}, {"seconds", wait.waiting_s}};
}

json ToObject(const StalledSide& stalled) {
  if (stalled.side.empty()) return nullptr;
  return {{"side", stalled.side},
          {"last", stalled.last},
          {"seconds", stalled.idle_s}};
}

json ToObject(const TableStatus& table) {
  return {{"name", table.name},
          {"size", table.size},
          {"max_size", table.max_size},
          {"mass", table.mass},
          {"min_size_to_sample", table.min_size_to_sample},
          {"inserts", table.inserts},
          {"samples", table.samples},
          {"error", table.error},
          {"updates", table.updates},
          {"late_updates", table.late_updates},
          {"insert_wait", ToObject(table.insert_wait)},
          {"sample_wait", ToObject(table.sample_wait)},
          {"stalled", ToObject(table.stalled)}};
}

json ToObject(const CheckpointStatus& status) {
  return {{"last", status.last_number},
          {"age_seconds", status.age_s ? json(*status.age_s) : json(nullptr)},
          {"failures", status.failures},
          {"problem", status.last_problem}};
}

std::string CheckpointText(const json& status) {
  if (status.is_null()) return "";
  const json& age = status.at("age_seconds");
  const auto problem = status.at("problem").get<std::string>();
  return fmt::format(
      "checkpoint {}{}; {} failed{}\n", status.at("last").get<uint64_t>(),
      age.is_null() ? "" : fmt::format(", {:.0f} s old", age.get<double>()),
      status.at("failures").get<int64_t>(),
      problem.empty() ? "" : ", the last with: " + problem);
}

std::string WaitText(const char* side, const json& wait) {
  if (wait.is_null()) return "";
  return fmt::format("  {} wait, {} first, for {:.1f} s: {}\n", side,
                     wait.at("who").get<std::string>(),
                     wait.at("seconds").get<double>(),
                     wait.at("why").get<std::string>());
}

std::string StallText(const json& stalled) {
  if (stalled.is_null()) return "";
  const auto last = stalled.at("last").get<std::string>();
  return fmt::format("  the {} have stalled for {:.1f} s; last was {}\n",
                     stalled.at("side").get<std::string>(),
                     stalled.at("seconds").get<double>(),
                     last.empty() ? "nobody" : last);
}

}  // namespace

std::string ToJson(const ShardStatus& shard, const ServiceCounts& counts,
                   const ServiceRates& rates, const rpc::ServerMetrics& server,
                   const CheckpointStatus* checkpoints) {
  json tables = json::array();
  for (const TableStatus& table : shard.tables) {
    tables.push_back(ToObject(table));
  }
  const json status = {
      {"tables", std::move(tables)},
      {"memory",
       {{"bytes", shard.size_bytes},
        {"max_bytes", shard.max_bytes},
        {"groups", shard.num_chunks},
        {"shared_bytes", counts.shared_memory_bytes},
        {"wait", ToObject(shard.room_wait)}}},
      {"disk",
       {{"bytes", shard.disk_bytes},
        {"max_bytes", shard.max_disk_bytes},
        {"groups", shard.num_chunks_on_disk},
        {"errors", shard.disk_errors}}},
      {"rates",
       {{"inserted_steps", rates.inserted_steps},
        {"inserted_items", rates.inserted_items},
        {"sampled_items", rates.sampled_items},
        {"updates", rates.updates}}},
      {"checkpoints",
       checkpoints == nullptr ? json(nullptr) : ToObject(*checkpoints)},
      {"writers", shard.num_writers},
      {"counts",
       {{"inserted_steps", shard.inserted_steps},
        {"insert_messages", counts.inserts},
        {"duplicate_groups", shard.duplicate_groups + counts.duplicate_groups},
        {"dropped_groups", shard.dropped_groups},
        {"abandoned_steps", shard.abandoned_steps},
        {"abandoned_items", shard.abandoned_items},
        {"evicted_items", shard.evicted_items},
        {"lost_steps", shard.lost_steps},
        {"out_of_order", counts.out_of_order},
        {"refused_no_room", counts.refused_no_room},
        {"refused_no_credits", counts.refused_no_credits},
        {"batches", counts.batches},
        {"partial_batches", counts.partial_batches},
        {"memory_batches", counts.memory_batches},
        {"undelivered_items", counts.undelivered_items},
        {"expired_writers", counts.expired_writers}}},
      {"network",
       {{"peers", server.peers},
        {"unanswered", server.unanswered},
        {"received_bytes", server.bytes_received},
        {"sent_bytes", server.bytes_sent},
        {"malformed", server.malformed},
        {"mismatched", server.mismatched},
        {"handler_errors", server.handler_errors},
        {"dropped_replies", server.dropped_full + server.dropped_unroutable}}}};
  // names come from peers: invalid UTF-8 must not throw
  return status.dump(-1, ' ', /*ensure_ascii=*/true,
                     json::error_handler_t::replace);
}

std::string StatusText(const std::string& text) {
  try {
    const json status = json::parse(text);
    const json& memory = status.at("memory");
    const json& rates = status.at("rates");
    std::string out = fmt::format(
        "memory    {:.1f} of {:.1f} MiB in {} chunks\n"
        "rates     {:.0f} steps/s in, {:.0f} items/s in, {:.0f} items/s out, "
        "{:.0f} updates/s\n"
        "peers     {}; {} open writers; {} requests wait\n",
        memory.at("bytes").get<double>() / (1 << 20),
        memory.at("max_bytes").get<double>() / (1 << 20),
        memory.at("groups").get<int64_t>(),
        rates.at("inserted_steps").get<double>(),
        rates.at("inserted_items").get<double>(),
        rates.at("sampled_items").get<double>(),
        rates.at("updates").get<double>(),
        status.at("network").at("peers").get<int64_t>(),
        status.at("writers").get<int64_t>(),
        status.at("network").at("unanswered").get<int64_t>());
    out += WaitText("inserts", memory.at("wait"));
    const json& disk = status.at("disk");
    if (disk.at("max_bytes").get<int64_t>() > 0) {
      out += fmt::format(
          "disk      {:.1f} of {:.1f} MiB with {} chunks; {} found no "
          "room\n",
          disk.at("bytes").get<double>() / (1 << 20),
          disk.at("max_bytes").get<double>() / (1 << 20),
          disk.at("groups").get<int64_t>(), disk.at("errors").get<int64_t>());
    }
    out += CheckpointText(status.at("checkpoints"));
    for (const json& table : status.at("tables")) {
      out += fmt::format(
          "table '{}': {} of {} items, {} inserts, {} samples, error {:.1f}\n",
          table.at("name").get<std::string>(), table.at("size").get<int64_t>(),
          table.at("max_size").get<int64_t>(),
          table.at("inserts").get<int64_t>(),
          table.at("samples").get<int64_t>(), table.at("error").get<double>());
      out += WaitText("inserts", table.at("insert_wait"));
      out += WaitText("samples", table.at("sample_wait"));
      out += StallText(table.at("stalled"));
    }
    return out;
  } catch (const json::exception& e) {
    throw IoError(fmt::format("replay status: {}", e.what()));
  }
}

}  // namespace replicant::replay
