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

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// traffic is what is known of the upstream from its answers to listproxy's own requests. During an outage, answers to callers'
// requests count, too ([Health.RecordCallerAnswer]). An answer begins with its header. Its body may last for long, as that of a
// watch does.
//
//   - An outage begins when an answer breaks off, or when a request gets no answer and no other answer has begun meanwhile.
//   - An outage does not end because more of a body comes. A kube-apiserver that is shutting down still serves its open
//     watches, but no new requests.
//   - An outage ends when an answer begins. But a refusal or an error does not end it in the 15 seconds (startupTime) after the
//     first answer.
type traffic struct {
	// resourceRefused means that the last answer about a resource was a 403. Only answers that are a 403 or a success count.
	resourceRefused atomic.Bool
	// openAnswers is the number of successful answers about resources, watches included, that are not closed yet.
	openAnswers atomic.Int64
	// onOutageEnd is called when an outage has ended. It may be nil.
	onOutageEnd func()

	mu sync.Mutex // guards writes of outage, and the fields after it
	// outage is the current outage, or the last one, or nil if there was none. It is read without mu.
	outage        atomic.Pointer[clock.Outage]
	lastHeardAt   time.Time // when anything last came from the upstream; zero if nothing ever did
	lastAnswerAt  time.Time // when an answer last began; zero if none has
	firstAnswerAt time.Time // when an answer first began in the current outage; zero if none has
}

// startupTime is the time, counted from the first answer in an outage, for which refusals and errors do not end the outage. An
// API server that has just started refuses everybody until it has read its roles, and cannot answer lists yet.
const startupTime = 15 * time.Second

// recordAnswer records that an answer with a status has begun, which may end an outage.
func (t *traffic) recordAnswer(status int) {
	now := time.Now()
	t.mu.Lock()
	t.lastHeardAt = now
	t.lastAnswerAt = now
	ended := t.endOutageLocked(status, now)
	t.mu.Unlock()
	if ended && t.onOutageEnd != nil {
		t.onOutageEnd() // with mu unlocked, since the function may call methods that lock it
	}
}

// endOutageLocked ends the current outage unless the upstream may still be starting. It reports whether an outage has ended.
func (t *traffic) endOutageLocked(status int, now time.Time) (ended bool) {
	current := t.lastOutage()
	if !current.Ongoing {
		return false
	}
	if t.firstAnswerAt.IsZero() {
		t.firstAnswerAt = now
	}
	if mayBeStarting(status) && clock.Age(t.firstAnswerAt, now) < startupTime {
		return false
	}
	t.outage.Store(&clock.Outage{LastHeard: current.LastHeard, Began: current.Began, Ended: now})
	return true
}

// mayBeStarting reports whether an API server that has just started may answer with this status.
func mayBeStarting(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests ||
		status >= http.StatusInternalServerError
}

// recordBytes records that more of an answer has come. It does not end an outage.
func (t *traffic) recordBytes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastHeardAt = time.Now()
}

// recordFailure records that a request got no answer, or that an answer broke off. failingSince is the time at which the
// request was sent, or at which the answer broke off. An outage begins, unless another answer has begun since then.
func (t *traffic) recordFailure(failingSince time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return // listproxy itself gave the request up
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	isOngoing := t.lastOutage().Ongoing
	answeredSince := t.lastAnswerAt.After(failingSince) // the upstream is there: only this request was slow
	if isOngoing || answeredSince {
		return
	}
	t.outage.Store(&clock.Outage{Ongoing: true, LastHeard: t.lastHeardAt, Began: failingSince})
	t.firstAnswerAt = time.Time{}
}

// lastHeard returns the time at which anything last came from the upstream, or zero if nothing ever did.
func (t *traffic) lastHeard() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastHeardAt
}

// lastOutage returns the current outage, or the last one, or zero if there was none.
func (t *traffic) lastOutage() clock.Outage {
	if outage := t.outage.Load(); outage != nil {
		return *outage
	}
	return clock.Outage{}
}

// observedTransport sends listproxy's own requests, and records their answers and failures in traffic.
type observedTransport struct {
	http.RoundTripper
	traffic *traffic
	base    *url.URL // of the API server
}

// RoundTrip implements [http.RoundTripper].
func (o observedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	res, err := o.RoundTripper.RoundTrip(r)
	if err != nil {
		o.traffic.recordFailure(sent, err)
		return res, err
	}
	o.traffic.recordAnswer(res.StatusCode)
	if o.isOfResource(r) {
		switch {
		case res.StatusCode == http.StatusForbidden:
			o.traffic.resourceRefused.Store(true)
		case res.StatusCode < http.StatusMultipleChoices:
			o.traffic.resourceRefused.Store(false)
			o.traffic.openAnswers.Add(1)
			res.Body = &openAnswer{ReadCloser: res.Body, traffic: o.traffic}
		}
	}
	return res, nil
}

// isOfResource reports whether a request is about a resource, for which listproxy may lack the right.
func (o observedTransport) isOfResource(r *http.Request) bool {
	resourceURL := &url.URL{Path: strings.TrimPrefix(r.URL.Path, o.base.Path)}
	return kubehttp.Parse(&http.Request{Method: r.Method, URL: resourceURL}).Info.IsResourceRequest
}

// openAnswer is the body of a successful answer about a resource. traffic.openAnswers counts it until it is closed.
type openAnswer struct {
	io.ReadCloser
	traffic *traffic
	closed  sync.Once
}

// Read implements [io.Reader].
func (a *openAnswer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.traffic.recordBytes()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		a.traffic.recordFailure(time.Now(), err) // only an answer after the break shows that the upstream is still there
	}
	return n, err
}

// Close implements [io.Closer].
func (a *openAnswer) Close() error {
	a.closed.Do(func() { a.traffic.openAnswers.Add(-1) })
	return a.ReadCloser.Close()
}
