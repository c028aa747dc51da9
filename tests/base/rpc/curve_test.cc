#include "base/rpc/curve.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/client.h"
#include "base/rpc/zap.h"
#include "tests/base/rpc/running_server.h"

namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Clock::Duration kLong = seconds(10);
constexpr uint16_t kEcho = 1;

const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "echo");
  return protocol;
}

template <typename Exception, typename Call>
std::string TextOf(const Call& call) {
  try {
    call();
  } catch (const Exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(CurveTest, KeysAreZ85AndDiffer) {
  const CurveKeyPair first = GenerateCurveKeyPair();
  const CurveKeyPair second = GenerateCurveKeyPair();
  EXPECT_TRUE(IsCurveKey(first.public_key));
  EXPECT_TRUE(IsCurveKey(first.secret_key));
  EXPECT_NE(first, second);
  EXPECT_FALSE(IsCurveKey(""));
  EXPECT_FALSE(IsCurveKey(std::string(39, 'a')));
  EXPECT_FALSE(IsCurveKey(std::string(39, 'a') + " "));
}

TEST(CurveTest, KeyFileIsForItsOwnerAloneAndComesBack) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "service.key";
  const CurveKeyPair keys = GenerateCurveKeyPair();
  WriteKeyPair(path, keys);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(ReadKeyPair(path), keys);

  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(TextOf<IoError>([&] { ReadKeyPair(path); }),
            path.string() +
                ": mode 0644 lets others read a secret key; hint: chmod 600");
}

// Would catch a pod of another user than root that cannot read its secret, and
// a key that any group may read.
TEST(CurveDeathTest, AFileOfRootIsForItsGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t kUser = 12345;
  constexpr gid_t kGroup = 23456;
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const auto path = folder.path() / "secret.key";
  WriteKeyPair(path, GenerateCurveKeyPair());
  ASSERT_EQ(::chown(path.c_str(), 0, kGroup), 0);
  // 0: it can be read; 1: it cannot
  const auto read_as = [&](gid_t own, gid_t further) {
    if (::setgroups(1, &further) != 0 || ::setgid(own) != 0 ||
        ::setuid(kUser) != 0) {
      std::_Exit(2);
    }
    std::_Exit(TextOf<IoError>([&] { ReadKeyPair(path); }) == "nothing thrown"
                   ? 0
                   : 1);
  };
  using ::testing::ExitedWithCode;
  ASSERT_EQ(::chmod(path.c_str(), 0440), 0);
  EXPECT_EXIT(read_as(kGroup, kUser), ExitedWithCode(0), "");
  EXPECT_EXIT(read_as(kUser, kGroup), ExitedWithCode(0), "");
  EXPECT_EXIT(read_as(kUser, kUser), ExitedWithCode(1), "");
  for (const mode_t bad : {0444, 0460, 0450}) {
    ASSERT_EQ(::chmod(path.c_str(), bad), 0);
    EXPECT_EXIT(read_as(kGroup, kUser), ExitedWithCode(1), "");
  }
}

TEST(CurveTest, BrokenKeyFileIsAnErrorThatShowsNoSecret) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "broken.key";
  const CurveKeyPair keys = GenerateCurveKeyPair();
  AtomicWriteFile(path,
                  "public_key = " + keys.public_key +
                      "\nsecret_key = " + keys.secret_key + "x\n",
                  0600);
  EXPECT_EQ(TextOf<IoError>([&] { ReadKeyPair(path); }),
            path.string() +
                ":2: expected 'secret_key = ' and a key of 40 Z85 characters");
  EXPECT_THROW(ReadKeyPair(folder.path() / "none"), IoError);
}

TEST(CurveTest, PublicKeyListSkipsCommentsAndRefusesOtherLines) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "clients";
  const std::vector<std::string> keys = {GenerateCurveKeyPair().public_key,
                                         GenerateCurveKeyPair().public_key};
  WritePublicKeys(path, keys);
  EXPECT_EQ(ReadPublicKeys(path), keys);
  AtomicWriteFile(path, "# actors\n\n" + keys[0] + "\n");
  EXPECT_EQ(ReadPublicKeys(path), std::vector<std::string>{keys[0]});
  AtomicWriteFile(path, "abc\n");
  EXPECT_EQ(
      TextOf<IoError>([&] { ReadPublicKeys(path); }),
      path.string() +
          ":1: expected a public key of 40 Z85 characters, got 3 characters");
}

TEST(CurveTest, KeyOfTheWrongFormIsRefusedWithoutShowingIt) {
  ZmqContext context;
  SocketOptions options;
  options.curve = CurveServer{{"", "secret"}};
  EXPECT_EQ(TextOf<InvalidArgument>(
                [&] { ZmqSocket(context, SocketType::kRouter, options); }),
            "CURVE: secret key: expected 40 Z85 characters, got 6 characters");
  EXPECT_THROW(ZapHandler(context, {"nonsense"}), InvalidArgument);
}

// Would catch a pod that cannot listen at the name under which others know it.
TEST(CurveTest, AServerListensAtTheAddressOfAName) {
  ZmqContext context;
  const ZapHandler zap(context, {});
  ZmqSocket router(context, SocketType::kRouter,
                   {.curve = CurveServer{GenerateCurveKeyPair()}});
  EXPECT_EQ(router.Bind("tcp://localhost:*").rfind("tcp://127.0.0.1:", 0), 0U);
  EXPECT_THROW(router.Bind("tcp://no-such.invalid:*"), CommError);
}

TEST(CurveTest, ServerWithoutAListOfClientsMayNotBind) {
  ZmqContext context;
  SocketOptions options;
  options.curve = CurveServer{GenerateCurveKeyPair()};
  ZmqSocket router(context, SocketType::kRouter, options);
  EXPECT_EQ(TextOf<InvalidArgument>([&] { router.Bind("tcp://127.0.0.1:*"); }),
            "bind tcp://127.0.0.1:*: CURVE without a ZapHandler would let "
            "every client in; hint: make the ZapHandler first");
}

// An encrypted echo server that knows one client.
class CurveServerTest : public ::testing::Test {
 protected:
  CurveServerTest() : zap_(server_context_, {client_keys_.public_key}) {
    ServerOptions options;
    options.socket.curve = CurveServer{server_keys_};
    server_.emplace(server_context_, TestProtocol(), options);
    server_->Handle(kEcho, [](Request& request, Responder responder) {
      responder.Reply(std::move(request.payload));
    });
    endpoint_ = server_->Bind("tcp://127.0.0.1:*");
    loop_.emplace("server", [this](const auto&) { server_->Run(); });
  }
  ~CurveServerTest() override {
    server_->Stop();
    loop_->Join();
  }

  // The outcome for a client with these keys.
  CallResult ConnectWith(const CurveRole& role, Clock::Duration timeout) {
    ZmqContext context;
    ClientOptions options;
    options.socket.curve = role;
    options.socket.handshake_ms = 200;
    Client client(context, TestProtocol(), options);
    client.Connect(endpoint_);
    // a failed handshake is reported by the first deadline after it
    CallResult result = client.AwaitSession(timeout);
    const Clock::TimePoint end = Clock::Real().Now() + kLong;
    while (result == CallResult::kTimeout && Clock::Real().Now() < end) {
      result = client.AwaitSession(timeout);
    }
    return result;
  }

  const CurveKeyPair server_keys_ = GenerateCurveKeyPair();
  const CurveKeyPair client_keys_ = GenerateCurveKeyPair();
  ZmqContext server_context_;
  ZapHandler zap_;
  std::optional<Server> server_;
  std::string endpoint_;
  std::optional<Thread> loop_;
};

TEST_F(CurveServerTest, KnownKeyIsLetIn) {
  EXPECT_EQ(
      ConnectWith(CurveClient{client_keys_, server_keys_.public_key}, kLong),
      CallResult::kOk);
  EXPECT_EQ(zap_.num_refused(), 0u);
}

TEST_F(CurveServerTest, UnknownKeyIsRefusedAndTheClientToldWhy) {
  const CurveClient stranger{GenerateCurveKeyPair(), server_keys_.public_key};
  EXPECT_EQ(TextOf<CommError>(
                [&] { static_cast<void>(ConnectWith(stranger, kLong)); }),
            "connect " + endpoint_ +
                ": the peer refused this side's CURVE key (status 400); hint: "
                "is the key in its list of allowed keys?");
  EXPECT_GE(zap_.num_refused(), 1u);
}

TEST_F(CurveServerTest, MissingKeyIsRefusedAndTheClientToldWhy) {
  EXPECT_THAT(TextOf<CommError>([&] {
                static_cast<void>(ConnectWith(std::monostate(), kLong));
              }),
              AnyOf(HasSubstr("only one of the two sides has CURVE keys"),
                    HasSubstr("does this side have keys if the peer does?")));
}

TEST_F(CurveServerTest, WrongServerKeyIsToldAtTheDeadline) {
  const CurveClient wrong{client_keys_, GenerateCurveKeyPair().public_key};
  EXPECT_THAT(TextOf<CommError>([&] {
                static_cast<void>(ConnectWith(wrong, milliseconds(10)));
              }),
              HasSubstr("hint: is its public key right"));
}

TEST(CurveDeathTest, SecondZapHandlerOfAContextAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ZmqContext context;
        const ZapHandler first(context, {});
        const ZapHandler second(context, {});
      },
      "a second ZapHandler of one context");
}

}  // namespace
}  // namespace replicant::rpc
