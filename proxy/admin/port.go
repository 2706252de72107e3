package admin

import (
	"io"
	"net/http"
	_ "net/http/pprof" // #nosec G108 -- http.DefaultServeMux is served to local clients only
	"net/netip"
	"strings"
	"time"
)

// Config configures the operators' port.
type Config struct {
	Ready   Readiness
	Metrics http.Handler
	Status  *Source
	// Flags has all flags in force, as name=value. No value is a secret.
	Flags []string
	// Hosts has further names of the port (guard).
	Hosts []string
}

// New returns the handler of the operators' port:
//
//   - /livez answers 200 as long as the process answers;
//   - /readyz answers 200 if clients should come, otherwise 503 with a line for each check that has failed; with
//     ?verbose, a line for each check;
//   - /metrics is for Prometheus;
//   - / redirects to /statusz, the status page, which is also JSON;
//   - /flagz has the flags;
//   - /debug/pprof/ has profiles, for local clients only.
//
// The answers have no secrets and need no authentication. All but the first two are guarded (guard).
func New(c Config) http.Handler {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", c.Metrics)
	pages.Handle("GET /{$}", http.RedirectHandler("statusz", http.StatusFound))
	pages.HandleFunc("GET /statusz", func(w http.ResponseWriter, r *http.Request) { writeStatus(w, r, c.Status.Read()) })
	// Kubernetes' own /flagz draws its delimiters at random, so that nobody parses it.
	pages.HandleFunc("GET /flagz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "listproxy flagz\n\n"+strings.Join(c.Flags, "\n")+"\n")
	})
	port := http.NewServeMux()
	port.Handle("/", guard(c.Hosts, 16, 10*time.Second, pages))
	port.Handle("/debug/pprof/", guard(c.Hosts, 2, 5*time.Minute, onlyLocal(http.DefaultServeMux)))
	port.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
	port.HandleFunc("GET /readyz", c.Ready.serve)
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

// serve answers /readyz.
func (r Readiness) serve(w http.ResponseWriter, req *http.Request) {
	checks := r.Checks()
	code, verdict := http.StatusOK, "ok"
	if !allOK(checks) {
		code, verdict = http.StatusServiceUnavailable, "not ready"
	}
	var text strings.Builder
	for _, c := range checks {
		if !c.OK || req.URL.Query().Has("verbose") {
			text.WriteString(c.String() + "\n")
		}
	}
	writeText(w, code, text.String()+verdict)
}

// writeText answers with plain text.
func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// An error means that the client has gone.
	_, _ = io.WriteString(w, text)
}
