package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// LimitBodies returns next with a bound on request bodies, in bytes. 0 is none;
// long-running requests have none either, since what they send is a stream and
// no object.
//
// A request that says that its body is longer gets 413, in the words of
// kube-apiserver, whose own bound is 3 MiB (MaxRequestBodyBytes;
// aggregated API servers may have others). A body of which the length is not said
// is cut off where the bound is reached: reading it then fails with an
// [http.MaxBytesError], and [bodyTooLarge] says so. What is refused is counted by
// observer, which may be nil, and has its access line in log.
func LimitBodies(next http.Handler, limit int64, observer *Observer, log *slog.Logger) http.Handler {
	if limit <= 0 {
		return next
	}
	desk := refuser{observer, log}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Body == nil || r.Body == http.NoBody || kubehttp.Of(r).LongRunning:
		case r.ContentLength > limit:
			desk.refuse(w, r, refusedBody, func(w http.ResponseWriter) { writeBodyTooLarge(w, r, limit) })
			return
		case r.ContentLength < 0: // one that is known cannot be exceeded
			r.Body = &limitedBody{body: http.MaxBytesReader(w, r.Body, limit), guarded: r.Body, limit: limit}
		}
		next.ServeHTTP(w, r)
	})
}

// limitedBody is a request's body that must not be longer than limit. Once a Read
// has returned, other goroutines may ask what became of it.
type limitedBody struct {
	body    io.ReadCloser
	guarded io.ReadCloser // the body without the limit
	limit   int64
	over    atomic.Bool
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		b.over.Store(true)
	}
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error { return b.body.Close() }

// bodyTooLarge says whether the body of r was cut off by [LimitBodies], and what
// the limit was. It is for whoever could not forward r, to tell this from a
// client that broke off: the answer is writeBodyTooLarge.
func bodyTooLarge(r *http.Request) (limit int64, cutOff bool) {
	body, ok := r.Body.(*limitedBody)
	if !ok || !body.over.Load() {
		return 0, false
	}
	return body.limit, true
}

// writeBodyTooLarge answers as kube-apiserver does (k8s.io/apiserver,
// pkg/endpoints/handlers, limitedReadBody).
func writeBodyTooLarge(w http.ResponseWriter, r *http.Request, limit int64) {
	kubehttp.WriteStatus(w, r, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		fmt.Sprintf("Request entity too large: limit is %d", limit))
}
