#include "python/src/replay_server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <future>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/config/load.h"
#include "base/error.h"
#include "base/rpc/curve.h"
#include "replay/format/protocol.h"

namespace replicant::python {
namespace {

replay::ReplayConfig ReadConfig(const std::string& yaml) {
  replay::ReplayConfig config = config::Load<replay::ReplayConfig>(
                                    config::Document::FromText("replay", yaml))
                                    .config;
  if (config.shards != 1) {
    throw ConfigError(fmt::format(
        "replay: shards: got {}, but a program's service is one shard; hint: "
        "start several services and give a reader all their endpoints",
        config.shards));
  }
  // a run has its own address, but a program's service takes a free one
  if (config.bind == "auto") config.bind = "tcp://127.0.0.1:*";
  return config;
}

std::unique_ptr<replay::Checkpointer> MakeCheckpointer(
    const replay::ReplayConfig& config, replay::Shard* shard) {
  if (config.checkpoint_folder.empty()) return nullptr;
  replay::CheckpointOptions options;
  options.folder = config.checkpoint_folder;
  options.durability = config.durability;
  options.num_kept = config.num_kept_checkpoints;
  options.restore_id = static_cast<uint64_t>(config.restore_checkpoint);
  auto made = std::make_unique<replay::Checkpointer>(options, shard);
  for (const std::string& problem : made->restored().problems) {
    spdlog::warn("checkpoint: {}", problem);
  }
  return made;
}

rpc::ServerOptions ServerOptionsOf(const replay::ReplayConfig& config) {
  rpc::ServerOptions options;
  options.tick_interval = std::chrono::milliseconds(10);
  options.peer_timeout = FromSeconds(config.peer_timeout_s);
  if (!config.key_file.empty()) {
    options.socket.curve = rpc::CurveServer{rpc::ReadKeyPair(config.key_file)};
  }
  return options;
}

replay::ServiceOptions ServiceOptionsOf(const replay::ReplayConfig& config) {
  replay::ServiceOptions options;
  options.credits = static_cast<uint32_t>(config.credits);
  options.shares_memory = config.shared_memory;
  options.encode_threads = config.encode_threads;
  options.return_timeout = 3 * FromSeconds(config.peer_timeout_s);
  return options;
}

}  // namespace

ReplayServer::ReplayServer(const std::string& yaml)
    : config_(ReadConfig(yaml)),
      shard_(config_.MakeShardConfig(), &Clock::Real()),
      checkpointer_(MakeCheckpointer(config_, &shard_)),
      context_(std::in_place),
      server_(std::in_place, *context_, replay::ReplayProtocol(),
              ServerOptionsOf(config_)),
      service_(std::in_place, &shard_, ServiceOptionsOf(config_),
               &Clock::Real()) {
  if (!config_.key_file.empty()) {
    zap_.emplace(*context_, rpc::ReadPublicKeys(config_.allowed_clients_file));
  }
  if (checkpointer_ != nullptr) {
    saver_.emplace(&shard_, checkpointer_.get());
    service_->SetCheckpointSaver(&*saver_);
  }
  service_->AttachTo(*server_);
  endpoint_ = server_->Bind(config_.bind);
  upkeep_.emplace(config_, &*server_, saver_ ? &*saver_ : nullptr);
  upkeep_thread_.emplace("replay-upkeep", [this](const Thread::StopToken& s) {
    while (!s.IsStopRequested() &&
           !upkeep_ends_.try_acquire_for(upkeep_->Run(shard_.Status()))) {
    }
  });
  loop_.emplace("replay", [this](const Thread::StopToken&) { server_->Run(); });
}

ReplayServer::~ReplayServer() {
  try {
    Close();
  } catch (const Error& error) {
    spdlog::error("replay: {}", error.what());
  }
}

void ReplayServer::Close() {
  const MutexLock lock(mutex_);
  if (loop_) Stop();
  if (checkpointer_ == nullptr) return;
  try {
    checkpointer_->Save();
  } catch (const IoError& e) {
    throw IoError(
        fmt::format("the last checkpoint was not saved: {}; number {} stays "
                    "the newest; hint: close() tries again",
                    e.what(), checkpointer_->last_number()));
  }
  // the folder is free for the next service
  checkpointer_.reset();
}

void ReplayServer::Stop() {
  // does not wait for the next turn of the thread
  upkeep_ends_.release();
  upkeep_thread_.reset();
  upkeep_.reset();
  // no insert after this point: the last checkpoint holds all that was
  // acknowledged
  auto closed = std::make_shared<std::promise<void>>();
  auto future = closed->get_future();
  if (loop_->IsRunning()) {
    server_->Post([this, closed] {
      service_->Close();
      closed->set_value();
    });
    while (loop_->IsRunning() && future.wait_for(std::chrono::milliseconds(
                                     100)) != std::future_status::ready) {
    }
  }
  server_->Stop();
  loop_->Join();
  loop_.reset();
  // its last answers go to the server
  if (saver_) saver_->Finish();
  // the address is free for the next service once the context has ended
  service_.reset();
  server_.reset();
  zap_.reset();
  context_.reset();
  saver_.reset();
}

}  // namespace replicant::python
