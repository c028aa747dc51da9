#include "fleet/cluster_config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "base/error.h"

namespace replicant::fleet {
namespace {

constexpr const char* kCommandWord = "{command}";
constexpr const char* kHostWord = "{host}";
// A dead connection ends after 30 s; no password is asked for.
constexpr const char* kSshCommand =
    "ssh -o BatchMode=yes -o ServerAliveInterval=10 -o ServerAliveCountMax=3 "
    "{host} {command}";

// Whether ssh would read the name as an option.
bool IsHostName(const std::string& name) {
  return !name.empty() && name[0] != '-' &&
         name.find_first_of(" \t\r\n'\"") == std::string::npos;
}

// Reports each element of a list that does not have the form of its key.
void CheckForms(config::Reader& reader, const std::string& key,
                const std::vector<std::string>& list, const char* form,
                bool (*has_form)(const std::string& element)) {
  for (const std::string& element : list) {
    if (has_form(element)) continue;
    reader.Error(key, fmt::format("'{}' is not of the form {}", element, form));
  }
}

bool IsNodeLabel(const std::string& text) {
  const size_t sign = text.find('=');
  return sign != 0 && sign != std::string::npos &&
         text.find_first_of(" \"\\\n") == std::string::npos;
}

bool IsOption(const std::string& text) {
  return text.starts_with("--") && text.find('\n') == std::string::npos;
}

// A numeric address, of IPv6 in brackets; nothing for loopback and addresses of
// a single link.
std::optional<std::string> AddressForOthers(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    const in_addr number =
        reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    if ((ntohl(number.s_addr) >> 24) == 127) return std::nullopt;
    ::inet_ntop(AF_INET, &number, text.data(), text.size());
    return text.data();
  }
  const in6_addr number =
      reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&number) || IN6_IS_ADDR_LINKLOCAL(&number)) {
    return std::nullopt;
  }
  ::inet_ntop(AF_INET6, &number, text.data(), text.size());
  return fmt::format("[{}]", text.data());
}

bool IsBridge(const std::string& interface) {
  std::error_code error;
  return std::filesystem::exists("/sys/class/net/" + interface + "/bridge",
                                 error);
}

// The address from which this host sends to another one, as the routes say;
// nothing is sent.
std::optional<std::string> AddressOfRoute(const std::string& host, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(
      found, &::freeaddrinfo);
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, /*protocol=*/0);
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  const bool is_good =
      fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  if (fd >= 0) ::close(fd);
  if (!is_good) return std::nullopt;
  return AddressForOthers(reinterpret_cast<const sockaddr&>(own));
}

}  // namespace

std::string ToString(ClusterBackend backend) {
  switch (backend) {
    case ClusterBackend::kLocal:
      return "local";
    case ClusterBackend::kSsh:
      return "ssh";
    case ClusterBackend::kSlurm:
      return "slurm";
    case ClusterBackend::kKubernetes:
      return "kubernetes";
  }
  return "unknown";
}

HostConfig HostConfig::Read(config::Reader& reader) {
  HostConfig c;
  reader.Field("name", &c.name,
               "name or address of the host, as the command of ssh takes it");
  reader.Field("actors", &c.actors, {0, 10000},
               "maximum number of actors on the host; 0: its processors "
               "divided by cluster.roles.actor.cores");
  reader.Field("shard_address", &c.shard_address,
               "address of this host, tcp://ADDRESS:PORT, at which a shard of "
               "the replay listens there; empty: no shard. Hosts with an "
               "address take the shards in order; if no host has one, all "
               "shards run on the launcher's host");
  reader.Field("shard_folder", &c.shard_folder,
               "folder on this host for the checkpoints of its shard, which "
               "survive the host's agent");
  reader.Field("worker", &c.worker,
               "whether the host runs one of the learner's workers, "
               "learner.replication's processes after the first. Hosts take "
               "them in order; if no host has one, all run on the launcher's "
               "host");
  reader.Field("server_address", &c.server_address,
               "address of this host, tcp://ADDRESS:PORT, at which a parameter "
               "server listens there, in place of an element of "
               "learner.replication.servers; empty: no server");
  reader.Field("server_folder", &c.server_folder,
               "folder on this host for the variables that its parameter "
               "server saves, which survive the host's agent");
  reader.Field("inference_address", &c.inference_address,
               "address of this host, tcp://ADDRESS:PORT, at which the "
               "inference server of all actors listens there; empty: it runs "
               "on the launcher's host");
  if (c.shard_address.empty() != c.shard_folder.empty()) {
    reader.Error("shard_folder", "and shard_address must be given together");
  }
  if (c.server_address.empty() != c.server_folder.empty()) {
    reader.Error("server_folder", "and server_address must be given together");
  }
  if (!IsHostName(c.name)) {
    reader.Error("name", fmt::format("'{}' is not the name of a host", c.name));
  }
  return c;
}

RoleResources RoleResources::Read(config::Reader& reader,
                                  RoleResources defaults) {
  RoleResources c = std::move(defaults);
  reader.Field("cores", &c.cores, {1, 100000},
               "processors that one process requests from a cluster; a host "
               "takes as many actors as fit on its processors");
  reader.Field("gpus", &c.gpus, {0, 10000},
               "GPUs that one process requests from Slurm or Kubernetes");
  reader.Field("memory_mb", &c.memory_mb, {0, int64_t{1} << 40},
               "memory in MB that one process requests from Slurm or "
               "Kubernetes; 0: not requested");
  reader.Field(
      "command", &c.command,
      "command that starts the process, with {command} in place of the "
      "process's command, for example: numactl --localalloc {command}; empty: "
      "{command} alone. Blanks separate words; there are no quotes");
  if (!c.has_pods) return c;
  reader.Field("image", &c.image,
               "container image of the role's pods; empty: "
               "cluster.kubernetes.image");
  reader.Field("node_selector", &c.node_selector, {0, 100},
               "labels of the nodes on which Kubernetes runs the role's pods, "
               "LABEL=VALUE each");
  reader.Field("priority_class", &c.priority_class,
               "PriorityClass of the role's pods; empty: the cluster's "
               "default");
  CheckForms(reader, "node_selector", c.node_selector, "LABEL=VALUE",
             &IsNodeLabel);
  return c;
}

SkypilotConfig SkypilotConfig::Read(config::Reader& reader) {
  SkypilotConfig c;
  reader.Field("image", &c.image,
               "image of all nodes, with the programs on PATH");
  reader.Field("infra", &c.infra,
               "where the nodes run, as SkyPilot takes it: kubernetes, aws, "
               "aws/us-east-1, ...; empty: SkyPilot chooses");
  reader.Field(
      "accelerator", &c.accelerator,
      "SkyPilot's name of the GPU that cluster.roles.ROLE.gpus counts");
  reader.Field("actor_nodes", &c.actor_nodes, {0, 10000},
               "nodes of actors, each with actors.count / actor_nodes actors, "
               "rounded up");
  reader.Field("learner_spot", &c.learner_spot,
               "whether the learner's node is a spot instance; it needs "
               "run_storage, or a lost node loses the run");
  reader.Field("actor_spot", &c.actor_spot,
               "whether the nodes of actors are spot instances");
  reader.Field(
      "run_storage", &c.run_storage,
      "bucket for the run folder, such as s3://NAME/PATH, from which a "
      "new node of the learner resumes the run; empty: its own disk");
  if (c.learner_spot && c.run_storage.empty()) {
    reader.Error("learner_spot",
                 "needs run_storage, from which the next node resumes the run");
  }
  return c;
}

SlurmConfig SlurmConfig::Read(config::Reader& reader) {
  SlurmConfig c;
  reader.Field("partition", &c.partition,
               "partition of every job but the actors' array; empty: the "
               "site's default");
  reader.Field("actor_partition", &c.actor_partition,
               "partition of the actors' array; empty: the learner's");
  reader.Field("account", &c.account,
               "account that is charged; empty: the user's default");
  reader.Field("time_limit", &c.time_limit,
               "time limit of each job, as sbatch takes it. The learner's job "
               "is requeued before the limit and resumes the run");
  reader.Field("actor_tasks", &c.actor_tasks, {0, 100000},
               "tasks of the actors' array, each a host with "
               "actors.count / actor_tasks actors, rounded up");
  reader.Field("warning_s", &c.warning_s, {1, 36000},
               "seconds before the time limit at which the learner's job "
               "writes a checkpoint and is requeued");
  reader.Field(
      "idle_task_s", &c.idle_task_s, {0.0, 1e6},
      "seconds after which a task of the actors' array ends if all actors run "
      "on other hosts; 0: the task stands by to replace a lost host");
  reader.Field("options", &c.options, {0, 100},
               "further options of every job, one #SBATCH line each, for "
               "example: --qos=low");
  CheckForms(reader, "options", c.options, "--NAME=VALUE", &IsOption);
  return c;
}

KubernetesConfig KubernetesConfig::Read(config::Reader& reader) {
  KubernetesConfig c;
  reader.Field("image", &c.image, "container image of every pod");
  reader.Field("namespace", &c.space, "namespace of every object");
  reader.Field("actor_pods", &c.actor_pods, {0, 100000},
               "pods of actors, each with actors.count / actor_pods actors, "
               "rounded up");
  reader.Field("storage_class", &c.storage_class,
               "storage class of the volumes; empty: the cluster's default");
  reader.Field("run_storage", &c.run_storage,
               "size of the volume of the run folder, and of that of each "
               "parameter server with servers_on_hosts");
  reader.Field("replay_storage", &c.replay_storage,
               "size of the volume of the replay's checkpoints");
  reader.Field("queue", &c.queue,
               "Kueue's LocalQueue, which starts the run when there is room; "
               "empty: the run starts at once");
  reader.Field("topology", &c.topology,
               "label of nodes, such as cloud.provider.com/topology-rack, "
               "within whose value Kueue places the pods of a job if it can; "
               "empty: anywhere");
  reader.Field("user", &c.user, {0, 65534},
               "number of the user and group that run the programs; 0: the "
               "image's user");
  if (!c.topology.empty() && c.queue.empty()) {
    reader.Error("topology", "needs queue: Kueue places the pods");
  }
  return c;
}

ClusterConfig ClusterConfig::Read(config::Reader& reader) {
  ClusterConfig c;
  reader.Field(
      "backend", &c.backend,
      {{"local", ClusterBackend::kLocal},
       {"ssh", ClusterBackend::kSsh},
       {"slurm", ClusterBackend::kSlurm},
       {"kubernetes", ClusterBackend::kKubernetes}},
      "how other hosts are reached; local: no other hosts. Learner, replay and "
      "evaluator run on the launcher's host unless a key below moves them, "
      "actors on all hosts that join");
  reader.Field("address", &c.address,
               "numeric address at which other hosts reach the launcher's "
               "host; auto: the one from which it reaches the first host of "
               "`hosts`, else the one of its default route");
  reader.Field("port", &c.port, {0, 65535},
               "port at which hosts join the launcher; 0: a free one, "
               "announced in RUN/addresses.yaml");
  reader.Field(
      "local_actors", &c.local_actors, {0, 10000},
      "actors on the launcher's host, next to the learner; the others run on "
      "the hosts that join. With backend local, all actors run here");
  reader.Field("replay_on_host", &c.replay_on_host,
               "whether the replay runs on a host that joins by fleet --join "
               "... --role replay, instead of the launcher's host. replay.bind "
               "is then that host's tcp://HOST:PORT");
  reader.Field("workers_on_hosts", &c.workers_on_hosts,
               "whether each of the learner's workers, learner.replication's "
               "processes after the first, runs on a host that joins by fleet "
               "--join ... --role worker-N. fleet --render makes a job, a pod "
               "or a node for each");
  reader.Field("servers_on_hosts", &c.servers_on_hosts,
               "whether each parameter server runs on a host that joins by "
               "fleet --join ... --role server-N. learner.replication.servers "
               "are then auto each, and the servers tell their addresses to "
               "the run, or those hosts' tcp://HOST:PORT. fleet --render makes "
               "a job, a pod or a node for each");
  reader.Field("inference_on_host", &c.inference_on_host,
               "whether the inference server runs on a host that joins by "
               "fleet --join ... --role inference-0. actors.inference_bind is "
               "then auto, and the server tells its address to the run, or "
               "that host's tcp://HOST:PORT. fleet --render makes a job, a pod "
               "or a node for it");
  reader.Field("programs", &c.programs,
               "folder of the programs on the other hosts, or the path of "
               "your own program; empty: the same as here");
  reader.Field("host_timeout_s", &c.host_timeout_s, {2.0, 36000.0},
               "seconds of silence after which a host counts as lost: it ends "
               "its processes, and other hosts take over its actors. A shorter "
               "silence has no effect");
  reader.Field("join_timeout_s", &c.join_timeout_s, {1.0, 1e6},
               "seconds for which a host without a launcher waits for the next "
               "one before it gives up (an array task of Slurm, a pod)");
  reader.Sections("hosts", &c.hosts, {0, 10000},
                  "hosts of actors with backend ssh");
  c.ssh_command = kSshCommand;
  reader.Field("ssh_command", &c.ssh_command,
               "command that starts the agent on a host, with {host} and "
               "{command}. The command must forward its standard input, and "
               "end the agent at the end of that input");
  config::Reader roles = reader.Section(
      "roles", "resources and start command of one process of each role");
  const auto read = [&](const char* role, const char* doc,
                        RoleResources defaults) {
    config::Reader section = roles.Section(role, doc);
    c.roles[role] = RoleResources::Read(section, std::move(defaults));
  };
  read("actor", "every actor", {.has_pods = true});
  read("learner", "the learner", {.cores = 4, .has_pods = true});
  read("replay", "every replay service", {.cores = 2, .has_pods = true});
  read("inference", "the inference server", {.has_pods = true});
  read("evaluator", "the evaluator", {});
  read("server", "every parameter server", {.has_pods = true});
  read("worker", "every worker except the learner",
       {.cores = 4, .has_pods = true});
  reader.Section("slurm", &c.slurm, "job scripts of fleet --render slurm");
  reader.Section("kubernetes", &c.kubernetes,
                 "manifests of fleet --render kubernetes");
  reader.Section("skypilot", &c.skypilot,
                 "job group of fleet --render skypilot");

  if (c.backend == ClusterBackend::kSsh && c.hosts.empty()) {
    reader.Error("hosts", "must name the hosts of the actors with backend ssh");
  }
  std::set<std::string> names;
  for (const HostConfig& host : c.hosts) {
    if (!names.insert(host.name).second) {
      reader.Error("hosts", fmt::format("'{}' is given twice", host.name));
    }
  }
  return c;
}

std::vector<std::string> ClusterConfig::AddressesOf(
    std::string HostConfig::*part) const {
  std::vector<std::string> addresses;
  if (backend != ClusterBackend::kSsh) return addresses;
  for (const HostConfig& host : hosts) {
    if (!(host.*part).empty()) addresses.push_back(host.*part);
  }
  return addresses;
}

int64_t ClusterConfig::num_worker_hosts() const {
  return backend == ClusterBackend::kSsh
             ? std::ranges::count(hosts, true, &HostConfig::worker)
             : 0;
}

void ReplaceAll(const std::string& from, const std::string& to,
                std::string* text) {
  for (size_t at = text->find(from); at != std::string::npos;
       at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

std::vector<std::string> FillTemplate(const std::string& command_template,
                                      const std::vector<std::string>& words,
                                      const std::string& host) {
  if (command_template.empty()) return words;
  std::vector<std::string> filled;
  bool has_command = false;
  std::istringstream stream(command_template);
  for (std::string word; stream >> word;) {
    if (word == kCommandWord) {
      filled.insert(filled.end(), words.begin(), words.end());
      has_command = true;
      continue;
    }
    ReplaceAll(kHostWord, host, &word);
    filled.push_back(std::move(word));
  }
  if (!has_command) filled.insert(filled.end(), words.begin(), words.end());
  return filled;
}

std::string ResolveClusterAddress(const std::string& given,
                                  const std::vector<HostConfig>& hosts) {
  if (given != "auto") {
    in6_addr address{};
    if (::inet_pton(AF_INET, given.c_str(), &address) == 1) return given;
    if (::inet_pton(AF_INET6, given.c_str(), &address) == 1) {
      return "[" + given + "]";
    }
    throw ConfigError(fmt::format(
        "cluster.address: '{}' is not a numeric address such as 10.0.0.2; "
        "hint: auto, the default, finds this host's address",
        given));
  }
  for (const HostConfig& host : hosts) {
    for (const int family : {AF_INET, AF_INET6}) {
      const std::string name = host.name.substr(host.name.find('@') + 1);
      if (const auto address = AddressOfRoute(name, family)) return *address;
    }
  }
  // of documentation, so nobody has them
  if (const auto address = AddressOfRoute("192.0.2.1", AF_INET)) {
    return *address;
  }
  if (const auto address = AddressOfRoute("2001:db8::1", AF_INET6)) {
    return *address;
  }
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) list = nullptr;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(
      list, &::freeifaddrs);
  // a bridge may be for the containers of this host alone
  for (const bool is_bridge : {false, true}) {
    for (const int family : {AF_INET, AF_INET6}) {
      for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family ||
            (one->ifa_flags & IFF_RUNNING) == 0 ||
            IsBridge(one->ifa_name) != is_bridge) {
          continue;
        }
        if (const auto address = AddressForOthers(*one->ifa_addr)) {
          return *address;
        }
      }
    }
  }
  throw ConfigError(
      "cluster.address: this host has no network interface with a link; hint: "
      "give the numeric address at which the other hosts reach it");
}

std::string AddressBeside(const std::string& endpoint) {
  const size_t begin = endpoint.find("://") + 3;
  std::string host = endpoint.substr(begin, endpoint.rfind(':') - begin);
  if (host.starts_with("127.") || host == "[::1]") return host;
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  return ResolveClusterAddress("auto", {{.name = host}});
}

}  // namespace replicant::fleet
