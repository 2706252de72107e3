package admin

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot/checks"
)

func registerSelfChecks(meter metric.Meter, read func() map[checks.Result]uint64) error {
	i := &instruments{meter: meter}
	checks := i.counter("listproxy.selfchecks", "{check}",
		"Comparisons of memory with the API server: both agree, or they differ and memory was dropped (mismatch), "+
			"or there was no verdict (inconclusive).")
	return i.read(func(o metric.Observer) {
		for result, n := range read() {
			o.ObserveInt64(checks, int64(n), // #nosec G115 -- a count
				metric.WithAttributeSet(attribute.NewSet(observe.LabelResult.String(string(result)))))
		}
	})
}
