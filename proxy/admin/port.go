package admin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

// New returns the handler of the admin port, for probes and people:
//
//   - /livez says that the process answers, always 200;
//   - /readyz says whether it should get traffic, as ready says: 200, or 503
//     with a line for everything that is not;
//   - /metrics is answered by metrics, for Prometheus;
//   - / leads to /statusz;
//   - /statusz, /flagz and /debug/pprof/ are the pages that there are.
//
// With ?verbose, /readyz has a line for each check in any case. The answers hold no secrets and
// need no authentication. Except for the probes, requests that another site causes in a browser are
// refused, and each page is served to a bounded number of readers at a time. ready must be safe for
// concurrent use and must not block.
func New(ready func() (ok bool, details []statusz.Check), metrics http.Handler, pages Pages) http.Handler {
	guarded := newGuard(pages.Hosts)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guarded.protect(bounded(pagePlaces, pageWriteTimeout, metrics)))
	if pages.Status != nil {
		mux.Handle("GET /{$}", guarded.protect(http.RedirectHandler("statusz", http.StatusFound)))
		mux.Handle("GET /statusz", guarded.protect(bounded(pagePlaces, pageWriteTimeout, pages.Status)))
	}
	if pages.Flags != nil {
		mux.Handle("GET /flagz", guarded.protect(bounded(pagePlaces, pageWriteTimeout, http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) {
				writePlain(w, http.StatusOK, flagText(pages.Flags()))
			}))))
	}
	if pages.Profiling {
		mux.Handle("/debug/pprof/", guarded.protect(bounded(profilePlaces, 0, http.HandlerFunc(profile))))
	}
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writePlain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ok, details := ready()
		verbose := r.URL.Query().Has("verbose")
		var text strings.Builder
		for _, check := range details {
			if verbose || !check.OK {
				text.WriteString(lineOf(check))
			}
		}
		switch {
		case !ok:
			text.WriteString("not ready")
			writePlain(w, http.StatusServiceUnavailable, text.String())
		case verbose:
			text.WriteString("ok")
			writePlain(w, http.StatusOK, text.String())
		default:
			writePlain(w, http.StatusOK, "ok")
		}
	})
	return hardened(mux)
}

// lineOf is in the form that kube-apiserver's own health pages have.
func lineOf(c statusz.Check) string {
	sign, message := "[+]", "ok"
	if !c.OK {
		sign, message = "[-]", "not ready"
	}
	if c.Message != "" {
		message += ": " + c.Message
	}
	return fmt.Sprintf("%s%s %s\n", sign, c.Name, message)
}

func writePlain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// An error means that the client has gone.
	_, _ = fmt.Fprint(w, text)
}
