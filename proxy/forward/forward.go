package forward

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry"
)

// Upstream is the API server, and the ways to reach it for a caller.
type Upstream interface {
	// URL returns the API server's base URL. Its path has no slash at the end.
	URL() *url.URL
	// RoundTripper returns the transport for a caller's request.
	RoundTripper(id auth.Identity, r *kubehttp.Request) http.RoundTripper
	// RecordAnswer records the status of the answer to a caller's request. upgrade means that the request asked for another
	// protocol.
	RecordAnswer(id auth.Identity, upgrade bool, method string, status int)
}

// Forwarder passes requests to the API server, and its answers back. Bodies are passed on as they come, with two exceptions:
//
//   - A request's body may be kept, so that it can be sent again ([Reserve]).
//   - An answer that its client reads as a whole, like a list or an object, may be buffered ([kubehttp.Request.Bufferable]).
//
// Forwarder is safe for concurrent use.
//
// The request that arrives at the API server differs from the caller's only in
//
//   - its Host, and its target if that has a space, which is escaped
//   - hop-by-hop headers
//   - headers that only a trusted proxy may set, like X-Remote-User (removeProxyHeaders)
//   - X-Forwarded-For, which holds the caller's address
//   - traceparent and tracestate, if listproxy makes spans
//   - the case of the names Idempotency-Key and X-Idempotency-Key (hideIdempotencyKeys)
//   - the credentials and trailers, if listproxy impersonates the caller: the request has listproxy's own credentials, names
//     the caller in Impersonate-* headers, and has no trailers. All other requests have the caller's credentials only.
//
// The answer differs from the API server's only in headers about the connection and the length, and in the headers that were
// set on the ResponseWriter before. If both have a header, the API server's values come first, as RFC 9211 wants for
// Cache-Status.
//
// An incomplete answer never looks complete. If either side breaks off after the answer has begun, a panic with
// [http.ErrAbortHandler] breaks off the other side's connection or stream. Handlers around this one must let the panic pass.
// A watch is complete after any event ([Forwarder.EndWatches]).
//
// If the API server gives no usable answer, the request is sent again where that is safe (see exchange). If that does not help,
// the caller gets a 503. It gets a 429 instead if the request could not be sent again because its body was not kept. Both have
// Retry-After if it is certain that no write was carried out.
type Forwarder struct {
	upstream Upstream
	base     *url.URL // of the API server
	log      *slog.Logger
	buffers  copyBuffers
	// logLimiter limits the warnings that callers and the API server can cause.
	logLimiter *rate.Sometimes

	shutdown      context.Context    // canceled by beginShutdown
	beginShutdown context.CancelFunc // called by EndWatches
	endSpread     time.Duration      // the time over which watches end; EndWatches sets it before it calls beginShutdown
}

// New returns a Forwarder to up. It logs failures of the API server as warnings, and requests that callers give up as debug
// messages.
func New(up Upstream, logger *slog.Logger) *Forwarder {
	shutdown, beginShutdown := context.WithCancel(context.Background())
	return &Forwarder{
		upstream:      up,
		base:          up.URL(),
		log:           logger,
		shutdown:      shutdown,
		beginShutdown: beginShutdown,
		logLimiter:    telemetry.NewLogLimiter(),
	}
}

// afterEachWrite is the FlushInterval with which a [httputil.ReverseProxy] flushes after each write.
const afterEachWrite time.Duration = -1

// ServeAs forwards r as a request of the caller id, and writes the answer to w. The target of r must be a path. ServeAs keeps
// r's body in memory that it gets from reserve, so that it can send the body again. If reserve is nil, the body is not kept.
func (f *Forwarder) ServeAs(w http.ResponseWriter, r *http.Request, id auth.Identity, reserve Reserve) {
	if reason, message := whyRefused(r, id); reason != "" {
		refuse(w, r, reason, message)
		return
	}
	asked := kubehttp.RequestOf(r)
	flushInterval := afterEachWrite // so that watch events arrive at once
	if asked.Bufferable() && r.Method != http.MethodHead {
		flushInterval = 0 // no flushes, since the client reads the answer as a whole
		w = unflushed{w}
	}
	body, release, err := readUpload(r, reserve)
	defer release()
	x := newExchange(f, w, r, id, body)
	if err != nil {
		x.fail(w, r, err)
		return
	}
	// cancel gives up the request to the API server: after too many attempts, or when the watch must end.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if asked.EndableWatch {
		x.watch = &forwardedWatch{cancel: cancel}
		stop := f.endAtShutdown(x.watch)
		defer stop()
	}
	spanTransport, endSpan := observe.RecordOf(ctx).ForwardTransport(x) // calls x.RoundTrip
	defer endSpan()
	reverse := x.reverseProxy(spanTransport, flushInterval)
	countingCtx := x.countAttempts(ctx, cancel)
	reverse.ServeHTTP(w, r.WithContext(countingCtx))
}

// whyRefused returns the reason why a request must not be forwarded, and the message to its sender. The reason is "" if the
// request may be forwarded.
func whyRefused(r *http.Request, id auth.Identity) (reason, message string) {
	if name := identityHeaderInConnection(r.Header); name != "" {
		return observe.RefusedConnection, fmt.Sprintf("The Connection header must not list %s, which is meant for the API server.", name)
	}
	// After an upgrade, the caller speaks on a connection that was opened with listproxy's credentials if listproxy
	// impersonates the caller. Such a connection is for the protocols of exec, attach and port-forward only.
	upgrade := kubehttp.RequestOf(r).Upgrade
	isOfKubernetes := strings.EqualFold(upgrade, "websocket") || strings.EqualFold(upgrade, "SPDY/3.1")
	if id.VerifiedUser() != nil && upgrade != "" && !isOfKubernetes {
		return observe.RefusedUpgrade,
			"With a client certificate, the connection can be upgraded to websocket and SPDY/3.1 only. Use a token."
	}
	return "", ""
}

// refuse answers a request that cannot be forwarded.
func refuse(w http.ResponseWriter, r *http.Request, reason, message string) {
	recordRefusal(w, r, reason)
	kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// recordRefusal records that listproxy itself refuses the request. It removes Cache-Status, which a proxy must not set on
// answers of its own (RFC 9211, section 2).
func recordRefusal(w http.ResponseWriter, r *http.Request, reason string) {
	w.Header().Del(kubehttp.CacheStatusHeader)
	observe.RecordOf(r.Context()).SetRefused(reason)
}
