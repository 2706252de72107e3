package admin

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/observe"
)

// labelPort is a port's name, or that of several with one bound.
const labelPort = attribute.Key("port")

func registerConnections(meter metric.Meter, read func() map[string]inflight.ConnectionStats) error {
	i := &instruments{meter: meter}
	open := i.gauge("listproxy.connections", "{connection}", "Open connections: of clients, tunnels included, and of the admin port.")
	limit := i.gauge("listproxy.connections.limit", "{connection}", "The bound on listproxy_connections (--max-connections); 0 is no bound.")
	networks := i.gauge("listproxy.connections.networks", "{network}", "Networks with open connections: IPv4 addresses, and /64s of IPv6.")
	ended := i.counter("listproxy.connections.ended", "{connection}",
		"Connections that listproxy closed to keep a bound: one without a request, whose place a new one needed (room); a new one (full); "+
			"one with an unfinished request that was too large (unfinished).")
	return i.read(func(o metric.Observer) {
		for name, s := range read() {
			port := labelPort.String(name)
			set := metric.WithAttributeSet(attribute.NewSet(port))
			o.ObserveInt64(open, int64(s.Open), set)
			o.ObserveInt64(limit, int64(s.Limit), set)
			o.ObserveInt64(networks, int64(s.Networks), set)
			for why, n := range s.Ended {
				o.ObserveInt64(ended, int64(n), // #nosec G115 -- a count
					metric.WithAttributeSet(attribute.NewSet(port, observe.LabelReason.String(string(why)))))
			}
		}
	})
}
