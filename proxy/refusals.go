package proxy

import (
	"errors"

	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/observe"
)

// RefusalReasons returns every reason for which listproxy itself refuses a request, for
// documentation and tests.
func RefusalReasons() []string {
	reasons := observe.RefusalReasons()
	for _, overload := range inflight.Overloads() {
		reasons = append(reasons, string(overload))
	}
	return reasons
}

// refusalReason is why listproxy refuses a request, in metrics and traces.
func refusalReason(err error) string {
	if overload, is := errors.AsType[inflight.Overload](err); is {
		return string(overload)
	}
	if errors.Is(err, forward.ErrEndInOrder) {
		return observe.RefusedTaken
	}
	return observe.OtherLabel
}
