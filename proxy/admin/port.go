package admin

import (
	"io"
	"net/http"
	_ "net/http/pprof" // #nosec G108 -- http.DefaultServeMux is served to local clients only
	"net/netip"
	"strings"
	"time"
)

// The times in which a client must have read a page or a profile. A profile may be recorded for minutes (?seconds=).
const (
	pageTimeout    = 10 * time.Second
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
	// Hosts has names that the port accepts as a request's Host, in addition to those that nobody outside can have (see
	// guard).
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
	// The page is for people: like Kubernetes' own /flagz, it promises no format.
	pages.HandleFunc("GET /flagz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "listproxy flagz\n\n"+strings.Join(c.Flags, "\n")+"\n")
	})
	root := http.NewServeMux()
	root.Handle("/", guard(c.Hosts, pageTimeout, pages))
	root.Handle("/debug/pprof/", guard(c.Hosts, profileTimeout, onlyLocal(http.DefaultServeMux)))
	root.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	root.HandleFunc("GET /readyz", c.Source.serveReady)
	return addSecurityHeaders(root)
}

// onlyLocal refuses clients on other machines, since a profile takes CPU. kubectl port-forward is local.
func onlyLocal(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !client.Addr().Unmap().IsLoopback() {
			writeText(w, http.StatusForbidden, "Profiles are served to clients on this machine only: use kubectl port-forward.\n")
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
