package upstream

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// traffic is what listproxy's own requests find at the upstream.
type traffic struct {
	// last is when a byte last came from the upstream, in Unix nanoseconds; 0: never.
	last atomic.Int64
	// refused: the last answer about a resource was a 403. reading: how many other answers about
	// resources are being read; watches are, as long as they are open.
	refused atomic.Bool
	reading atomic.Int64
}

func (t *traffic) answered() { t.last.Store(time.Now().UnixNano()) }

func (t *traffic) lastAnswer() time.Time {
	if last := t.last.Load(); last != 0 {
		return time.Unix(0, last)
	}
	return time.Time{}
}

// isRefused says whether the account of listproxy's own is refused all it asks for: this question, or
// the last one about a resource; and no watch is open any more. One resource that may not be read is
// nothing to worry about.
func (t *traffic) isRefused(now bool) bool { return (now || t.refused.Load()) && t.reading.Load() == 0 }

// Watch returns cfg for clients of listproxy's own. h learns what becomes of their requests.
func (h *Health) Watch(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return healthTransport{next, h} })
	return cfg
}

// healthTransport tells health what becomes of the requests that it sends.
type healthTransport struct {
	http.RoundTripper
	health *Health
}

// WrappedRoundTripper lets client-go find what closes connections.
func (w healthTransport) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (w healthTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		return res, err
	}
	t := &w.health.traffic
	t.answered()
	if w.health.isOfResource(r) {
		switch {
		case res.StatusCode == http.StatusForbidden:
			t.refused.Store(true)
		case res.StatusCode < http.StatusMultipleChoices:
			t.refused.Store(false)
			t.reading.Add(1)
			res.Body = &readBody{ReadCloser: res.Body, traffic: t}
		}
	}
	return res, nil
}

// isOfResource says whether a request is about a resource, and so needs rights.
func (h *Health) isOfResource(r *http.Request) bool {
	at := &url.URL{Path: strings.TrimPrefix(r.URL.Path, h.base.Path)}
	return kubehttp.Parse(&http.Request{Method: r.Method, URL: at}).Info.IsResourceRequest
}

// readBody is the body of an answer that is being read.
type readBody struct {
	io.ReadCloser
	traffic *traffic
	closed  sync.Once
}

// Read implements [io.Reader].
func (b *readBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.traffic.answered()
	}
	return n, err
}

// Close implements [io.Closer].
func (b *readBody) Close() error {
	b.closed.Do(func() { b.traffic.reading.Add(-1) })
	return b.ReadCloser.Close()
}
