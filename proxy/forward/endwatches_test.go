package forward

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestWatchEndsAreSpread: endAll ends the open watches evenly over the planned time, and spreads the ends of later watches
// over maxLateWatch. Only the first call makes a plan.
func TestWatchEndsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 1000
		const plannedDelay, plannedSpread = 5 * time.Second, 10 * time.Second
		var watches watchSet
		begun := time.Now()
		ended := make(chan time.Duration, count)
		addWatches := func() {
			for range count {
				watches.add(func() { ended <- time.Since(begun) })
			}
		}
		checkEnds := func(delay, spread time.Duration) {
			t.Helper()
			var endsByTenth [10]int
			for range count {
				end := <-ended
				if end < delay || end >= delay+spread {
					t.Fatalf("a watch ends after %v, want %v to %v", end, delay, delay+spread)
				}
				endsByTenth[10*(end-delay)/spread]++
			}
			for tenth, n := range endsByTenth {
				// The ends are random: one run in a million has a tenth outside of these bounds.
				if fair := count / 10; n < fair*4/10 || n > fair*16/10 {
					t.Errorf("%d watches end in tenth %d of %v, want about %d", n, tenth, spread, fair)
				}
			}
		}
		addWatches()
		watches.endAll(func(n int) (delay, spread time.Duration) {
			expect.Same(t, count, n)
			return plannedDelay, plannedSpread
		})
		watches.endAll(func(int) (delay, spread time.Duration) { panic("the second call plans ends") })
		checkEnds(plannedDelay, plannedSpread)
		begun = time.Now()
		addWatches()
		checkEnds(0, maxLateWatch)
	})
}

// TestWatchEndsAfterItsCurrentEvent: a watch ends after the current event or gzip member, which is passed on whole. In a media
// type whose events cannot be told apart, it ends at once.
func TestWatchEndsAfterItsCurrentEvent(t *testing.T) {
	const bufferSize = 7 // of the reader
	long := strings.Repeat("x", bufferSize+3)
	json, cbor := http.Header{"Content-Type": {"application/json"}}, http.Header{"Content-Type": {"application/cbor-seq"}}
	gzip := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	member := proxytest.GzipMember("event\n")
	lastByte := len(member) - 1
	for name, tt := range map[string]struct {
		header       http.Header // of the upstream's answer
		sent         string      // what the upstream sends before endAll is called
		later        []string    // what it sends afterwards, part by part
		upstreamEnds bool        // the upstream's answer ends after these parts
		want         string
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
			var watches watchSet
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // of the upstream's request
			w := watches.add(cancel)
			reader, writer := io.Pipe()
			context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) }) // as the transport does
			expect.NoError(t, w.setResponse(&http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: reader, Header: tt.header}))
			got := make(chan string, 1)
			go func() {
				var passed strings.Builder
				_, err := io.CopyBuffer(&passed, w, make([]byte, bufferSize))
				if err != nil {
					t.Error(err)
				}
				got <- passed.String()
			}()
			_, _ = io.WriteString(writer, tt.sent)
			synctest.Wait()
			watches.endAll(func(int) (delay, spread time.Duration) { return 0, time.Second })
			time.Sleep(time.Minute)
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
			watches.finish(w)
			expect.Same(t, 0, len(watches.watches))
			if ctx.Err() == nil {
				t.Error("the request to the upstream goes on after the removal of the watch")
			}
		})
	}
}

// TestRefusedWatchIsLeftAlone: endAfterEvent leaves an answer without events alone, since it ends by itself. For an answer that
// comes after endAfterEvent, setResponse returns an error, since the answer may be incomplete.
func TestRefusedWatchIsLeftAlone(t *testing.T) {
	refusal := func() *http.Response {
		return &http.Response{StatusCode: http.StatusForbidden, ContentLength: 2, Body: io.NopCloser(strings.NewReader("no"))}
	}
	answered := &forwardedWatch{cancel: func() { t.Error("the request is canceled") }}
	res := refusal()
	expect.NoError(t, answered.setResponse(res))
	answered.endAfterEvent()
	expect.Same(t, "no", proxytest.ReadAll(t, res.Body))

	canceled := false
	unanswered := &forwardedWatch{cancel: func() { canceled = true }}
	unanswered.endAfterEvent()
	if err := unanswered.setResponse(refusal()); err == nil || !canceled {
		t.Errorf("setResponse returns %v, canceled: %t; want an error and true", err, canceled)
	}
}
