// Package observetest has helpers for tests of packages that use observe.
package observetest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/test/proxytest"
)

// New returns an Observer for an API server of pods and namespaces, and the registry of its metrics. With nil traces the
// Observer makes no spans.
func New(traces *sdktrace.TracerProvider) (*observe.Observer, *prometheus.Registry) {
	metrics := prometheus.NewPedanticRegistry()
	o := observe.New(traces, metrics)
	o.IsServed = func(group, version, resource string) bool {
		return group == "" && version == "v1" && (resource == "pods" || resource == "namespaces")
	}
	return o, metrics
}

// Seen is what a handler gets of a request that an Observer observes: the Observer's record of it, the writer of the answer,
// and the request.
type Seen struct {
	*observe.Record
	http.ResponseWriter
	Request *http.Request
}

// Request serves r by handle while o observes it. handle may panic with [http.ErrAbortHandler] to break off its answer.
func Request(o *observe.Observer, r *http.Request, handle func(Seen)) {
	Logged(o, proxytest.DiscardLog(), r, handle)
}

// Logged is [Request] with an access log, into which o writes a line about the request.
func Logged(o *observe.Observer, log *slog.Logger, r *http.Request, handle func(Seen)) {
	defer func() {
		if cause := recover(); cause != nil && cause != any(http.ErrAbortHandler) {
			panic(cause)
		}
	}()
	o.Observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(Seen{Record: observe.RecordOf(r.Context()), ResponseWriter: w, Request: r})
	}), log).ServeHTTP(httptest.NewRecorder(), r)
}

// Unread returns an Observer for tests that read neither metrics nor spans.
func Unread() *observe.Observer {
	o, _ := New(nil)
	return o
}
