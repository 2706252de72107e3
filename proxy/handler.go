package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/telemetry"
)

// Handler has the parts that handle a request. [Handler.Chain] has their order.
type Handler struct {
	// Draining says whether the process is about to end.
	Draining func() bool
	// StallTimeout is how long a client may read nothing of its answer, or send nothing of its body,
	// before it is cut off; 0 is never.
	StallTimeout time.Duration
	// MaxBodyBytes bounds the body of a request; 0 is no bound.
	MaxBodyBytes int64

	// ConsistentWait is how long a list of the newest state may wait for the proof.
	ConsistentWait time.Duration

	Authenticator *authn.Authenticator
	Inflight      *inflight.Bounds
	Upstream      *upstream.Transports
	Forward       *forward.Forwarder
	// Policy says what is kept. It must not be nil.
	Policy     *policy.Config
	Catalog    *discovery.Catalog
	Schemas    *discovery.Schemas
	Authorizer *authz.Authorizer
	// WhoAmI says who callers are; nil if there is no audit log.
	WhoAmI *authz.WhoAmI
	// Impersonator is nil if no user is impersonated.
	Impersonator *authz.Impersonator
	Collections  *snapshot.Collections
	Compressor   *gzip.Compressor
	// AuditLog has what is answered from memory; nil if there is none.
	AuditLog *audit.Log
	// Observer is nil if requests are not observed.
	Observer *observe.Observer
	Log      *slog.Logger

	// seldom limits the log lines that callers can cause.
	seldom  telemetry.Seldom
	writers writerPool
}

// Chain returns the handler of all requests, from all listeners. A request passes these filters,
// from the first to the last, and then respond. A filter that refuses a request answers it.
func (h *Handler) Chain() http.Handler {
	return through(http.HandlerFunc(h.respond),
		kubehttp.WithRequestInfo, // what the request asks for, read once for all
		h.withConnectionClose,    // while the process ends, each answer gives up its connection
		h.withStallGuard,         // clients that do not read or send are cut off
		h.withRecord,             // metrics, the trace and the access log
		h.withOnlyPaths,          // only a path, and only for this API server
		h.withBodyLimit,          // no body is too long
		h.withAuthentication,     // who calls
		h.withInflight,           // the request's turn: bounded, and shared between callers
	)
}

// filter wraps next: the handler that it returns calls next, or refuses the request.
type filter func(next http.Handler) http.Handler

// through puts the filters in front of end; a request passes the first one first.
func through(end http.Handler, filters ...filter) http.Handler {
	for _, f := range slices.Backward(filters) {
		end = f(end)
	}
	return end
}

func (h *Handler) withConnectionClose(next http.Handler) http.Handler {
	return server.CloseWhileDraining(next, h.Draining)
}

func (h *Handler) withStallGuard(next http.Handler) http.Handler {
	return server.NewStallGuard(h.StallTimeout, h.Log).Wrap(next)
}

func (h *Handler) withRecord(next http.Handler) http.Handler { return h.Observer.Observe(next, h.Log) }

func (h *Handler) withOnlyPaths(next http.Handler) http.Handler { return server.OnlyPaths(next, h.Log) }

func (h *Handler) withBodyLimit(next http.Handler) http.Handler {
	return server.LimitBodies(next, h.MaxBodyBytes)
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
// such work in functions of their own: what these need on the stack is not kept there while the rest
// of the chain is running, which is hours for a watch.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) *http.Request {
	record := observe.RecordOf(r.Context())
	who := &caller{lastProbe: h.Collections.LastProbe()}
	var refusal *authn.Refusal
	if who.identity, refusal = h.Authenticator.Authenticate(r); refusal == nil {
		who.verdict, who.share = h.Upstream.Caller(who.identity, r.RemoteAddr)
	}
	r = record.Trace(r, who.accepted()) // a caller's trace is continued only if kube-apiserver knows the caller
	if refusal != nil {
		record.Refused(w.Header(), observe.RefusedIdentity)
		refusal.Write(w, r)
		return nil
	}
	return withCaller(r, who)
}

// caller is who sends a request, and when. It stays the same for the whole request.
type caller struct {
	identity authn.Identity
	// verdict is what kube-apiserver had said of the caller when the request came.
	verdict upstream.Verdict
	share   inflight.ShareKey
	// lastProbe is the number of the last probe that was sent before the request came: a later one
	// proves the newest state for it, even one that was sent while the request waited for its turn.
	lastProbe uint64
}

func (c caller) accepted() bool { return c.verdict == upstream.Accepted }

// asked is the caller, for questions to kube-apiserver about it.
func (c caller) asked() authz.Caller {
	return authz.Caller{Identity: c.identity, Accepted: c.accepted(), Share: c.share}
}

type callerContextKey struct{}

func withCaller(r *http.Request, who *caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerContextKey{}, who))
}

// callerOf returns the caller of the request that ctx belongs to: the zero caller before
// [Handler.withAuthentication].
func callerOf(ctx context.Context) caller {
	if who, ok := ctx.Value(callerContextKey{}).(*caller); ok {
		return *who
	}
	return caller{}
}

// withInflight passes a request on when its turn comes, and answers 429 if the turn does not come.
func (h *Handler) withInflight(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turn, r := h.admit(w, r); turn != nil {
			defer turn.end()
			next.ServeHTTP(w, r)
			if turn.wasCut() {
				panic(http.ErrAbortHandler) // another request on this connection would end at once
			}
		}
	})
}

// lateEnd is how long a long-running request whose place is taken has until its end: twice what
// package forward gives to an event under way.
const lateEnd = 2 * time.Second

// turn is what a request holds that was let in.
type turn struct {
	place  inflight.Place
	leave  func()                  // gives its connection back; nil if it has none
	cancel context.CancelCauseFunc // of a long-running request's context

	mu     sync.Mutex
	client http.ResponseWriter // nil when the handler is about to return
	cut    bool                // cutOff has ended what client reads and writes
}

func (t *turn) end() {
	if t.leave != nil {
		t.leave()
	}
	if t.cancel != nil {
		t.cancel(nil)
	}
	t.mu.Lock()
	t.client = nil
	t.mu.Unlock()
	t.place.Release()
}

// cutOff ends the reads and writes of the client's connection or stream. A handler whose client reads
// nothing does not notice otherwise that the request's context has ended; nor does one that passes on
// what comes on an upgraded connection.
func (t *turn) cutOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil {
		t.cut = true
		control, past := http.NewResponseController(t.client), time.Unix(1, 0)
		_ = control.SetReadDeadline(past) // fails only if the connection is gone
		_ = control.SetWriteDeadline(past)
	}
}

func (t *turn) wasCut() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// admit lets a request in when its turn comes; it returns nil if it has refused it.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) (*turn, *http.Request) {
	long, who := kubehttp.Of(r).LongRunning, callerOf(r.Context())
	observe.RecordOf(r.Context()).LongRunning(long)
	t := &turn{client: w}
	var err error
	var end func() // for a caller who needs the place
	if long {
		ctx, cancel := context.WithCancelCause(r.Context())
		r, t.cancel = r.WithContext(ctx), cancel
		end = func() {
			h.seldom.Do(func() {
				h.Log.Info("a long-running request is ended: its caller has the most of them, and another caller needs its place")
			})
			cancel(forward.ErrEndInOrder)
			time.AfterFunc(lateEnd, t.cutOff)
		}
	}
	if t.place, err = h.Inflight.Admit(r.Context(), who.share, who.accepted(), end); err != nil {
		h.refuse(w, r, err)
		return nil, nil
	}
	if who.accepted() {
		t.leave = inflight.UseConnection(r.Context(), who.share)
		server.CallerKnown(r.Context(), long)
	}
	return t, r
}

// rarely logs an error that callers can cause, at a limited rate.
func (h *Handler) rarely(message string, err error) {
	h.seldom.Do(func() { h.Log.Info(message, "error", err) })
}
