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

// guard keeps browsers from reading the admin port for somebody else: it needs no credentials, so
// whatever page a person has open could ask for its own through that person's network (cross-site
// requests; or from a name that is made to lead here, DNS rebinding). What is no browser's is not
// held up, whether it says the right name or an address.
type guard struct {
	// hosts are the names, in lower case and without a port, that the port may be asked by, beside
	// those that nobody elsewhere can own.
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

// protect lets a page answer only those whom refusal lets pass.
func (g guard) protect(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := g.refusal(r); why != "" {
			writePlain(w, http.StatusForbidden, why+"\n")
			return
		}
		page.ServeHTTP(w, r)
	})
}

// refusal says why a request is not answered, and what to do; empty if it is.
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

// knows says whether the port may be asked by a Host. Whoever rebinds a name owns it, in the public
// DNS, so these are left: addresses, as probes and Prometheus have them; localhost, as kubectl
// port-forward has it (RFC 6761); names of one label, as machines and the Services of a namespace
// have them; those of Services in full, as nobody can register them; and what the operator has
// named. A request without a Host is of HTTP/1.0, which no browser speaks.
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

// bounded answers only so many requests at a time, and others with 429. A reader who takes too long
// for what is written loses the connection; with a patience of 0 nobody does.
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
			// It holds for the connection, whose next request may be a probe. An error means that
			// the writer has no deadlines, and then nobody is cut off.
			control := http.NewResponseController(w)
			_ = control.SetWriteDeadline(time.Now().Add(patience))
			defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
		}
		page.ServeHTTP(w, r)
	})
}

// hardened adds to all answers what keeps browsers from using them otherwise than to look at them.
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
