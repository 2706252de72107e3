package proxy

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labelPort is a port's name, or that of several with one bound.
const labelPort = attribute.Key("port")

func registerConnections(meter metric.Meter, read func() map[string]ConnectionStats) error {
	i := &instruments{meter: meter}
	open := i.gauge("listproxy.connections", "{connection}", "Connections that are open: of clients, tunnels included, and of the admin port.")
	limit := i.gauge("listproxy.connections.limit", "{connection}", "The bound on that (--max-connections); 0 is none.")
	networks := i.gauge("listproxy.connections.networks", "{network}", "Networks that have one: addresses of IPv4, and /64 of IPv6.")
	ended := i.counter("listproxy.connections.ended", "{connection}", "Connections that listproxy ended to keep a bound: one without a request, whose place a new one needed (room), a new one (full), one of which too much came that is no whole request (unfinished).")
	return i.read(func(o metric.Observer) {
		for name, s := range read() {
			port := labelPort.String(name)
			set := metric.WithAttributeSet(attribute.NewSet(port))
			o.ObserveInt64(open, int64(s.Open), set)
			o.ObserveInt64(limit, int64(s.Limit), set)
			o.ObserveInt64(networks, int64(s.Networks), set)
			for why, n := range s.ended {
				o.ObserveInt64(ended, int64(n), // #nosec G115 -- a count
					metric.WithAttributeSet(attribute.NewSet(port, labelReason.String(string(why)))))
			}
		}
	})
}
