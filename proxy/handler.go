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

// Handler has the parts that handle a request. [Handler.Chain] has their order. Those that may be nil say
// so.
type Handler struct {
	// Draining reports whether the process is about to end.
	Draining func() bool
	// GoawayChance is the part of requests over HTTP/2 after which the client is told to connect again.
	GoawayChance float64

	// ConsistentWait is the time for which a list of the newest state may wait for the proof.
	ConsistentWait time.Duration

	Authenticator *auth.Authenticator
	Limits        *limits.Limits
	Upstream      *upstream.Transports
	// Unreachable reports whether no API server answers.
	Unreachable func() bool
	Forward     *forward.Forwarder
	// Policy says which resources are kept in memory.
	Policy     *policy.Config
	Cluster    *cluster.Cluster
	Authorizer *auth.Authorizer
	// WhoAmI finds out the names of callers; nil if there is no audit log.
	WhoAmI      *auth.WhoAmI
	Collections *snapshot.Collections
	Compressor  *gzip.Compressor
	// AuditLog has the answers from memory; nil if there is no audit log.
	AuditLog *observe.AuditLog
	Observer *observe.Observer
	Log      *slog.Logger
	// LogLimiter limits the log lines that callers can cause.
	LogLimiter *rate.Sometimes

	writers writerPool
}

// Chain returns the handler of all requests, from all listeners. A request passes these filters,
// from the first to the last, and then respond. A filter that refuses a request answers it.
func (h *Handler) Chain() http.Handler {
	return wrap(http.HandlerFunc(h.respond),
		kubehttp.WithRequestInfo, // what the request asks for, read once for all
		h.withConnectionClose,    // while the process ends, each answer gives up its connection
		h.withGoaway,             // now and then, an answer makes its client connect again
		h.withRecord,             // metrics, the trace and the access log
		serve.OnlyPaths,          // only a path, and only for this API server
		h.withBodyLimit,          // no body is too long, or comes too slowly
		h.withAuthentication,     // who calls
		h.withSeat,               // one seat each: bounded, and shared fairly between callers
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
	return serve.Goaway(next, h.GoawayChance)
}

func (h *Handler) withRecord(next http.Handler) http.Handler { return h.Observer.Observe(next, h.Log) }

func (h *Handler) withBodyLimit(next http.Handler) http.Handler {
	return serve.LimitBodies(next, serve.BodyTime)
}

// withAuthentication finds out who calls, and puts the caller into the request's context.
func (h *Handler) withAuthentication(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r := h.authenticate(w, r); r != nil {
			next.ServeHTTP(w, r)
		}
	})
}

// authenticate returns the request with its caller; nil if it has refused the request. Filters do
// such work in functions of their own, so that its stack is free again while the rest of the chain
// runs, which is hours for a watch.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	who := &caller{lastProbe: h.Collections.LastProbe(), seat: &limits.Grant{}}
	var refusal *auth.Refusal
	if who.Identity, refusal = h.Authenticator.Authenticate(r); refusal == nil {
		who.verdict, who.Flow = h.Upstream.Caller(who.Identity, r.RemoteAddr)
		who.Accepted = who.verdict == auth.Accepted
	}
	if refusal != nil {
		observe.RecordOf(r.Context()).SetRefused(observe.RefusedIdentity)
		refusal.Write(w, r)
		return nil
	}
	return withCaller(r, who)
}

// caller is the sender of a request. All but the seat stays the same for the whole request.
type caller struct {
	// Caller is the caller in reviews.
	auth.Caller
	// verdict is kube-apiserver's verdict about the caller when the request came.
	verdict auth.Verdict
	// lastProbe is the number of the last probe that was sent before the request came: a later one
	// proves the newest state for it, even one that was sent while the request waited for its seat.
	lastProbe uint64
	// seat is the request's own. It is paused while the request waits for memory, or for a newcomer's review.
	seat *limits.Grant
}

type callerContextKey struct{}

func withCaller(r *http.Request, who *caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerContextKey{}, who))
}

// callerOf returns the caller of the request that ctx belongs to: the zero caller before
// [Handler.withAuthentication].
func callerOf(ctx context.Context) *caller {
	if who, ok := ctx.Value(callerContextKey{}).(*caller); ok {
		return who
	}
	return &caller{}
}

// withSeat passes a request on when it has a seat, and answers 429 if it gets none in time.
func (h *Handler) withSeat(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seat := callerOf(r.Context()).seat; h.admit(w, r, seat) {
			defer seat.Release()
			next.ServeHTTP(w, r)
		}
	})
}

// admit takes the request's seat, and returns false if it has refused the request.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, seat *limits.Grant) bool {
	long, who := kubehttp.RequestOf(r).LongRunning, callerOf(r.Context())
	observe.RecordOf(r.Context()).SetLongRunning(long)
	limiter := h.Limits.Requests
	if long {
		limiter = h.Limits.LongRunning
	}
	var err error
	if *seat, err = limiter.Acquire(r.Context(), who.Flow, 1); err != nil {
		h.refuse(w, r, err)
	}
	return err == nil
}

// logRateLimited logs an error that callers can cause, at a limited rate.
func (h *Handler) logRateLimited(message string, err error) {
	h.LogLimiter.Do(func() { h.Log.Info(message, "error", err) })
}
