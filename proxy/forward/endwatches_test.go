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

// TestWatchEndsAreSpread over the time that is planned for them. Those that begin later end too, and not in one
// instant.
func TestWatchEndsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watches, after, within = 1000, 5 * time.Second, 10 * time.Second
		var s openWatches
		begun, ended := time.Now(), make(chan time.Duration, watches)
		open := func() {
			for range watches {
				s.open(func() { ended <- time.Since(begun) })
			}
		}
		spread := func(after, within time.Duration) {
			t.Helper()
			var inTenths [10]int
			for range watches {
				late := <-ended - after
				if late < 0 || late >= within {
					t.Fatalf("one ends after %v", after+late)
				}
				inTenths[10*late/within]++
			}
			for tenth, n := range inTenths {
				if fair := watches / 10; n < fair*6/10 || n > fair*14/10 {
					t.Errorf("%d end in tenth %d of %v", n, tenth, within)
				}
			}
		}
		open()
		s.end(func(n int) (time.Duration, time.Duration) {
			expect.Same(t, watches, n)
			return after, within
		})
		s.end(func(int) (time.Duration, time.Duration) { panic("they are ending") })
		spread(after, within)
		begun = time.Now()
		open()
		spread(0, lateWatch)
	})
}

// TestWatchEndsWithAnEvent, or with a gzip member: what has begun is passed on whole, and what has not is not. In
// a media type where nobody knows what an event is, a watch is cut.
func TestWatchEndsWithAnEvent(t *testing.T) {
	const text, compressed, binary = "application/json", "gzip", "application/cbor-seq"
	member, long := proxytest.GzipMember("event\n"), strings.Repeat("x", 10)
	for name, tt := range map[string]struct {
		kind          string
		before, after []string // parts that come from the upstream before and after the end
		want          string
	}{
		"between":              {kind: text, before: []string{"one\ntwo\n"}, want: "one\ntwo\n"},
		"at the beginning":     {kind: text},
		"inside":               {kind: text, before: []string{"one\ntw"}, after: []string{"o\n"}, want: "one\ntwo\n"},
		"inside, more comes":   {kind: text, before: []string{"on"}, after: []string{"e\ntwo\nth"}, want: "one\n"},
		"inside, in parts":     {kind: text, before: []string{"on"}, after: []string{"e", "e", "e\n"}, want: "oneee\n"},
		"inside, upstream's":   {kind: text, before: []string{"on"}, after: []string{"e"}, want: "one"},
		"more than the buffer": {kind: text, before: []string{long}, after: []string{long + "\n"}, want: long + long + "\n"},
		"inside a member":      {kind: compressed, before: []string{member + member[:5]}, after: []string{member[5:] + member}, want: member + member},
		"the end of a member": {
			kind: compressed, before: []string{member + member[:len(member)-1]},
			after: []string{member[len(member)-1:], member}, want: member + member,
		},
		"unknown": {kind: binary, before: []string{"one\ntw"}, after: []string{"o\n"}, want: "one\ntw"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			header := http.Header{"Content-Type": {tt.kind}}
			if tt.kind == compressed {
				header = http.Header{"Content-Type": {text}, "Content-Encoding": {compressed}}
			}
			var s openWatches
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // of the upstream's request
			w := s.open(cancel)
			reader, writer := io.Pipe()
			context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) }) // as the transport does
			expect.NoError(t, w.answered(&http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: reader, Header: header}))
			got := make(chan string, 1)
			go func() {
				var passed strings.Builder
				_, err := io.CopyBuffer(struct{ io.Writer }{&passed}, struct{ io.Reader }{w}, make([]byte, 7))
				if err != nil {
					t.Error(err)
				}
				got <- passed.String()
			}()
			for _, part := range tt.before {
				_, _ = io.WriteString(writer, part)
			}
			synctest.Wait()
			s.end(func(int) (after, within time.Duration) { return 0, time.Second })
			time.Sleep(time.Minute)
			for _, part := range tt.after {
				_, _ = io.WriteString(writer, part)
			}
			if name == "inside, upstream's" {
				_ = writer.Close()
			} else if synctest.Wait(); ctx.Err() == nil {
				t.Error("the upstream has not heard of the end")
			}
			expect.Same(t, tt.want, <-got)
			if s.close(w); len(s.known) > 0 || ctx.Err() == nil {
				t.Errorf("it is not forgotten: %v, %v", s.known, ctx.Err())
			}
		})
	}
}

// TestRefusedWatchIsLeftAlone: an answer that is no stream ends by itself.
func TestRefusedWatchIsLeftAlone(t *testing.T) {
	refusal := func() *http.Response {
		return &http.Response{StatusCode: http.StatusForbidden, ContentLength: 2, Body: io.NopCloser(strings.NewReader("no"))}
	}
	before := &openWatch{cancel: func() { t.Error("the request is canceled") }}
	res := refusal()
	expect.NoError(t, before.answered(res))
	before.end()
	expect.Same(t, "no", proxytest.ReadAll(t, res.Body))

	canceled := false
	late := &openWatch{cancel: func() { canceled = true }}
	late.end()
	if err := late.answered(refusal()); err == nil || !canceled {
		t.Errorf("%v, canceled: %t: part of the body may be missing", err, canceled)
	}
}
