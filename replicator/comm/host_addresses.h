#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace replicant::comm {

// The addresses of this host's interfaces that are up, without loopback ones
// and those of a single link: of IPv4, then of IPv6 without brackets, each in
// the order of the interfaces.
std::vector<std::string> HostAddresses();

// Whether a TCP connection to an address of IPv4, or of IPv6 with or without
// brackets, can be made within `timeout`.
bool IsReachable(const std::string& address, int port,
                 std::chrono::milliseconds timeout);

// The network namespace of this process: equal for processes that share
// 127.0.0.1.
std::string NetworkName();

}  // namespace replicant::comm
