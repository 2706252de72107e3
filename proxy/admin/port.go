package admin

import (
	"io"
	"net/http"
	_ "net/http/pprof" // #nosec G108 -- registers in http.DefaultServeMux, which New serves to local clients only
	"net/netip"
	"strings"
	"time"
)

const (
	// pageTimeout is the time within which a client must have read a page.
	pageTimeout = 10 * time.Second
	// profileTimeout is the time within which a client must have read a profile, which may be recorded for minutes
	// (?seconds=).
	profileTimeout = 5 * time.Minute
)

// Config configures the admin port.
type Config struct {
	// Source provides the state for /readyz and the status page.
	Source *Source
	// Metrics serves /metrics.
	Metrics http.Handler
	// Flags has all flags in force, as name=value. No value is a secret.
	Flags []string
	// Hosts has further names that a request may have as its Host. Names that cannot be registered in the public DNS are always
	// accepted (see guard).
	Hosts []string
}

// New returns the handler of the admin port:
//
//   - /livez answers 200 as long as the process answers;
//   - /readyz answers 200 if clients should be sent here, otherwise 503 with a line for each failed check. With ?verbose, it
//     has a line for every check;
//   - /metrics is for Prometheus;
//   - /statusz is the status page, also as JSON; / redirects to it;
//   - /flagz has the flags;
//   - /debug/pprof/ has profiles, for local clients only.
//
// The answers have no secrets, and need no authentication. All paths but the first two are guarded (see guard).
func New(c Config) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", c.Metrics)
	pages.Handle("GET /{$}", http.RedirectHandler("statusz", http.StatusFound))
	pages.HandleFunc("GET /statusz", func(w http.ResponseWriter, r *http.Request) { writeStatus(w, r, c.Source.ReadStatus()) })
	// /flagz is for people: like Kubernetes' own /flagz, it promises no format.
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

// onlyLocal returns handler for clients on this machine, kubectl port-forward among them. It refuses all others, since a
// profile takes CPU.
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
	_, _ = io.WriteString(w, text) // an error means that the client has gone
}
