package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// hostRefused is the answer to a request whose Host is not one of the port's.
const hostRefused = "listproxy's admin port is not known by the name in this address: use an IP address, localhost " +
	"or a Service's name (NAME.NAMESPACE.svc).\n"

// guard protects handler against DNS rebinding: an attacker makes the name of a web page resolve to this machine, and the
// page then reads this port, which asks for no credentials, through the browser of somebody inside. So the Host of a
// request must be one of hosts, or a name that cannot be registered in the public DNS.
//
// A client that has not read the answer within timeout loses its connection.
func guard(hosts []string, timeout time.Duration, handler http.Handler) http.Handler {
	allowed := []string{"", "localhost"} // only HTTP/1.0 allows no Host, and no browser speaks HTTP/1.0
	for _, host := range hosts {
		allowed = append(allowed, hostName(host))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if !slices.Contains(allowed, name) && !isPrivateName(name) {
			writeText(w, http.StatusForbidden, hostRefused)
			return
		}
		// net/http removes the deadline after the request. An error means that w has no deadlines, as in tests.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
		handler.ServeHTTP(w, r)
	})
}

// isPrivateName reports whether a name cannot be registered in the public DNS. It is an IP address, as probes and
// Prometheus use; a name without a dot, as of a machine or of a Service in the same namespace; a name below localhost
// (RFC 6761); or the full name of a Service.
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
