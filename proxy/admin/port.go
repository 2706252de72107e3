package admin

import (
	"io"
	"net/http"
	_ "net/http/pprof" // #nosec G108 -- http.DefaultServeMux is served to local clients only
	"net/netip"
	"strings"
	"time"
)

// The bounds of guard: the number of requests at a time, and the time in which a client must have read the answer. A
// profile may be recorded for minutes (?seconds=).
const (
	maxPages       = 16
	pageTimeout    = 10 * time.Second
	maxProfiles    = 2
	profileTimeout = 5 * time.Minute
)

// Config configures the operators' port.
type Config struct {
	// Source has the state for /readyz and the status page.
	Source *Source
	// Metrics serves /metrics.
	Metrics http.Handler
	// Flags has all flags in force, as name=value. No value is a secret.
	Flags []string
	// Hosts has further host names by which requests may name the port (see guard).
	Hosts []string
}

// New returns the handler of the operators' port:
//
//   - /livez answers 200 as long as the process answers;
//   - /readyz answers 200 if clients should come, otherwise 503 with a line for each failed check; with ?verbose, it has
//     a line for each check;
//   - /metrics is for Prometheus;
//   - /statusz is the status page, or its JSON; / redirects to it;
//   - /flagz has the flags;
//   - /debug/pprof/ has profiles, for local clients only.
//
// The answers have no secrets, and need no authentication. All paths but the first two are guarded (see guard).
func New(c Config) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", c.Metrics)
	pages.Handle("GET /{$}", http.RedirectHandler("statusz", http.StatusFound))
	pages.HandleFunc("GET /statusz", func(w http.ResponseWriter, r *http.Request) { writeStatus(w, r, c.Source.Read()) })
	// Kubernetes' own /flagz draws its delimiters at random, so that nobody parses the page.
	pages.HandleFunc("GET /flagz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "listproxy flagz\n\n"+strings.Join(c.Flags, "\n")+"\n")
	})
	port := http.NewServeMux()
	port.Handle("/", guard(c.Hosts, maxPages, pageTimeout, pages))
	port.Handle("/debug/pprof/", guard(c.Hosts, maxProfiles, profileTimeout, onlyLocal(http.DefaultServeMux)))
	port.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	port.HandleFunc("GET /readyz", c.Source.serveReady)
	return addSecurityHeaders(port)
}

// onlyLocal refuses clients on other machines, since a profile takes CPU. kubectl port-forward is local.
func onlyLocal(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !client.Addr().Unmap().IsLoopback() {
			writeText(w, http.StatusForbidden, "Profiles are for who is on this machine: use kubectl port-forward.\n")
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// writeText answers with plain text.
func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// An error means that the client has gone.
	_, _ = io.WriteString(w, text)
}
