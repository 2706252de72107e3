package observe

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

// writeAccessLog writes the request's line of the access log. The line has the namespace, but no query, no name of an object
// or caller, and no credential.
func (rec *Record) writeAccessLog(log *slog.Logger) {
	if rec.isIgnored {
		return
	}
	r := rec.request
	// port is the local port. For a request in a tunnel, it is the port for CONNECT.
	_, port, _ := net.SplitHostPort(fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)))
	attrs := []slog.Attr{
		slog.String("method", knownMethod(r.Method, otherMethod)), // the caller may have made the method up
		slog.String("target", kubehttp.LoggedTarget(r)),
		slog.String("port", port),
		slog.Int("code", rec.response.Code),
		slog.Int64("bytes", rec.response.Bytes),
		slog.Duration("duration", time.Since(rec.receivedAt)),
		slog.String("userAgent", telemetry.UserAgent(r.UserAgent())),
	}
	if namespace := kubehttp.LoggedNamespace(r); namespace != "" {
		attrs = append(attrs, slog.String("namespace", namespace))
	}
	// The target leaves out the query. So it says "list" for a watch that only the query (watch=true) asks for.
	if kubehttp.RequestOf(r).EndableWatch {
		attrs = append(attrs, slog.Bool("watch", true))
	}
	switch rec.labels.decision {
	case DecisionRefuse:
		attrs = append(attrs, slog.String("refused", rec.labels.reason))
	case DecisionForward:
		attrs = append(attrs, slog.String("cacheStatus", kubehttp.CacheForwarded(reason.Reason(rec.labels.reason))))
	case DecisionServe:
		attrs = append(attrs,
			slog.String("cacheStatus", kubehttp.CacheHit(rec.labels.semantics)),
			slog.Uint64("revision", rec.memory.Revision))
	}
	if !rec.handlerReturned { // a panic broke the answer off
		attrs = append(attrs, slog.Bool("broken", true))
	}
	// The line is written even if the client has left.
	log.LogAttrs(context.WithoutCancel(r.Context()), telemetry.LevelAccess, "request", attrs...)
}
