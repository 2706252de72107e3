package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// hostRefused is the answer to a request with a Host that guard does not accept.
const hostRefused = "listproxy's admin port is not known by the name in this address: use an IP address, localhost " +
	"or a Service's name (NAME.NAMESPACE.svc).\n"

// guard returns handler with two protections.
//
// The first is against DNS rebinding. The attacker's web page is open in the browser of somebody inside. The attacker then
// makes the page's name resolve to this machine, so that the page can read this port, which asks for no credentials. The
// browser sends the page's name as the Host. So guard accepts only a Host in hosts, or one that no attacker can own
// (isOutsidePublicDNS).
//
// The second is against slow clients: a client that has not read the answer within timeout loses its connection.
func guard(hosts []string, timeout time.Duration, handler http.Handler) http.Handler {
	var allowed []string
	for _, host := range hosts {
		allowed = append(allowed, hostName(host))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostName(r.Host)
		if !slices.Contains(allowed, name) && !isOutsidePublicDNS(name) {
			writeText(w, http.StatusForbidden, hostRefused)
			return
		}
		// net/http removes the deadline after the request. An error means that w does not support deadlines, as in tests.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
		handler.ServeHTTP(w, r)
	})
}

// isOutsidePublicDNS reports whether name is one that nobody can register in the public DNS:
//
//   - an IP address, as probes and Prometheus use;
//   - a name without a dot, such as localhost, the name of a machine, or of a Service in the same namespace;
//   - no name: a request without a Host is HTTP/1.0, which no browser speaks;
//   - a name below localhost (RFC 6761);
//   - the name of a Service with its namespace and .svc or .svc.cluster.local.
func isOutsidePublicDNS(name string) bool {
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

// addSecurityHeaders returns handler with headers that keep browsers from storing its answers, from embedding them in other
// pages, from running anything in them, and from guessing their type.
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
