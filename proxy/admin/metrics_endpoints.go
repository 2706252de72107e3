package admin

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// labelEndpoint is an API server's host:port, as configured.
const labelEndpoint = attribute.Key("endpoint")

// RegisterEndpoints makes metrics of what read returns.
func RegisterEndpoints(meters metric.MeterProvider, read func() []upstream.EndpointStats) error {
	i := &instruments{meter: meters.Meter(observe.Instrumentation)}
	up := i.gauge("listproxy.upstream.endpoint.up", "{endpoint}",
		"1 if new connections go to this API server (--upstream), else 0: it is not ready, too slow, or cannot be reached.")
	err := i.read(func(o metric.Observer) {
		for _, s := range read() {
			value := int64(0)
			if s.Up() {
				value = 1
			}
			o.ObserveInt64(up, value, metric.WithAttributeSet(attribute.NewSet(labelEndpoint.String(s.Address))))
		}
	})
	if err != nil {
		return fmt.Errorf("metrics of --upstream: %w", err)
	}
	return nil
}
