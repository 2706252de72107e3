package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// unwellFor is the time after an outage in which refusals and errors do not end it: an API server that has just started
// refuses everybody until it has read its roles, and has no lists yet.
const unwellFor = 15 * time.Second

// traffic is what listproxy's own requests find at the upstream, and what callers' requests find there after an
// outage.
type traffic struct {
	// refused reports whether the last answer about a resource was a 403. reading is the number of other answers about
	// resources are being read; watches are, as long as they are open.
	refused atomic.Bool
	reading atomic.Int64
	// outage is the current outage, or the last one; nil if there was none.
	outage atomic.Pointer[clock.Outage]
	// began has a value if an outage has begun, and nobody has looked since.
	began chan struct{}
	// ended is called when an outage ends; nil: nobody wants to know.
	ended func()

	mu sync.Mutex
	// heardAt is the time at which something last came from the upstream, and answeredAt the time at which the last
	// answer began; zero if that never happened.
	// unwellSince is the time at which the first refusal or error came in the outage.
	heardAt, answeredAt, unwellSince time.Time
}

// answered notes that an answer with a status came.
func (t *traffic) answered(status int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heardAt, t.answeredAt = now, now
	last := t.outage.Load()
	if last == nil || !last.Lasts {
		return
	}
	if t.unwellSince.IsZero() {
		t.unwellSince = now
	}
	if isUnwell(status) && clock.Age(t.unwellSince, now) < unwellFor {
		return
	}
	t.outage.Store(&clock.Outage{Heard: last.Heard, Ended: now})
	if t.ended != nil {
		t.ended()
	}
}

// heard notes that more of an answer came. That does not end an outage: a kube-apiserver that ends takes no new
// requests, but its watches go on to the last.
func (t *traffic) heard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heardAt = time.Now()
}

// isUnwell reports whether an API server that has just started may answer with this status.
func isUnwell(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
}

// failed notes that a request that was sent at a time got no answer, or that an answer broke off, and reports whether
// an outage begins with that.
func (t *traffic) failed(sent time.Time, err error) (begins bool) {
	if errors.Is(err, context.Canceled) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A server that is only slow answers something else meanwhile.
	if last := t.outage.Load(); (last == nil || !last.Lasts) && !t.answeredAt.After(sent) {
		t.outage.Store(&clock.Outage{Lasts: true, Heard: t.heardAt})
		t.unwellSince = time.Time{}
		return true
	}
	return false
}

// broke is failed for another request than a question: with an outage, a question is due at once.
func (t *traffic) broke(sent time.Time, err error) {
	if t.failed(sent, err) {
		select {
		case t.began <- struct{}{}:
		default:
		}
	}
}

func (t *traffic) lastHeard() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heardAt
}

// isRefused reports whether the account of listproxy's own is refused all it asks for: this question, or
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
	t, sent := &w.health.traffic, time.Now()
	res, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		t.broke(sent, err)
		return res, err
	}
	t.answered(res.StatusCode)
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

// isOfResource reports whether a request is about a resource, and so needs rights.
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
	switch {
	case n > 0:
		b.traffic.heard()
	case err != nil && !errors.Is(err, io.EOF):
		b.traffic.broke(time.Now(), err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *readBody) Close() error {
	b.closed.Do(func() { b.traffic.reading.Add(-1) })
	return b.ReadCloser.Close()
}

// Outage returns the outage of the upstream that lasts, or the last one.
func (h *Health) Outage() clock.Outage {
	if outage := h.traffic.outage.Load(); outage != nil {
		return *outage
	}
	return clock.Outage{}
}

// Answered notes the status of an answer to a caller's request: somebody answers.
func (h *Health) Answered(status int) {
	if h.Outage().Lasts {
		h.traffic.answered(status)
	}
}

// OnReturn has a function called when an outage ends. It must be called before any request is sent.
func (h *Health) OnReturn(ended func()) { h.traffic.ended = ended }
