package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
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

// Handler has the parts that handle a request, in the order of [Handler.Chain]. All must be set, unless they say that they
// may be nil.
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
	// Collections has the memory.
	Collections *snapshot.Collections
	// ConsistentWait bounds the time for which a list of the newest state waits for the proof that memory has this state.
	ConsistentWait time.Duration
	Compressor     *gzip.Compressor
	Forward        *forward.Forwarder
	// Unreachable reports whether no API server answers.
	Unreachable func() bool

	// AuditLog has the answers from memory; nil if there is no audit log.
	AuditLog *observe.AuditLog
	// WhoAmI finds out the names of callers for the audit log; nil if there is none.
	WhoAmI   *auth.WhoAmI
	Observer *observe.Observer
	Log      *slog.Logger
	// LogLimiter limits the log lines that callers can cause.
	LogLimiter *rate.Sometimes

	writers writerPool
}

// Chain returns the handler of all requests, from all listeners. A request passes these filters from the first to the last,
// and then respond. A filter that refuses a request answers it.
func (h *Handler) Chain() http.Handler {
	return wrap(http.HandlerFunc(h.respond),
		kubehttp.WithRequest,  // reads what the request asks for, once for all filters
		h.withConnectionClose, // makes each answer give up its connection while the process ends
		h.withGoaway,          // makes a client connect again now and then
		h.withRecord,          // keeps the record for metrics, the trace and the access log
		serve.OnlyPaths,       // refuses a target that is not a path at this API server
		h.withBodyTimeout,     // bounds the time in which a body must come
		h.withAuthentication,  // finds out who calls
		h.withSeat,            // waits for one of the seats, which callers share fairly
	)
}

// filter wraps next: the handler that it returns calls next, or refuses the request.
type filter func(next http.Handler) http.Handler

// wrap puts the filters in front of end. A request passes the first one first.
func wrap(end http.Handler, filters ...filter) http.Handler {
	for _, f := range slices.Backward(filters) {
		end = f(end)
	}
	return end
}

func (h *Handler) withConnectionClose(next http.Handler) http.Handler {
	return serve.CloseWhileDraining(next, h.Draining)
}

func (h *Handler) withGoaway(next http.Handler) http.Handler {
	return serve.SpreadByGoaway(next, h.GoawayChance)
}

func (h *Handler) withRecord(next http.Handler) http.Handler { return h.Observer.Observe(next, h.Log) }

func (h *Handler) withBodyTimeout(next http.Handler) http.Handler {
	return serve.WithBodyTimeout(next, serve.BodyTimeout)
}

// withAuthentication finds out who calls, and puts the caller into the request's context.
func (h *Handler) withAuthentication(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if authenticated := h.authenticate(w, r); authenticated != nil {
			next.ServeHTTP(w, authenticated)
		}
	})
}

// authenticate returns the request with its caller; nil if it has refused the request. Like admit, it is a function of its
// own so that its stack is free while the rest of the chain runs, which for a watch takes hours.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	lastProbe := h.Collections.LastProbe() // read as early as possible, so that more probes count as later
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
		seat:      &limits.Grant{}, // admit fills it
	})
}

// caller is the sender of a request. Only the seat changes while the request is handled.
type caller struct {
	// Caller is the caller in reviews.
	auth.Caller
	// verdict is kube-apiserver's verdict about the caller when the request came.
	verdict auth.Verdict
	// lastProbe is the number of the last probe that was sent before the request came. Any later probe proves the newest
	// state for the request, even a probe that was sent while the request waited for its seat.
	lastProbe uint64
	// seat is the request's seat. It is paused while the request waits for memory, or for the review of an unknown caller.
	seat *limits.Grant
}

type callerContextKey struct{}

func withCaller(r *http.Request, who *caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerContextKey{}, who))
}

// callerOf returns the caller of the request with this context. Before [Handler.withAuthentication] that is a zero caller.
func callerOf(ctx context.Context) *caller {
	if who, ok := ctx.Value(callerContextKey{}).(*caller); ok {
		return who
	}
	return &caller{}
}

// withSeat passes a request on when it has a seat, and answers 429 if it gets none in time.
func (h *Handler) withSeat(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := callerOf(r.Context())
		if h.admit(w, r, who) {
			defer who.seat.Release()
			next.ServeHTTP(w, r)
		}
	})
}

// admit waits for the request's seat. It returns false if it has refused the request.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, who *caller) bool {
	limiter := h.Limits.Short
	if kubehttp.RequestOf(r).LongRunning {
		limiter = h.Limits.LongRunning
	}
	seat, err := limiter.Acquire(r.Context(), who.Flow, 1)
	if err != nil {
		h.refuse(w, r, err)
		return false
	}
	*who.seat = seat
	return true
}

// logRateLimited logs an error that callers can cause, at a limited rate.
func (h *Handler) logRateLimited(message string, err error) {
	h.LogLimiter.Do(func() { h.Log.Info(message, "error", err) })
}
