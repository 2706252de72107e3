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
	// news has a value if a request found something else than the state says.
	news chan struct{}
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
	found, t := ConditionOK, &w.health.traffic
	switch {
	case err != nil && r.Context().Err() != nil:
		return res, err // who asked has given up
	case err != nil:
		w.health.found(ConditionUnreachable)
		return res, err
	case res.StatusCode == http.StatusUnauthorized:
		found = ConditionUnauthorized
	case res.StatusCode >= http.StatusInternalServerError:
		found = ConditionNotReady
	}
	t.answered()
	if w.health.isOfResource(r) {
		switch {
		case res.StatusCode == http.StatusForbidden:
			found = ConditionForbidden
			t.refused.Store(true)
		case res.StatusCode < http.StatusMultipleChoices:
			t.refused.Store(false)
			t.reading.Add(1)
			res.Body = &readBody{ReadCloser: res.Body, traffic: t}
		}
	}
	w.health.found(found)
	return res, err
}

// isOfResource says whether a request is about a resource, and so needs rights.
func (h *Health) isOfResource(r *http.Request) bool {
	at := &url.URL{Path: strings.TrimPrefix(r.URL.Path, h.base.Path)}
	return kubehttp.Parse(&http.Request{Method: r.Method, URL: at}).Info.IsResourceRequest
}

// found makes the next question come at once, if the state is another one. What only an API server
// that is not ready answers does not.
func (h *Health) found(c Condition) {
	h.mu.Lock()
	known := h.stats.Condition
	h.mu.Unlock()
	switch well := c == ConditionOK; known {
	case ConditionNotReady:
		return
	case ConditionOK, ConditionUnknown:
		if well {
			return
		}
	default:
		if !well {
			return
		}
	}
	select {
	case h.traffic.news <- struct{}{}:
	default: // it is known already
	}
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
