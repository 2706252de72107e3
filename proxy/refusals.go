package proxy

import (
	"errors"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
)

// refuse answers a request for which no seat was free, or no room in --max-inflight-bytes. err says which.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	observe.RecordOf(r.Context()).SetRefused(refusalReason(err))
	if r.Context().Err() != nil {
		// The caller has left, or has only closed its half of the connection and still reads. Without the panic, it would
		// read an empty 200.
		panic(http.ErrAbortHandler)
	}
	h.logRateLimited("too much is in flight", err)
	kubehttp.WriteTooManyRequests(w, r)
}

// refusalReason returns the reason for a refusal in metrics and traces.
func refusalReason(err error) string {
	if overload, ok := errors.AsType[limits.Overload](err); ok {
		return string(overload)
	}
	return observe.OtherLabel
}
