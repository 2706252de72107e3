package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// guard protects handler against DNS rebinding: a web page whose name an attacker lets resolve to this port could read
// it through the browser of a person inside, since the port needs no credentials. So the Host of a request must be one
// of hosts, or a name that nobody can own in the public DNS.
//
// At most maxRequests are answered at a time; others get 429. A client that has not read the answer within timeout
// loses its connection.
func guard(hosts []string, maxRequests int, timeout time.Duration, handler http.Handler) http.Handler {
	allowed := []string{"", "localhost"} // only HTTP/1.0 has no Host, and no browser speaks it
	for _, host := range hosts {
		allowed = append(allowed, hostName(host))
	}
	seats := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if !slices.Contains(allowed, name) && !isPrivateName(name) {
			writeText(w, http.StatusForbidden, "listproxy's admin port is not known by the name in this address: use an IP address, localhost "+
				"or a Service's name (NAME.NAMESPACE.svc).\n")
			return
		}
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
		default:
			w.Header().Set("Retry-After", "1")
			writeText(w, http.StatusTooManyRequests, "Many ask for this at the moment: try again in a second.\n")
			return
		}
		// net/http resets the deadline before the next request. An error means that w has no deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
		handler.ServeHTTP(w, r)
	})
}

// isPrivateName reports whether nobody can own a name in the public DNS. That is so for IP addresses, which probes and
// Prometheus use; names without a dot, of machines and of Services within a namespace; names below localhost (RFC
// 6761); and the full names of Services.
func isPrivateName(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || !strings.Contains(name, ".") ||
		strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".svc.cluster.local")
}

// hostName returns the name or address in a Host header, in lower case and without a port, brackets or a trailing dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// addSecurityHeaders returns a handler whose answers browsers do not store, embed, or take for another type.
func addSecurityHeaders(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		handler.ServeHTTP(w, r)
	})
}
