#include "replay/service/service_metrics.h"

#include <algorithm>

namespace replicant::replay {

void ServiceMetrics::Total(const std::string& name, const std::string& help,
                           double total, const metrics::Labels& labels) {
  metrics::Counter& counter = registry_->AddCounter(
      "replicant_replay_" + name + "_total", help, labels);
  counter.Increment(std::max(0.0, total - counter.value()));
}

void ServiceMetrics::Value(const std::string& name, const std::string& help,
                           double value, const metrics::Labels& labels) {
  registry_->AddGauge("replicant_replay_" + name, help, labels).Set(value);
}

void ServiceMetrics::Update(const ShardStatus& shard,
                            const rpc::ServerMetrics& server,
                            const CheckpointStatus* checkpoints) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  for (const TableStatus& table : shard.tables) {
    const metrics::Labels labels = {{"table", table.name}};
    Value("items", "Items in a table.", number(table.size), labels);
    Value("rate_limiter_error",
          "Samples by which the inserts are ahead of the ratio.", table.error,
          labels);
    Value("insert_wait_seconds", "How long inserts have been waiting.",
          table.insert_wait.waiting_s, labels);
    Value("sample_wait_seconds", "How long samples have been waiting.",
          table.sample_wait.waiting_s, labels);
    Total("inserts", "Items that went into a table.", number(table.inserts),
          labels);
    Total("samples", "Items drawn from a table.", number(table.samples),
          labels);
    Total("updates", "Priorities set.", number(table.updates), labels);
    Total("late_updates", "Priorities for items that were gone.",
          number(table.late_updates), labels);
  }
  Value("held_bytes", "Bytes of steps held.", number(shard.size_bytes));
  Value("max_bytes", "Bytes of steps that may be held.",
        number(shard.max_bytes));
  Value("room_wait_seconds",
        "How long chunks have been waiting for room in memory.",
        shard.room_wait.waiting_s);
  Value("disk_bytes", "Bytes of the disk tier's files.",
        number(shard.disk_bytes));
  Total("disk_errors", "Chunks that the disk tier could not take.",
        number(shard.disk_errors));
  Value("writers", "Writers that are known and open.",
        number(shard.num_writers));
  Total("steps", "Steps taken in.", number(shard.inserted_steps));
  Total("lost_steps", "Acknowledged steps that a crash has cost.",
        number(shard.lost_steps));
  Total("dropped_groups", "Chunks that continued no known episode.",
        number(shard.dropped_groups));
  Total("abandoned_steps", "Steps whose episode never ended.",
        number(shard.abandoned_steps));
  Total("evicted_items", "Items that went for the memory limit.",
        number(shard.evicted_items));
  Value("peers", "Clients connected.", number(server.peers));
  Total("received_bytes", "Bytes received.", number(server.bytes_received));
  Total("sent_bytes", "Bytes sent.", number(server.bytes_sent));
  Total("malformed_messages", "Messages that broke the format.",
        number(server.malformed));
  if (checkpoints == nullptr) return;
  Total("failed_checkpoints", "Checkpoints that could not be written.",
        number(checkpoints->failures));
  if (checkpoints->age_s) {
    Value("checkpoint_age_seconds", "Time since the last checkpoint was saved.",
          *checkpoints->age_s);
  }
}

}  // namespace replicant::replay
