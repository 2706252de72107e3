package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
)

// Handler handles all requests. Its fields are the parts that handle a request, in the order in which the request meets them,
// and then the parts that record it. A field must be set unless its comment says that it may be nil.
type Handler struct {
	// Draining reports whether the process is about to end.
	Draining func() bool
	// GoawayChance is the probability, from 0 to 1, that the answer to a request over HTTP/2 asks the client to connect
	// again.
	GoawayChance  float64
	Authenticator *auth.Authenticator
	Upstream      *upstream.Transports
	Limits        *limits.Limits
	// Policy says which resources are kept in memory.
	Policy     *policy.Config
	Cluster    *cluster.Cluster
	Authorizer *auth.Authorizer
	// Collections has the resources that are kept in memory.
	Collections *snapshot.Collections
	// ConsistentWait is the longest time for which a list of the newest state waits for the proof that memory is new enough.
	ConsistentWait time.Duration
	Compressor     *gzip.Compressor
	Forward        *forward.Forwarder
	// Unreachable reports whether no API server answers.
	Unreachable func() bool

	// AuditLog records the answers from memory. It may be nil: then there is no audit log.
	AuditLog *observe.AuditLog
	// WhoAmI finds out the names of callers for the audit log. It may be nil if AuditLog is nil.
	WhoAmI   *auth.WhoAmI
	Observer *observe.Observer
	Log      *slog.Logger
	// LogLimiter limits the log lines that callers can cause.
	LogLimiter *rate.Sometimes

	writers writerPool
}

// Chain returns the handler of all requests, from all listeners. As in kube-apiserver's DefaultBuildHandlerChain, each line
// wraps the handler from the line before, so a request passes the lines from the last to the first. A filter that refuses a
// request answers it.
func (h *Handler) Chain() http.Handler {
	var handler http.Handler = http.HandlerFunc(h.respond)      // the end: answers from memory or forwards
	handler = h.withSeat(handler)                               // waits for a seat, which is the right to be handled now
	handler = h.withAuthentication(handler)                     // finds out who calls
	handler = serve.WithBodyTimeout(handler, serve.BodyTimeout) // bounds the time in which a body must come
	handler = serve.OnlyPaths(handler)                          // refuses a target that is not a path at this API server
	handler = h.Observer.Observe(handler, h.Log)                // records the request for metrics, traces and the access log
	// The next line closes connections while the process ends, and makes HTTP/2 clients connect again now and then.
	handler = serve.CloseConnections(handler, h.Draining, h.GoawayChance)
	return kubehttp.WithRequest(handler) // the beginning: reads what the request asks for, once for all
}

// caller is the sender of a request. Only the seat changes while the request is handled.
type caller struct {
	// Caller is what a review needs to know about the sender.
	auth.Caller
	// verdict says whether kube-apiserver accepts the caller's credentials, as far as it was known when the request came.
	verdict auth.Verdict
	// lastProbe is the number of the last probe (a request for the upstream's revision) that was sent before this request came.
	// Every later probe proves a state that is new enough for this request, even if the request waited for its seat meanwhile.
	lastProbe uint64
	// seat is the request's right to be handled now. [limits.Limits] bounds the number of seats. The seat is paused while the
	// request waits for memory, or for the review of an unknown caller.
	seat limits.Grant
}

type callerContextKey struct{}

func withCaller(r *http.Request, who *caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerContextKey{}, who))
}

// callerOf returns the caller that [Handler.withAuthentication] has put into the request's context.
func callerOf(r *http.Request) *caller {
	return r.Context().Value(callerContextKey{}).(*caller) //nolint:forcetypeassert // the key has no other values
}

// withAuthentication identifies the caller, and puts it into the request's context.
func (h *Handler) withAuthentication(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if authenticated := h.authenticate(w, r); authenticated != nil {
			next.ServeHTTP(w, authenticated)
		}
	})
}

// authenticate returns the request with its caller, or nil if it has refused the request. Like takeSeat, it returns before the
// next filter runs, so a watch does not keep its variables on the stack for hours.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	lastProbe := h.Collections.LastProbe() // read first, so that every probe that is sent from here on has a higher number
	identity, refusal := h.Authenticator.Authenticate(r)
	if refusal != nil {
		observe.RecordOf(r.Context()).SetRefused(observe.RefusedIdentity)
		refusal.Write(w, r)
		return nil
	}
	verdict, flow := h.Upstream.VerdictOn(identity, r.RemoteAddr)
	return withCaller(r, &caller{
		Caller:    auth.Caller{Identity: identity, Accepted: verdict == auth.Accepted, Flow: flow},
		verdict:   verdict,
		lastProbe: lastProbe,
	})
}

// withSeat passes a request on once it has a seat, and answers 429 if it gets none in time.
func (h *Handler) withSeat(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := callerOf(r)
		if h.takeSeat(w, r, who) {
			defer who.seat.Release()
			next.ServeHTTP(w, r)
		}
	})
}

// takeSeat waits for the request's seat. It returns false if it has refused the request.
func (h *Handler) takeSeat(w http.ResponseWriter, r *http.Request, who *caller) bool {
	limiter := h.Limits.Short
	if kubehttp.RequestOf(r).LongRunning {
		limiter = h.Limits.LongRunning
	}
	seat, err := limiter.Acquire(r.Context(), who.Flow, 1)
	if err != nil {
		h.refuse(w, r, err)
		return false
	}
	who.seat = seat
	return true
}

// refuse answers 429 to a request for which a limiter of h.Limits has returned err. If the caller has left, refuse panics with
// [http.ErrAbortHandler].
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	label := observe.OtherLabel
	if overload, ok := errors.AsType[limits.Overload](err); ok {
		label = string(overload)
	}
	observe.RecordOf(r.Context()).SetRefused(label)
	if r.Context().Err() != nil {
		// The caller may still read, if it has closed only its half of the connection. Without the panic, it would read an
		// empty 200.
		panic(http.ErrAbortHandler)
	}
	h.logRateLimited("too much is in flight", err)
	kubehttp.WriteTooManyRequests(w, r)
}

// logRateLimited logs an error that callers can cause, at a limited rate.
func (h *Handler) logRateLimited(message string, err error) {
	h.LogLimiter.Do(func() { h.Log.Info(message, "error", err) })
}
