package proxy

import (
	"errors"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
)

// RefusalReasons returns every reason for which listproxy itself refuses a request, for
// documentation and tests.
func RefusalReasons() []string {
	reasons := observe.RefusalReasons()
	for _, overload := range limits.Overloads() {
		reasons = append(reasons, string(overload))
	}
	return reasons
}

// refuse answers a request that got no seat, or no part of the byte budget.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	observe.RecordOf(r.Context()).Refused(refusalReason(err))
	if r.Context().Err() != nil {
		// The caller has gone. Or it has only closed its half of the connection: without the panic it
		// would read an empty 200.
		panic(http.ErrAbortHandler)
	}
	h.logRateLimited("too much is in flight", err)
	kubehttp.WriteTooManyRequests(w, r)
}

// refusalReason is the reason why listproxy refuses a request, in metrics and traces.
func refusalReason(err error) string {
	if overload, ok := errors.AsType[limits.Overload](err); ok {
		return string(overload)
	}
	return observe.OtherLabel
}
