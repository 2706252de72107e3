package admin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// pagePlaces is how many requests for one page are served at a time, and profilePlaces for
	// profiles, which cost much and are asked for by one person at a time.
	pagePlaces    = 16
	profilePlaces = 2
	// pageWriteTimeout is how long a reader may take for a page, so that slow ones do not hold
	// places.
	pageWriteTimeout = 10 * time.Second
)

// guard keeps other sites from reading the admin port through somebody's browser. The port needs no
// credentials, so any page that a person has open could read it through that person's network: with
// cross-site requests, or from a name that is made to point here (DNS rebinding). Requests of other
// programs pass if they use a known name or an address.
type guard struct {
	// hosts are further names that requests may use, in lower case and without a port, in addition to
	// those that nobody outside can own.
	hosts []string
}

// newGuard returns a guard that knows these names, too.
func newGuard(hosts []string) guard {
	var g guard
	for _, host := range hosts {
		g.hosts = append(g.hosts, hostName(host))
	}
	return g
}

// protect returns page for the requests that refusal does not refuse.
func (g guard) protect(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := g.refusal(r); why != "" {
			writePlain(w, http.StatusForbidden, why+"\n")
			return
		}
		page.ServeHTTP(w, r)
	})
}

// refusal says why a request is refused, and what to do; empty if it is not.
func (g guard) refusal(r *http.Request) string {
	const elsewhere = "This was asked for by a page from elsewhere: open the address yourself, not by a link."
	// Browsers say so to https, and to localhost (https://www.w3.org/TR/fetch-metadata).
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "none" && site != "same-origin" {
			return elsewhere
		}
	}
	// Only browsers send an Origin. It is "null" for documents that have none.
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return elsewhere
		}
	}
	if !g.knows(r.Host) {
		return "listproxy's admin port is not known by the name in this address: use an IP address or localhost, or start listproxy " +
			"with --admin-hosts and the name."
	}
	return ""
}

// knows says whether a request may have this Host. An attacker who rebinds a name owns it in the
// public DNS. So names that nobody can own there are known: addresses, which probes and Prometheus
// use; localhost, which kubectl port-forward uses (RFC 6761); names without a dot, like those of
// machines and of the Services of a namespace; full names of Services, which nobody can register.
// The names that the operator has given are known, too. A request without a Host is HTTP/1.0, which
// no browser speaks.
func (g guard) knows(host string) bool {
	name := hostName(host)
	if name == "" || !strings.Contains(name, ".") {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	for _, suffix := range []string{".localhost", ".svc", ".svc.cluster.local"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return slices.Contains(g.hosts, name)
}

// hostName is the name, or the address, of a Host: in lower case, without a port, brackets or the
// root's dot.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// bounded answers at most places requests at a time, and others with 429. A reader who takes longer
// than patience to read the page loses the connection; a patience of 0 is no limit.
func bounded(places int, patience time.Duration, page http.Handler) http.Handler {
	taken := make(chan struct{}, places)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case taken <- struct{}{}:
			defer func() { <-taken }()
		default:
			w.Header().Set("Retry-After", "1")
			writePlain(w, http.StatusTooManyRequests, "Many ask for this at the moment: try again in a second.\n")
			return
		}
		if patience > 0 {
			// The deadline belongs to the connection, whose next request may be a probe. An error means that
			// the writer has no deadlines: then nobody is cut off.
			control := http.NewResponseController(w)
			_ = control.SetWriteDeadline(time.Now().Add(patience))
			defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
		}
		page.ServeHTTP(w, r)
	})
}

// hardened adds headers to all answers that keep browsers from storing, framing or embedding them.
// A page may set a policy of its own.
func hardened(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		pages.ServeHTTP(w, r)
	})
}
