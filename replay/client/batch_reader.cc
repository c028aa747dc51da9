// The callers' side: options, the queue of ready batches, and the orders to the
// network thread (pause, limit, priorities, checkpoint). The network thread, in
// batch_reader_network.cc, reads the orders under the lock when it is woken.
#include "replay/client/batch_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace replicant::replay {
namespace {

BatchReaderOptions Checked(BatchReaderOptions options) {
  const auto check = [](const char* name, int64_t value, int64_t low,
                        int64_t high) {
    if (value >= low && value <= high) return;
    throw InvalidArgument(fmt::format("BatchReader: {} {} is outside [{}, {}]",
                                      name, value, low, high));
  };
  check("number of endpoints", static_cast<int64_t>(options.endpoints.size()),
        1, 1024);
  check("batch_size", options.batch_size, 1, kMaxItemsPerBatch);
  check("prefetch", options.prefetch, 1, 1024);
  check("decode_threads", options.decode_threads, 0, 256);
  check("kept_frames.max_bytes", options.kept_frames.max_bytes, 0,
        int64_t{1} << 50);
  check("wait", options.wait.count(), 1, kMaxWaitMs);
  check("window", options.window.value_or(0), 0, kMaxWindow);
  const ImportanceSchedule& importance = options.importance;
  for (const double exponent :
       {importance.exponent,
        importance.final_exponent.value_or(importance.exponent)}) {
    if (!(exponent >= 0.0 && exponent <= 1.0)) {
      throw InvalidArgument(fmt::format(
          "BatchReader: importance exponent {} is outside [0, 1]", exponent));
    }
  }
  check("importance.steps", importance.steps, 1, kMaxSteps);
  return options;
}

}  // namespace

BatchReader::BatchReader(BatchReaderOptions options)
    : options_(Checked(std::move(options))),
      random_(options_.seed, "replay-reader"),
      first_draws_at_(Clock::Real().Now() + std::chrono::seconds(2)),
      assembler_({.name = options_.name,
                  .shape = options_.shape,
                  .batch_size = options_.batch_size,
                  .decode_threads = options_.decode_threads,
                  .fills_frames = options_.fills_frames,
                  .importance = options_.importance,
                  .shares_memory = options_.shares_memory,
                  .on_ready = [this](Batch b) { PushReady(std::move(b)); },
                  .on_failure = [this] { Fail(); }}) {
  rpc::ClientOptions client;
  client.name = options_.name;
  client.socket.curve = options_.curve;
  for (const std::string& endpoint : options_.endpoints) {
    const size_t index = shards_.size();
    client.on_session_change = [this, index](uint64_t /*old*/,
                                             uint64_t /*current*/) {
      shards_[index].is_restarted = true;
      ++shards_[index].num_restarts;
      shards_[index].table.reset();
    };
    Shard shard;
    shard.endpoint = endpoint;
    KeptFrames::Options kept = options_.kept_frames;
    kept.max_bytes /= static_cast<int64_t>(options_.endpoints.size());
    shard.kept.emplace(kept, options_.shape);
    shard.client =
        std::make_unique<rpc::Client>(context_, ReplayProtocol(), client);
    shard.client->Connect(endpoint);
    shard.client->DetachFromThread();
    clients_.push_back(shard.client.get());
    shards_.push_back(std::move(shard));
  }
  thread_.emplace("replay-reader",
                  [this](const Thread::StopToken& s) { Run(s); });
}

BatchReader::~BatchReader() { Close(); }

ReadResult BatchReader::Next(Clock::TimePoint deadline, Batch* batch) {
  MutexLock lock(mutex_);
  Clock::Real().WaitUntil(
      mutex_, ready_changed_, deadline, [this]() REQUIRES(mutex_) {
        return !ready_.empty() || is_closed_ || failure_ || IsDrained();
      });
  if (failure_) std::rethrow_exception(failure_);
  if (is_closed_) return ReadResult::kClosed;
  if (ready_.empty()) {
    return IsDrained() ? ReadResult::kPaused : ReadResult::kTimeout;
  }
  std::swap(*batch, ready_.front());
  if (ready_.front().size > 0) spare_.push_back(std::move(ready_.front()));
  ready_.pop_front();
  --num_under_way_;
  --num_wanted_;
  wake_.Wake();
  return ReadResult::kOk;
}

void BatchReader::UpdatePriorities(const Batch& batch,
                                   std::span<const float> priorities) {
  if (static_cast<int64_t>(priorities.size()) != batch.size) {
    throw InvalidArgument(
        fmt::format("BatchReader: {} priorities for a batch of {}",
                    priorities.size(), batch.size));
  }
  if (batch.reader_id != id_) {
    throw InvalidArgument(fmt::format(
        "BatchReader: '{}' reads table '{}' and did not draw this batch of "
        "table '{}'; hint: give the priorities to the reader that drew it",
        options_.name, options_.table, batch.table));
  }
  std::vector<Update> updates(options_.endpoints.size());
  for (size_t i = 0; i < priorities.size(); ++i) {
    if (!IsPriority(static_cast<double>(priorities[i]))) {
      throw InvalidArgument(fmt::format(
          "BatchReader: priority {} must be finite and >= 0", priorities[i]));
    }
    const auto shard = static_cast<size_t>(batch.shards[i]);
    Update& update = updates[shard];
    update.shard = batch.shards[i];
    update.num_restarts = batch.num_restarts[shard];
    update.updates.push_back({batch.keys[i], priorities[i]});
  }
  MutexLock lock(mutex_);
  for (Update& update : updates) {
    if (!update.updates.empty()) updates_.push_back(std::move(update));
  }
  wake_.Wake();
}

void BatchReader::SetPaused(bool is_paused) {
  MutexLock lock(mutex_);
  is_paused_ = is_paused;
  ready_changed_.NotifyAll();
  wake_.Wake();
}

void BatchReader::SetLimit(int64_t num_batches) {
  MutexLock lock(mutex_);
  num_wanted_ = num_batches;
  ready_changed_.NotifyAll();
  wake_.Wake();
}

void BatchReader::SetLostSteps(int64_t num_steps) {
  MutexLock lock(mutex_);
  lost_steps_before_ = num_steps;
}

void BatchReader::StartCheckpoint(uint64_t id, Clock::TimePoint deadline) {
  if (id == 0) throw InvalidArgument("BatchReader: a checkpoint needs an id");
  MutexLock lock(mutex_);
  checkpoint_ = {.id = id,
                 .deadline = deadline,
                 .is_sent = false,
                 .num_missing = options_.endpoints.size()};
  wake_.Wake();
}

void BatchReader::StartCheckpoint(uint64_t id,
                                  const std::filesystem::path& /*folder*/) {
  StartCheckpoint(id, Clock::Real().Now() + options_.checkpoint_timeout);
}

CheckpointState BatchReader::PollCheckpoint() {
  MutexLock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (!checkpoint_.problem.empty()) throw CommError(checkpoint_.problem);
  const bool is_over =
      is_closed_ || Clock::Real().Now() >= checkpoint_.deadline;
  if (!checkpoint_.is_not_kept && checkpoint_.num_missing > 0 && !is_over) {
    return CheckpointState::kPending;
  }
  // a checkpoint that could not be sent in time is not sent later
  checkpoint_.is_sent = true;
  if (checkpoint_.is_not_kept) return CheckpointState::kNotKept;
  if (checkpoint_.num_missing == 0) return CheckpointState::kSaved;
  throw CommError("the replay has not saved its checkpoint in time");
}

CheckpointState BatchReader::Checkpoint(uint64_t id,
                                        Clock::TimePoint deadline) {
  StartCheckpoint(id, deadline);
  {
    MutexLock lock(mutex_);
    Clock::Real().WaitUntil(
        mutex_, ready_changed_, deadline, [this]() REQUIRES(mutex_) {
          return checkpoint_.num_missing == 0 || is_closed_ || failure_ ||
                 !checkpoint_.problem.empty();
        });
  }
  return PollCheckpoint();
}

void BatchReader::Close() {
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    ready_changed_.NotifyAll();
  }
  thread_->RequestStop();
  wake_.Wake();
  assembler_.Close();
  thread_->Join();
}

BatchReaderMetrics BatchReader::metrics() const {
  MutexLock lock(mutex_);
  BatchReaderMetrics metrics = metrics_;
  metrics.ready_batches = static_cast<int64_t>(ready_.size());
  return metrics;
}

std::vector<std::pair<std::string, double>> BatchReader::Scalars() const {
  if (options_.kept_frames.max_bytes == 0 || options_.shape.frame_bytes == 0) {
    return {};
  }
  MutexLock lock(mutex_);
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  return {{"frame_store_bytes", number(metrics_.kept_frames_bytes)},
          {"frame_store_hit_share", hit_share_},
          {"frame_store_fetched_frames", number(metrics_.fetched_frames)},
          {"frame_store_evicted_frames", number(metrics_.evicted_frames)}};
}

void BatchReader::PushReady(Batch batch) {
  MutexLock lock(mutex_);
  ready_.push_back(std::move(batch));
  ++metrics_.batches;
  // Checkpoint() may wait on it, too
  ready_changed_.NotifyAll();
}

void BatchReader::Fail() {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = std::current_exception();
  ready_changed_.NotifyAll();
}

}  // namespace replicant::replay
