package admin

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// guard keeps other sites from reading the port through somebody's browser (DNS rebinding): the port
// needs no credentials, so any page that a person has open could read it by a name of its own that
// it lets lead here. So a request needs a name that nobody outside can own, or one of hosts. At most
// so many requests are answered at a time, and others get 429; a reader who is not done within
// patience loses the connection.
func guard(hosts []string, atATime int, patience time.Duration, pages http.Handler) http.Handler {
	known := []string{"", "localhost"} // without a Host it is HTTP/1.0, which no browser speaks
	for _, host := range hosts {
		known = append(known, hostName(host))
	}
	readers := make(chan struct{}, atATime)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := hostName(r.Host); !slices.Contains(known, name) && !isInside(name) {
			writeText(w, http.StatusForbidden, "listproxy's admin port is not known by the name in this address: use an IP address, localhost "+
				"or a Service's name (NAME.NAMESPACE.svc).\n")
			return
		}
		select {
		case readers <- struct{}{}:
			defer func() { <-readers }()
		default:
			w.Header().Set("Retry-After", "1")
			writeText(w, http.StatusTooManyRequests, "Many ask for this at the moment: try again in a second.\n")
			return
		}
		// An error means that the writer has no deadlines. The next request on the connection has none.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
		pages.ServeHTTP(w, r)
	})
}

// isInside reports whether a name is an address, as probes and Prometheus use it, or one that nobody can
// own in the public DNS: without a dot, as of machines and of the Services of a namespace; of
// localhost (RFC 6761); a Service's full name.
func isInside(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil || !strings.Contains(name, ".") ||
		strings.HasSuffix(name, ".localhost") || strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, ".svc.cluster.local")
}

// hostName is the name, or the address, of a Host: in lower case, without a port, brackets or the
// root's dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// hardened adds headers that keep browsers from storing, framing or embedding the answers, and from
// taking them for another type.
func hardened(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		pages.ServeHTTP(w, r)
	})
}
