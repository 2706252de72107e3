package observe

import (
	"context"
	"log/slog"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

// log writes the one line that a request has in the log. It holds the namespace (see
// [kubehttp.DescribeWithNamespace]), and neither the query nor names of objects or callers nor
// credentials.
func (rec *Record) log(log *slog.Logger) {
	if rec.ignored {
		return
	}
	r := rec.request
	target, namespace := kubehttp.DescribeWithNamespace(r)
	method, _ := methodName(r.Method) // any that is not HTTP's own is a word of the caller's
	attrs := []slog.Attr{
		slog.String("method", method),
		slog.String("target", target),
		slog.String("listener", string(kubehttp.ListenerOf(r.Context()))),
		slog.Int("code", rec.answer.Code),
		slog.Int64("bytes", rec.answer.Bytes),
		slog.Duration("duration", time.Since(rec.begun)),
		slog.String("userAgent", telemetry.UserAgent(r.UserAgent())),
	}
	if namespace != "" {
		attrs = append(attrs, slog.String("namespace", namespace))
	}
	if kubehttp.Of(r).Watch {
		attrs = append(attrs, slog.Bool("watch", true)) // its target says list, unless its path says watch
	}
	switch rec.labels.decision {
	case DecisionRefuse:
		attrs = append(attrs, slog.String("refused", rec.labels.reason))
	case DecisionForward:
		attrs = append(attrs, slog.String("cacheStatus", kubehttp.CacheForwarded(reason.Reason(rec.labels.reason))))
	case DecisionServe:
		attrs = append(attrs, slog.String("cacheStatus", kubehttp.CacheHit(rec.labels.semantics)), slog.Uint64("revision", rec.served.Revision))
	}
	if !rec.returned {
		attrs = append(attrs, slog.Bool("broken", true))
	}
	log.LogAttrs(context.WithoutCancel(r.Context()), telemetry.LevelAccess, "request", attrs...)
}
