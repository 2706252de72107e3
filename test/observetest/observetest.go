// Package observetest has what tests of packages above observe share.
package observetest

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/test/proxytest"
)

// New returns an Observer, which knows pods and namespaces, and the metrics that it counts in.
func New(traces *sdktrace.TracerProvider) (*observe.Observer, *prometheus.Registry) {
	metrics := prometheus.NewPedanticRegistry()
	o := observe.New(traces, metrics)
	o.Serves = func(group, version, resource string) bool {
		return group == "" && version == "v1" && (resource == "pods" || resource == "namespaces")
	}
	return o, metrics
}

// Seen is a request while it is observed.
type Seen struct {
	*observe.Record
	http.ResponseWriter
	Request *http.Request
}

// Request lets o observe a request from beginning to end. In between, then is called. It may panic with
// [http.ErrAbortHandler], as a handler does that breaks off its answer.
func Request(o *observe.Observer, r *http.Request, then func(Seen)) {
	Logged(o, proxytest.DiscardLog(), r, then)
}

// Logged is Request with an access log.
func Logged(o *observe.Observer, log *slog.Logger, r *http.Request, then func(Seen)) {
	defer func() {
		end := recover()
		if err, ok := end.(error); end != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			panic(end)
		}
	}()
	o.Observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		then(Seen{observe.RecordOf(r.Context()), w, r})
	}), log).ServeHTTP(httptest.NewRecorder(), r)
}

// Unread returns an Observer for a test that does not look at what it tells.
func Unread() *observe.Observer {
	o, _ := New(nil)
	return o
}
