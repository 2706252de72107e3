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

// TestWatchEndsAreSpread: endAll ends the open watches evenly over the planned time, and those that begin later over
// maxLateWatch. Only the first call plans.
func TestWatchEndsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watches, delay, spread = 1000, 5 * time.Second, 10 * time.Second
		var all openWatches
		begun, ended := time.Now(), make(chan time.Duration, watches)
		addAll := func() {
			for range watches {
				all.add(func() { ended <- time.Since(begun) })
			}
		}
		checkEnds := func(delay, spread time.Duration) {
			t.Helper()
			var endsByTenth [10]int
			for range watches {
				late := <-ended - delay
				if late < 0 || late >= spread {
					t.Fatalf("a watch ends after %v, want %v to %v", delay+late, delay, delay+spread)
				}
				endsByTenth[10*late/spread]++
			}
			for tenth, n := range endsByTenth {
				// The ends are random: 40 % are four standard deviations.
				if fair := watches / 10; n < fair*6/10 || n > fair*14/10 {
					t.Errorf("%d watches end in tenth %d of %v, want about %d", n, tenth, spread, fair)
				}
			}
		}
		addAll()
		all.endAll(func(n int) (time.Duration, time.Duration) {
			expect.Same(t, watches, n)
			return delay, spread
		})
		all.endAll(func(int) (time.Duration, time.Duration) { panic("the second call plans ends") })
		checkEnds(delay, spread)
		begun = time.Now()
		addAll()
		checkEnds(0, maxLateWatch)
	})
}

// TestWatchEndsWithAnEvent: a watch ends after the current event or gzip member, which is passed on whole. In a media
// type whose events cannot be told apart, it ends at once.
func TestWatchEndsWithAnEvent(t *testing.T) {
	const text, compressed, binary = "application/json", "gzip", "application/cbor-seq"
	member, long := proxytest.GzipMember("event\n"), strings.Repeat("x", 10)
	for name, tt := range map[string]struct {
		contentType   string   // or gzip: that encoding of text
		before, after []string // what the upstream sends before and after the call of endAll
		upstreamEnds  bool     // the answer, then
		want          string
	}{
		"between two events":       {contentType: text, before: []string{"one\ntwo\n"}, want: "one\ntwo\n"},
		"before the first event":   {contentType: text},
		"inside an event":          {contentType: text, before: []string{"one\ntw"}, after: []string{"o\n"}, want: "one\ntwo\n"},
		"another event follows":    {contentType: text, before: []string{"on"}, after: []string{"e\ntwo\nth"}, want: "one\n"},
		"the event comes in parts": {contentType: text, before: []string{"on"}, after: []string{"e", "e", "e\n"}, want: "oneee\n"},
		"the upstream ends it":     {contentType: text, before: []string{"on"}, after: []string{"e"}, upstreamEnds: true, want: "one"},
		"more than the buffer":     {contentType: text, before: []string{long}, after: []string{long + "\n"}, want: long + long + "\n"},
		"inside a gzip member":     {contentType: compressed, before: []string{member + member[:5]}, after: []string{member[5:] + member}, want: member + member},
		"before a member's last byte": {
			contentType: compressed, before: []string{member + member[:len(member)-1]},
			after: []string{member[len(member)-1:], member}, want: member + member,
		},
		"inside an unknown form": {contentType: binary, before: []string{"one\ntw"}, after: []string{"o\n"}, want: "one\ntw"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			header := http.Header{"Content-Type": {tt.contentType}}
			if tt.contentType == compressed {
				header = http.Header{"Content-Type": {text}, "Content-Encoding": {compressed}}
			}
			var all openWatches
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // of the upstream's request
			w := all.add(cancel)
			reader, writer := io.Pipe()
			context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) }) // as the transport does
			expect.NoError(t, w.takeOver(&http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: reader, Header: header}))
			got := make(chan string, 1)
			go func() {
				var passed strings.Builder
				_, err := io.CopyBuffer(struct{ io.Writer }{&passed}, struct{ io.Reader }{w}, make([]byte, 7)) // longer events need several reads
				if err != nil {
					t.Error(err)
				}
				got <- passed.String()
			}()
			for _, part := range tt.before {
				_, _ = io.WriteString(writer, part)
			}
			synctest.Wait()
			all.endAll(func(int) (delay, spread time.Duration) { return 0, time.Second })
			time.Sleep(time.Minute)
			for _, part := range tt.after {
				_, _ = io.WriteString(writer, part)
			}
			if tt.upstreamEnds {
				_ = writer.Close()
			} else if synctest.Wait(); ctx.Err() == nil {
				t.Error("the request to the upstream goes on")
			}
			expect.Same(t, tt.want, <-got)
			all.finish(w)
			expect.Same(t, 0, len(all.watches))
			if ctx.Err() == nil {
				t.Error("the request to the upstream goes on after the removal of the watch")
			}
		})
	}
}

// TestRefusedWatchIsLeftAlone: an answer without events ends by itself. If the watch was ended before its answer, takeOver
// returns an error, since the answer may be incomplete.
func TestRefusedWatchIsLeftAlone(t *testing.T) {
	refusal := func() *http.Response {
		return &http.Response{StatusCode: http.StatusForbidden, ContentLength: 2, Body: io.NopCloser(strings.NewReader("no"))}
	}
	before := &openWatch{cancel: func() { t.Error("the request is canceled") }}
	res := refusal()
	expect.NoError(t, before.takeOver(res))
	before.endAfterEvent()
	expect.Same(t, "no", proxytest.ReadAll(t, res.Body))

	canceled := false
	late := &openWatch{cancel: func() { canceled = true }}
	late.endAfterEvent()
	if err := late.takeOver(refusal()); err == nil || !canceled {
		t.Errorf("takeOver returns %v, canceled: %t; want an error and true", err, canceled)
	}
}
