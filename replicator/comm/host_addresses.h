#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace replicant::comm {

// The IPv4 addresses of this host's interfaces that are up, without loopback
// ones, in the order of the interfaces.
std::vector<std::string> HostAddresses();

// Whether a TCP connection to an IPv4 address can be made within `timeout`.
bool IsReachable(const std::string& address, int port,
                 std::chrono::milliseconds timeout);

// The network namespace of this process: equal for processes that share
// 127.0.0.1.
std::string NetworkName();

}  // namespace replicant::comm
