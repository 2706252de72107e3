package proxy

import (
	"log/slog"
	"net/http"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

// The reasons for which listproxy refuses what is malformed or not for it, in metrics, traces and the access log.
// The others are reasonIdentity and every [Overload].
const (
	// refusedTarget: the target is no path (400).
	refusedTarget = "target"
	// refusedMisdirected: it came by a tunnel, and is for another server than the tunnel (421).
	refusedMisdirected = "misdirected"
	// refusedConnect: a CONNECT where none is taken (405), to elsewhere (403), or with a body (400).
	refusedConnect = "connect"
	// refusedNoConnect: something else than CONNECT at the port for that (400).
	refusedNoConnect = "no-connect"
	// refusedBody: the body is longer than --max-body-bytes (413).
	refusedBody = "body-too-large"
	// refusedConnection: the Connection header lists a header that says who the caller is (400).
	refusedConnection = "connection-header"
	// refusedSegments: dot segments, in a request with listproxy's own credentials (400).
	refusedSegments = "dot-segments"
	// refusedMalformed: the request's header or body is malformed or ended early (400).
	refusedMalformed = "malformed"
)

// RefusalReasons returns every reason for which listproxy itself refuses a request, for documentation and tests.
func RefusalReasons() []string {
	reasons := []string{
		reasonIdentity, refusedTarget, refusedMisdirected, refusedConnect, refusedNoConnect, refusedBody,
		refusedConnection, refusedSegments, refusedMalformed,
	}
	for _, overload := range overloads() {
		reasons = append(reasons, string(overload))
	}
	return reasons
}

// refuser counts what is refused before it gets to the [Handler], and writes its access line: such a request is
// seen like every other. The observer may be nil.
type refuser struct {
	observer *Observer
	log      *slog.Logger
}

// refuse lets write answer a request that is refused.
func (f refuser) refuse(w http.ResponseWriter, r *http.Request, reason string, write func(http.ResponseWriter)) {
	f.observe(w, r, reason, func(seen *observation) { write(seen) })
}

// refused is for an answer that goproxy writes, of so many bytes.
func (f refuser) refused(r *http.Request, reason string, answer *http.Response) *http.Response {
	f.observe(nil, r, reason, func(seen *observation) {
		seen.labels.code, seen.bytes = answer.StatusCode, answer.ContentLength
	})
	return answer
}

func (f refuser) observe(w http.ResponseWriter, r *http.Request, reason string, answer func(*observation)) {
	seen := f.observer.begin(w, r)
	defer seen.end()
	if f.log.Enabled(r.Context(), telemetry.LevelAccess) {
		defer (&Handler{Log: f.log}).logAccess(seen)
	}
	seen.trace(false)
	seen.refused(reason)
	answer(seen)
	seen.whole = true
}

// asRefused tells whoever observes a request, which was about to be forwarded, that it is refused. Cache-Status
// does not say then that it was forwarded: an answer that an intermediary makes by itself should have none (RFC
// 9211, 2).
func asRefused(w http.ResponseWriter, reason string) {
	w.Header().Del(kubehttp.CacheStatusHeader)
	for {
		switch at := w.(type) {
		case *observation:
			at.refused(reason)
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = at.Unwrap()
		default:
			return
		}
	}
}
