#include "bench/programs/service_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/clock.h"
#include "base/error.h"
#include "base/rpc/client.h"
#include "base/rpc/server.h"
#include "replay/service/service.h"

namespace replicant::replay {
namespace {

void Serve(const ShardConfig& config, int endpoint_fd) {
  Shard shard(config, &Clock::Real());
  rpc::ZmqContext context;
  rpc::Server server(context, ReplayProtocol(), rpc::ServerOptions());
  Service service(&shard, {}, &Clock::Real());
  service.AttachTo(server);
  const std::string endpoint = server.Bind("tcp://127.0.0.1:*");
  if (write(endpoint_fd, endpoint.data(), endpoint.size()) < 0) return;
  close(endpoint_fd);
  server.Run();
}

}  // namespace

double SecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

ServiceProcess::ServiceProcess(const ShardConfig& config) : config_(config) {
  std::array<int, 2> fds{};
  if (pipe(fds.data()) != 0) throw IoError::FromErrno("pipe", "", errno);
  pid_ = fork();
  if (pid_ < 0) throw IoError::FromErrno("fork", "", errno);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Serve(config_, fds[1]);
    _exit(1);
  }
  close(fds[1]);
  std::array<char, 256> text{};
  const ssize_t size = read(fds[0], text.data(), text.size());
  close(fds[0]);
  if (size <= 0) throw CommError("the service did not start");
  endpoint_.assign(text.data(), static_cast<size_t>(size));
  clock_getcpuclockid(pid_, &cpu_clock_);
}

ServiceProcess::~ServiceProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

nlohmann::json ServiceProcess::Status() const {
  rpc::ZmqContext context;
  rpc::Client client(context, ReplayProtocol(), rpc::ClientOptions());
  client.Connect(endpoint_);
  const rpc::CallReply reply = client.Call(kStatusKind, {});
  return nlohmann::json::parse(
      rpc::DecodeMessage<StatusReply>(reply.payload).json);
}

}  // namespace replicant::replay
