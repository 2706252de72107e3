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

// traffic observes the upstream's answers: to all of listproxy's own requests, and during an outage also to callers'.
type traffic struct {
	// refused reports whether the last answer about a resource was a 403.
	refused atomic.Bool
	// reading is the number of successful answers about resources whose bodies are being read, open watches included.
	reading atomic.Int64
	// outage is the current outage, or the last one; nil if there was none.
	outage atomic.Pointer[clock.Outage]
	// began has a value if an outage has begun that Health.Run has not noticed yet.
	began chan struct{}
	// onEnd is called when an outage ends, unless it is nil.
	onEnd func()

	mu         sync.Mutex
	heardAt    time.Time // the time at which anything last came from the upstream; zero if nothing ever did
	answeredAt time.Time // the time at which an answer last began; zero if none ever did
	returnedAt time.Time // the time of the first answer during the current outage; zero if there was none
}

// startupTime is the time after the first answer for which refusals and errors do not end an outage. An API server that
// has just started refuses everybody until it has read its roles, and cannot answer lists yet.
const startupTime = 15 * time.Second

// answered records that an answer with a status began. The answer ends an outage, unless the upstream may still be
// starting.
func (t *traffic) answered(status int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heardAt, t.answeredAt = now, now
	current := t.outage.Load()
	if current == nil || !current.Lasts {
		return
	}
	if t.returnedAt.IsZero() {
		t.returnedAt = now
	}
	if mayBeStarting(status) && clock.Age(t.returnedAt, now) < startupTime {
		return
	}
	t.outage.Store(&clock.Outage{Heard: current.Heard, Ended: now})
	if t.onEnd != nil {
		t.onEnd()
	}
}

// heard records that more of an answer came. That does not end an outage: a kube-apiserver that is shutting down accepts no
// new requests, but its open watches go on until the end.
func (t *traffic) heard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heardAt = time.Now()
}

// mayBeStarting reports whether an API server that has just started may answer with this status.
func mayBeStarting(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
}

// failed records that a request got no answer, or that an answer broke off. at is the time at which the request was sent,
// or the answer broke off. begins reports whether that begins an outage.
func (t *traffic) failed(at time.Time, err error) (begins bool) {
	if errors.Is(err, context.Canceled) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.outage.Load()
	lastsAlready := last != nil && last.Lasts
	isOnlySlow := t.answeredAt.After(at) // another answer began meanwhile
	if lastsAlready || isOnlySlow {
		return false
	}
	t.outage.Store(&clock.Outage{Lasts: true, Heard: t.heardAt})
	t.returnedAt = time.Time{}
	return true
}

// failedRequest calls failed, and makes Health.Run probe at once if an outage begins.
func (t *traffic) failedRequest(at time.Time, err error) {
	if t.failed(at, err) {
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

// isRefused reports whether the upstream refuses everything that listproxy's account asks for: the probe or the last
// request about a resource was refused, and no answer about a resource is being read. (An account that may not read one
// resource usually watches others.)
func (t *traffic) isRefused(probeRefused bool) bool {
	return (probeRefused || t.refused.Load()) && t.reading.Load() == 0
}

// Watch returns a copy of cfg for listproxy's own clients, with which h observes the answers to their requests.
func (h *Health) Watch(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return healthTransport{next, h} })
	return cfg
}

// healthTransport sends requests and tells health about their answers and failures.
type healthTransport struct {
	http.RoundTripper
	health *Health
}

// WrappedRoundTripper lets client-go find the transport that closes idle connections.
func (w healthTransport) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (w healthTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t, sent := &w.health.traffic, time.Now()
	res, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		t.failedRequest(sent, err)
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
			res.Body = &countedBody{ReadCloser: res.Body, traffic: t}
		}
	}
	return res, nil
}

// isOfResource reports whether a request is about a resource, which needs rights that listproxy may lack.
func (h *Health) isOfResource(r *http.Request) bool {
	resourceURL := &url.URL{Path: strings.TrimPrefix(r.URL.Path, h.base.Path)}
	return kubehttp.Parse(&http.Request{Method: r.Method, URL: resourceURL}).Info.IsResourceRequest
}

// countedBody is the body of an answer about a resource. It counts in traffic.reading until it is closed.
type countedBody struct {
	io.ReadCloser
	traffic *traffic
	closed  sync.Once
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case n > 0:
		b.traffic.heard()
	case err != nil && !errors.Is(err, io.EOF):
		b.traffic.failedRequest(time.Now(), err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *countedBody) Close() error {
	b.closed.Do(func() { b.traffic.reading.Add(-1) })
	return b.ReadCloser.Close()
}

// Outage returns the current outage of the upstream, or the last one.
func (h *Health) Outage() clock.Outage {
	if outage := h.traffic.outage.Load(); outage != nil {
		return *outage
	}
	return clock.Outage{}
}

// Answered records the status of an answer to a caller's request. It can end an outage, and does nothing without one.
func (h *Health) Answered(status int) {
	if h.Outage().Lasts {
		h.traffic.answered(status)
	}
}

// OnReturn sets the function that is called when an outage ends. It must be called before any request is sent.
func (h *Health) OnReturn(onEnd func()) { h.traffic.onEnd = onEnd }
