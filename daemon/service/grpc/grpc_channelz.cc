// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/grpc/grpc_channelz.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace arraybridge::daemon {
namespace {

namespace experimental = grpc::experimental;

class Guard final : public experimental::Interceptor {
 public:
  Guard(grpc::ServerContextBase& context, const MayLook& may_look) : context_(context), may_look_(may_look) {}

  void Intercept(experimental::InterceptorBatchMethods* methods) override {
    using Hook = experimental::InterceptionHookPoints;
    // A cancelled call does not return the service's answer to the caller.
    if (methods->QueryInterceptionHookPoint(Hook::POST_RECV_INITIAL_METADATA) && !may_look_(context_)) {
      context_.TryCancel();
    }
    methods->Proceed();
  }

 private:
  grpc::ServerContextBase& context_;
  const MayLook& may_look_;
};

class Guards final : public experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Guards(MayLook may_look) : may_look_(std::move(may_look)) {}

  experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* call) override {
    const bool is_channelz = std::string_view(call->method()).starts_with("/grpc.channelz.");
    return is_channelz ? new Guard(*call->server_context(), may_look_) : nullptr;  // owned by gRPC
  }

 private:
  const MayLook may_look_;
};

}  // namespace

void WishForChannelz() {
  static std::once_flag once;
  std::call_once(once, [] { grpc::channelz::experimental::InitChannelzService(); });
}

void GuardChannelz(grpc::ServerBuilder& builder, MayLook may_look) {
  std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>> guards;
  guards.push_back(std::make_unique<Guards>(std::move(may_look)));
  builder.experimental().SetInterceptorCreators(std::move(guards));
}

}  // namespace arraybridge::daemon
