// replicant._replay: the basis of the classes in python/replicant/replay.py.
// Rows are bytes here; Python adds the names and types of their arrays.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/rpc/client.h"
#include "base/rpc/group_key.h"
#include "python/src/module.h"
#include "python/src/replay_server.h"
#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"
#include "replay/format/protocol.h"

namespace replicant::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

using Row = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Floats =
    nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A wait ends at least this often to look for Ctrl-C.
constexpr auto kSlice = std::chrono::milliseconds(100);

std::span<const std::byte> BytesOf(const std::optional<Row>& row) {
  if (!row) return {};
  return {reinterpret_cast<const std::byte*>(row->data()), row->size()};
}

// Calls `wait` with deadlines of a slice, without the GIL, until it returns
// true; false once `timeout_s` is over (none: never). A signal's exception ends
// the wait.
template <typename Wait>
bool WaitInSlices(const std::optional<double>& timeout_s, const Wait& wait) {
  const Clock& clock = Clock::Real();
  const Clock::TimePoint end =
      clock.Now() + FromSeconds(std::min(timeout_s.value_or(1e9), 1e9));
  for (;;) {
    const Clock::TimePoint now = clock.Now();
    bool is_done = false;
    {
      GilRelease release;
      is_done = wait(std::min(end, now + kSlice));
    }
    if (is_done) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (clock.Now() >= end) return false;
  }
}

// Objects with threads belong to the process that made them, until they are
// closed.
//
// Thread-safety: all methods may be called from any thread.
class Ownership {
 public:
  bool IsHere() const { return getpid() == process_; }
  void Close() { is_closed_ = true; }
  // Throws Error in another process, and CommError once it is closed.
  void Check(const char* what) const {
    if (!IsHere()) {
      throw Error(fmt::format(
          "this {} was made in process {}, and this is its fork {}; "
          "hint: make one in the child",
          what, process_, getpid()));
    }
    if (is_closed_) throw CommError(fmt::format("{}: already closed", what));
  }

 private:
  const pid_t process_ = getpid();
  std::atomic<bool> is_closed_ = false;
};

class Writer {
 public:
  explicit Writer(const replay::StepWriterOptions& options)
      : writer_(std::make_unique<replay::StepWriter>(options)) {}
  ~Writer() {
    if (!owner_.IsHere()) {
      // its thread belongs to the parent
      static_cast<void>(writer_.release());
      return;
    }
    GilRelease release;
    writer_.reset();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Begin() {
    owner_.Check("writer");
    has_begun_ = true;
    writer_->BeginEpisode();
  }

  // Returns whether the step was taken; false if its episode is lost.
  bool Append(const Row& observation, const Row& action, float reward,
              float discount, const std::optional<Row>& frame,
              const std::optional<float>& priority,
              const std::optional<double>& timeout_s) {
    owner_.Check("writer");
    CheckBegun("append");
    const replay::Step step{.observation = BytesOf(observation),
                            .frame = BytesOf(frame),
                            .action = BytesOf(action),
                            .reward = reward,
                            .discount = discount,
                            .priority = priority};
    AwaitRoom(timeout_s);
    return IsTaken(writer_->Append(step, Clock::Real().Now()));
  }

  bool End(const Row& observation, const std::optional<Row>& frame,
           const std::optional<double>& timeout_s) {
    owner_.Check("writer");
    CheckBegun("end");
    AwaitRoom(timeout_s);
    return IsTaken(writer_->EndEpisode(BytesOf(observation), BytesOf(frame),
                                       Clock::Real().Now()));
  }

  bool Flush(const std::optional<double>& timeout_s) {
    owner_.Check("writer");
    return WaitInSlices(timeout_s, [this](Clock::TimePoint deadline) {
      return writer_->Flush(deadline);
    });
  }

  void Close() {
    if (!owner_.IsHere()) return;
    owner_.Close();
    GilRelease release;
    writer_->Close();
  }

  nb::dict Metrics() const {
    const replay::StepWriterMetrics metrics = writer_->metrics();
    nb::dict all;
    all["appended_steps"] = metrics.appended_steps;
    all["acknowledged_steps"] = metrics.acknowledged_steps;
    all["dropped_episodes"] = metrics.dropped_episodes;
    all["dropped_steps"] = metrics.dropped_steps;
    all["resent_groups"] = metrics.resent_chunks;
    all["waited_s"] = metrics.waited_s;
    all["queued_groups"] = metrics.queued_chunks;
    all["is_connected"] = metrics.is_connected;
    return all;
  }

 private:
  void CheckBegun(const char* call) const {
    if (has_begun_) return;
    throw InvalidArgument(fmt::format("writer: {}() before begin()", call));
  }
  // Waits for a full queue here, where a signal is noticed; afterwards the
  // writer itself drops the episode.
  void AwaitRoom(const std::optional<double>& timeout_s) {
    if (writer_->AwaitRoom(Clock::TimePoint())) return;
    static_cast<void>(
        WaitInSlices(timeout_s, [this](Clock::TimePoint deadline) {
          return writer_->AwaitRoom(deadline);
        }));
  }
  static bool IsTaken(replay::AppendResult result) {
    if (result == replay::AppendResult::kClosed) {
      throw CommError("writer: already closed");
    }
    return result == replay::AppendResult::kOk;
  }

  Ownership owner_;
  bool has_begun_ = false;
  std::unique_ptr<replay::StepWriter> writer_;
};

// Batches without references, kept for their memory. Shared by a reader and its
// batches, which may outlive it.
class BatchPool {
 public:
  replay::Batch Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (batches_.empty()) return {};
    replay::Batch batch = std::move(batches_.back());
    batches_.pop_back();
    return batch;
  }
  void Return(replay::Batch batch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (batches_.size() < 2) batches_.push_back(std::move(batch));
  }

 private:
  std::mutex mutex_;
  std::vector<replay::Batch> batches_;
};

// A batch as Python holds it; every array refers to it.
struct HeldBatch {
  HeldBatch(replay::Batch taken, std::shared_ptr<BatchPool> home)
      : batch(std::move(taken)), pool(std::move(home)) {}
  ~HeldBatch() { pool->Return(std::move(batch)); }
  HeldBatch(const HeldBatch&) = delete;
  HeldBatch& operator=(const HeldBatch&) = delete;

  replay::Batch batch;
  const std::shared_ptr<BatchPool> pool;
};

// A NumPy array of `count` rows over memory of `held`, without a copy.
template <typename T>
nb::object ArrayOf(const nb::object& held, T* data, size_t rows,
                   size_t columns) {
  if (columns == 0) {
    return nb::cast(nb::ndarray<nb::numpy, T>(data, {rows}, held));
  }
  return nb::cast(nb::ndarray<nb::numpy, T>(data, {rows, columns}, held));
}

nb::object RowsOf(const nb::object& held, HostBuffer& buffer, int64_t rows) {
  const auto count = static_cast<size_t>(rows);
  return nb::cast(nb::ndarray<nb::numpy, uint8_t>(
      reinterpret_cast<uint8_t*>(buffer.data()),
      {count, count == 0 ? 0 : buffer.size_bytes() / count}, held));
}

// The arrays of a batch by name; rows of observations, actions and frames are
// bytes [B, ...]. Rewards and discounts of windows are [B, H].
nb::dict ArraysOf(const nb::object& held) {
  replay::Batch& batch = nb::cast<HeldBatch&>(held).batch;
  const auto rows = static_cast<size_t>(batch.size);
  const auto window = static_cast<size_t>(batch.form.window);
  nb::dict all;
  all["observation"] = RowsOf(held, batch.observations, batch.size);
  all["next_observation"] = RowsOf(held, batch.next_observations, batch.size);
  all["action"] = RowsOf(held, batch.actions, batch.size);
  all["frames"] = RowsOf(held, batch.frames, batch.size);
  all["next_frames"] = RowsOf(held, batch.next_frames, batch.size);
  all["reward"] = ArrayOf(held, batch.rewards.data(), rows, window);
  all["discount"] = ArrayOf(held, batch.discounts.data(), rows, window);
  all["num_steps"] = ArrayOf(held, batch.num_steps.data(), rows, 0);
  all["priority"] = ArrayOf(held, batch.priorities.data(), rows, 0);
  all["weight"] = ArrayOf(held, batch.weights.data(), rows, 0);
  all["probability"] = ArrayOf(held, batch.probabilities.data(), rows, 0);
  all["times_sampled"] = ArrayOf(held, batch.times_sampled.data(), rows, 0);
  return all;
}

class Reader {
 public:
  explicit Reader(const replay::BatchReaderOptions& options)
      : reader_(std::make_unique<replay::BatchReader>(options)) {}
  ~Reader() {
    if (!owner_.IsHere()) {
      static_cast<void>(reader_.release());
      return;
    }
    GilRelease release;
    reader_.reset();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // The next batch; None once the timeout is over.
  nb::object Sample(const std::optional<double>& timeout_s) {
    owner_.Check("reader");
    replay::Batch batch = pool_->Take();
    auto result = replay::ReadResult::kTimeout;
    const bool is_done =
        WaitInSlices(timeout_s, [&](Clock::TimePoint deadline) {
          result = reader_->Next(deadline, &batch);
          return result != replay::ReadResult::kTimeout;
        });
    if (!is_done) return nb::none();
    if (result == replay::ReadResult::kClosed) {
      throw CommError("reader: already closed");
    }
    return nb::cast(new HeldBatch(std::move(batch), pool_),
                    nb::rv_policy::take_ownership);
  }

  void Update(const HeldBatch& held, const Floats& priorities) {
    owner_.Check("reader");
    reader_->UpdatePriorities(held.batch,
                              {priorities.data(), priorities.size()});
  }

  bool Checkpoint(uint64_t id, const std::optional<double>& timeout_s) {
    owner_.Check("reader");
    // the reader itself would throw at its deadline, which comes later
    const Clock::Duration patience =
        FromSeconds(std::min(timeout_s.value_or(1e6), 1e6)) +
        std::chrono::seconds(1);
    reader_->StartCheckpoint(id, Clock::Real().Now() + patience);
    auto state = replay::CheckpointState::kPending;
    const bool is_done = WaitInSlices(timeout_s, [&](Clock::TimePoint) {
      state = reader_->PollCheckpoint();
      if (state != replay::CheckpointState::kPending) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return false;
    });
    if (state == replay::CheckpointState::kNotKept) {
      throw CommError(
          "checkpoint: the service keeps no checkpoints; hint: give it a "
          "checkpoint_folder");
    }
    return is_done;
  }

  void Close() {
    if (!owner_.IsHere()) return;
    owner_.Close();
    GilRelease release;
    reader_->Close();
  }

  nb::dict Metrics() const {
    const replay::BatchReaderMetrics metrics = reader_->metrics();
    nb::dict all;
    all["batches"] = metrics.batches;
    all["received_bytes"] = metrics.received_bytes;
    all["memory_replies"] = metrics.memory_replies;
    all["partial_replies"] = metrics.partial_replies;
    all["lost_requests"] = metrics.lost_requests;
    all["sent_updates"] = metrics.sent_updates;
    all["dropped_updates"] = metrics.dropped_updates;
    all["ready_batches"] = metrics.ready_batches;
    return all;
  }

 private:
  Ownership owner_;
  std::unique_ptr<replay::BatchReader> reader_;
  const std::shared_ptr<BatchPool> pool_ = std::make_shared<BatchPool>();
};

// The role of a client with the key pair in `key_file`; empty: no keys. The
// service's public key is the pair's, as in a run, or the key in
// `server_key_file`.
rpc::CurveRole ClientRole(const std::string& key_file,
                          const std::string& server_key_file) {
  const auto key = rpc::GroupKey::FromFile(key_file);
  if (server_key_file.empty()) return key.client_role();
  if (!key.is_set()) {
    throw InvalidArgument(
        fmt::format("server_key_file: {}: a client also needs its own keys; "
                    "got no key_file",
                    server_key_file));
  }
  const std::vector<std::string> keys = rpc::ReadPublicKeys(server_key_file);
  if (keys.size() != 1) {
    throw InvalidArgument(
        fmt::format("server_key_file: {}: got {} keys, expected one",
                    server_key_file, keys.size()));
  }
  return key.client_role(keys[0]);
}

void MakeKeys(const std::string& key_file, const std::string& public_key_file) {
  const rpc::CurveKeyPair keys = rpc::GenerateCurveKeyPair();
  rpc::WriteKeyPair(key_file, keys);
  rpc::WritePublicKeys(public_key_file, {keys.public_key});
}

// The status of a service, as JSON.
std::string StatusOf(const std::string& endpoint, double timeout_s,
                     const std::string& key_file,
                     const std::string& server_key_file) {
  rpc::ZmqContext context;
  rpc::Client client(
      context, replay::ReplayProtocol(),
      {.socket = {.curve = ClientRole(key_file, server_key_file)},
       .name = "python status"});
  client.Connect(endpoint);
  std::string json, problem;
  const bool is_done = WaitInSlices(timeout_s, [&](Clock::TimePoint) {
    const rpc::CallReply reply =
        client.Call(replay::kStatusKind, {},
                    {.timeout = 4 * kSlice, .is_idempotent = true});
    problem = reply.error_text;
    if (reply.result != rpc::CallResult::kOk) return false;
    json = rpc::DecodeMessage<replay::StatusReply>(reply.payload).json;
    return true;
  });
  if (is_done) return json;
  throw CommError(fmt::format("{}: no answer within {} s{}{}", endpoint,
                              timeout_s, problem.empty() ? "" : ": ", problem));
}

replay::FrameCodec CodecOf(const std::string& name) {
  for (const auto codec : {replay::FrameCodec::kNone, replay::FrameCodec::kLz4,
                           replay::FrameCodec::kZstd}) {
    if (name == replay::ToString(codec)) return codec;
  }
  throw InvalidArgument(
      fmt::format("codec: got '{}'; allowed: none, lz4, zstd", name));
}

// The server of Python; see Ownership.
class Server {
 public:
  explicit Server(const std::string& yaml)
      : server_(std::make_unique<ReplayServer>(yaml)) {}
  ~Server() {
    if (!owner_.IsHere()) {
      static_cast<void>(server_.release());
      return;
    }
    GilRelease release;
    server_.reset();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& endpoint() const { return server_->endpoint(); }
  void Close() {
    if (!owner_.IsHere()) return;
    GilRelease release;
    server_->Close();
  }

 private:
  Ownership owner_;
  std::unique_ptr<ReplayServer> server_;
};

void BindClients(nb::module_& module) {
  nb::class_<Writer>(module, "Writer")
      .def(
          "__init__",
          [](Writer* self, const std::string& endpoint, const std::string& name,
             int64_t observation_bytes, int64_t action_bytes,
             int64_t frame_bytes, int64_t group_steps, const std::string& codec,
             int64_t queue_groups, const std::string& key_file,
             const std::string& server_key_file) {
            new (self) Writer({.endpoint = endpoint,
                               .name = name,
                               .curve = ClientRole(key_file, server_key_file),
                               .shape = {.observation_bytes = observation_bytes,
                                         .action_bytes = action_bytes,
                                         .frame_bytes = frame_bytes},
                               .group_steps = group_steps,
                               .codec = CodecOf(codec),
                               .queue_groups = queue_groups});
          },
          "endpoint"_a, "name"_a, "observation_bytes"_a, "action_bytes"_a,
          "frame_bytes"_a, "group_steps"_a, "codec"_a, "queue_groups"_a,
          "key_file"_a, "server_key_file"_a)
      .def("begin", &Writer::Begin)
      .def("append", &Writer::Append, "observation"_a, "action"_a, "reward"_a,
           "discount"_a, "frame"_a.none(), "priority"_a.none(),
           "timeout_s"_a.none())
      .def("end", &Writer::End, "observation"_a, "frame"_a.none(),
           "timeout_s"_a.none())
      .def("flush", &Writer::Flush, "timeout_s"_a.none())
      .def("close", &Writer::Close)
      .def_prop_ro("metrics", &Writer::Metrics);

  nb::class_<HeldBatch>(module, "HeldBatch")
      .def_prop_ro("size",
                   [](const HeldBatch& held) { return held.batch.size; })
      .def_prop_ro("stack",
                   [](const HeldBatch& held) { return held.batch.form.stack; })
      .def_prop_ro("window",
                   [](const HeldBatch& held) { return held.batch.form.window; })
      .def_prop_ro("total_steps", [](const HeldBatch& held) {
        return held.batch.total_steps;
      });
  module.def("arrays_of", &ArraysOf, "held"_a);

  nb::class_<Reader>(module, "Reader")
      .def(
          "__init__",
          [](Reader* self, const std::vector<std::string>& endpoints,
             const std::string& name, int64_t observation_bytes,
             int64_t action_bytes, int64_t frame_bytes,
             const std::string& table, int64_t batch_size, int64_t prefetch,
             int64_t decode_threads, double importance_exponent,
             bool shares_memory, int64_t frame_store_bytes, uint64_t seed,
             const std::string& key_file, const std::string& server_key_file) {
            new (self) Reader({.endpoints = endpoints,
                               .name = name,
                               .curve = ClientRole(key_file, server_key_file),
                               .shape = {.observation_bytes = observation_bytes,
                                         .action_bytes = action_bytes,
                                         .frame_bytes = frame_bytes},
                               .table = table,
                               .window = std::nullopt,
                               .batch_size = batch_size,
                               .prefetch = prefetch,
                               .decode_threads = decode_threads,
                               .importance = {.exponent = importance_exponent},
                               .shares_memory = shares_memory,
                               .kept_frames = {.max_bytes = frame_store_bytes},
                               .seed = seed});
          },
          "endpoints"_a, "name"_a, "observation_bytes"_a, "action_bytes"_a,
          "frame_bytes"_a, "table"_a, "batch_size"_a, "prefetch"_a,
          "decode_threads"_a, "importance_exponent"_a, "shares_memory"_a,
          "frame_store_bytes"_a, "seed"_a, "key_file"_a, "server_key_file"_a)
      .def("sample", &Reader::Sample, "timeout_s"_a.none())
      .def("update", &Reader::Update, "batch"_a, "priorities"_a)
      .def("checkpoint", &Reader::Checkpoint, "id"_a, "timeout_s"_a.none())
      .def("close", &Reader::Close)
      .def_prop_ro("metrics", &Reader::Metrics);

  nb::class_<Server>(module, "Server")
      .def(nb::init<const std::string&>(), "yaml"_a,
           nb::call_guard<GilRelease>())
      .def_prop_ro("endpoint", &Server::endpoint)
      .def("close", &Server::Close);

  module.def("make_keys", &MakeKeys, "key_file"_a, "public_key_file"_a);
  module.def("status", &StatusOf, "endpoint"_a, "timeout_s"_a, "key_file"_a,
             "server_key_file"_a);
}

}  // namespace
}  // namespace replicant::python

NB_MODULE(_replay, module) {
  replicant::python::SetUpModule();
  replicant::python::BindClients(module);
}
