package forward

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWatchEndsAreSpread: EndWatches ends the open watches evenly over the next 10 s. Watches that begin later end evenly over
// the first 10 s of their own.
func TestWatchEndsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 1000
		const spread = 10 * time.Second
		ended := make(chan time.Duration, count)
		forwarder := New(silentUpstream{}, proxytest.DiscardLog())
		beginWatches := func() {
			begun := time.Now()
			for range count {
				go func() {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, aWatch, nil)
					forwarder.ServeAs(httptest.NewRecorder(), r, auth.Identity{}, nil)
					ended <- time.Since(begun)
				}()
			}
			synctest.Wait()
		}
		checkEnds := func() { // of all watches that have begun
			t.Helper()
			var endsByTenth [10]int // of the spread
			for range count {
				end := <-ended
				if end >= spread {
					t.Fatalf("a watch ends after %v, want less than %v", end, spread)
				}
				endsByTenth[10*end/spread]++ // an end after 3.5 s is in tenth 3
			}
			const least, most = 40, 160 // a fair share is 100; one run in a million has a tenth outside of these bounds
			for tenth, ends := range endsByTenth {
				if ends < least || ends > most {
					t.Errorf("%d watches end in tenth %d of %v, want %d to %d", ends, tenth, spread, least, most)
				}
			}
		}
		beginWatches()
		forwarder.EndWatches(spread)
		checkEnds()
		beginWatches()
		checkEnds()
	})
}

// silentUpstream is an API server that answers no request.
type silentUpstream struct{}

func (silentUpstream) URL() *url.URL                                 { return &url.URL{Scheme: "https", Host: "upstream"} }
func (silentUpstream) RecordAnswer(auth.Identity, bool, string, int) {}
func (silentUpstream) RoundTripper(auth.Identity, *kubehttp.Request) http.RoundTripper {
	return silentUpstream{}
}

// RoundTrip returns when the request is given up.
func (silentUpstream) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestWatchEndsAfterItsCurrentEvent: endAfterEvent lets a client get the current event as a whole, and nothing after it. In a
// compressed watch, the client gets the current gzip member as a whole. In a media type whose events cannot be told apart, the
// watch ends at once.
func TestWatchEndsAfterItsCurrentEvent(t *testing.T) {
	const bufferSize = 7                      // with which the body is copied to the client
	long := strings.Repeat("x", bufferSize+3) // a part of an event
	json := http.Header{"Content-Type": {"application/json"}}
	cbor := http.Header{"Content-Type": {"application/cbor-seq"}}
	gzip := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	member := proxytest.GzipMember("event\n")
	lastByte := len(member) - 1
	for name, tt := range map[string]struct {
		header       http.Header // of the upstream's answer
		sent         string      // what the upstream sends before endAfterEvent is called
		later        []string    // what it sends afterwards, part by part
		upstreamEnds bool        // the upstream ends its answer after these parts
		want         string      // what the client gets
	}{
		"between two events":       {header: json, sent: "one\ntwo\n", want: "one\ntwo\n"},
		"before the first event":   {header: json},
		"inside an event":          {header: json, sent: "one\ntw", later: []string{"o\n"}, want: "one\ntwo\n"},
		"another event follows":    {header: json, sent: "on", later: []string{"e\ntwo\nth"}, want: "one\n"},
		"the event comes in parts": {header: json, sent: "on", later: []string{"e", "e", "e\n"}, want: "oneee\n"},
		"the upstream ends it":     {header: json, sent: "on", later: []string{"e"}, upstreamEnds: true, want: "one"},
		"more than the buffer":     {header: json, sent: long, later: []string{long + "\n"}, want: long + long + "\n"},
		"inside a gzip member": {
			header: gzip, sent: member + member[:5], later: []string{member[5:] + member}, want: member + member,
		},
		"before a member's last byte": {
			header: gzip, sent: member + member[:lastByte], later: []string{member[lastByte:], member}, want: member + member,
		},
		"inside an unknown form": {header: cbor, sent: "one\ntw", later: []string{"o\n"}, want: "one\ntw"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			// ctx is the context of the request to the upstream.
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			watch := &forwardedWatch{cancel: cancel}
			reader, writer := io.Pipe()
			context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) }) // as the transport does
			res := &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: reader, Header: tt.header}
			expect.NoError(t, watch.setResponse(res))
			got := make(chan string, 1) // what the client has got when the watch has ended
			go func() {
				var passed strings.Builder
				_, err := io.CopyBuffer(&passed, watch, make([]byte, bufferSize))
				if err != nil {
					t.Error(err)
				}
				got <- passed.String()
			}()
			// The watch is told to end between two writes of the upstream.
			_, _ = io.WriteString(writer, tt.sent)
			synctest.Wait()
			watch.endAfterEvent()
			for _, part := range tt.later {
				_, _ = io.WriteString(writer, part)
			}
			if tt.upstreamEnds {
				_ = writer.Close()
			}
			synctest.Wait()
			if !tt.upstreamEnds && ctx.Err() == nil {
				t.Error("the request to the upstream goes on")
			}
			expect.Same(t, tt.want, <-got)
		})
	}
}

// TestRefusedWatchIsLeftAlone: endAfterEvent leaves an answer without events alone, since it ends by itself. For an answer that
// comes after endAfterEvent, setResponse returns an error, since the answer may be incomplete.
func TestRefusedWatchIsLeftAlone(t *testing.T) {
	refusal := func() *http.Response {
		return &http.Response{StatusCode: http.StatusForbidden, ContentLength: 2, Body: io.NopCloser(strings.NewReader("no"))}
	}
	// The answer comes before endAfterEvent.
	answered := &forwardedWatch{cancel: func() { t.Error("the request is canceled") }}
	res := refusal()
	expect.NoError(t, answered.setResponse(res))
	answered.endAfterEvent()
	expect.Same(t, "no", proxytest.ReadAll(t, res.Body))

	// The answer comes after endAfterEvent.
	canceled := false
	unanswered := &forwardedWatch{cancel: func() { canceled = true }}
	unanswered.endAfterEvent()
	if err := unanswered.setResponse(refusal()); err == nil || !canceled {
		t.Errorf("setResponse returns %v, canceled: %t; want an error and true", err, canceled)
	}
}
