#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace nibble {

// A view of a callable, cheap to pass by value. It does not own the callable:
// use it for parameters only, never store it.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename Callable,
            typename = std::enable_if_t<
                !std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>>>
  // NOLINTNEXTLINE(google-explicit-constructor): as std::function converts
  FunctionRef(Callable&& callable)
      : object_(const_cast<void*>(  // NOLINT: the call restores constness
            static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const {
    return call_(object_, std::forward<Args>(args)...);
  }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace nibble
