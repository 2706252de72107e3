package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// guard protects handler against DNS rebinding: an attacker lets the name of a web page resolve to this port, and the
// page reads the port through the browser of a person inside. The port asks for no credentials. So the Host of a request
// must be one of hosts, or a name that nobody can own in the public DNS.
//
// At most maxRequests requests are answered at a time; further requests get 429. A client that has not read the answer
// within timeout loses its connection.
func guard(hosts []string, maxRequests int, timeout time.Duration, handler http.Handler) http.Handler {
	allowed := []string{"", "localhost"} // only HTTP/1.0 allows no Host, and no browser speaks HTTP/1.0
	for _, host := range hosts {
		allowed = append(allowed, hostName(host))
	}
	slots := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if !slices.Contains(allowed, name) && !isPrivateName(name) {
			writeText(w, http.StatusForbidden, "listproxy's admin port is not known by the name in this address: use an IP address, localhost "+
				"or a Service's name (NAME.NAMESPACE.svc).\n")
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "1")
			writeText(w, http.StatusTooManyRequests, "Many ask for this at the moment: try again in a second.\n")
			return
		}
		// net/http resets the deadline before the next request. An error means that w has no deadlines, as in tests.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
		handler.ServeHTTP(w, r)
	})
}

// isPrivateName reports whether nobody can own a name in the public DNS: an IP address, as probes and Prometheus use; a
// name without a dot, as of a machine or of a Service in the same namespace; a name below localhost (RFC 6761); or the
// full name of a Service.
func isPrivateName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
		return true
	}
	return strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".svc.cluster.local")
}

// hostName returns the name or address in a Host header, in lower case and without a port, brackets or a trailing dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// addSecurityHeaders returns handler with headers by which browsers do not store answers, embed them in other pages, or
// take them for another type.
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
