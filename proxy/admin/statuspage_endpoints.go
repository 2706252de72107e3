package admin

import (
	"time"

	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// endpointsStatus returns what the status page says of the addresses of --upstream.
func endpointsStatus(all []upstream.EndpointStats, now time.Time) []statusz.Endpoint {
	var status []statusz.Endpoint
	for _, s := range all {
		status = append(status, statusz.Endpoint{
			Address: s.Address, State: s.State, Meaning: s.Meaning(),
			Seconds: max(0, now.Sub(s.Since).Seconds()), // the state may have changed after now was read
			Version: s.Version, Connections: s.Connections, Error: s.Problem,
		})
	}
	return status
}
