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

// TestWatchEndsAreSpread: over the time that is planned for them.
func TestWatchEndsAreSpread(t *testing.T) {
	for name, tt := range map[string]struct {
		watches       int
		after, within time.Duration
	}{
		"none":    {0, 0, 1},
		"one":     {1, time.Second, time.Second},
		"many":    {1000, 5 * time.Second, 10 * time.Second},
		"no time": {10, 0, 1},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			var s openWatches
			begun, ended := time.Now(), make(chan time.Duration, tt.watches)
			for range tt.watches {
				s.open(func() { ended <- time.Since(begun) })
			}
			pace := func(watches int) (after, within time.Duration) {
				if watches != tt.watches {
					t.Errorf("a plan for %d", watches)
				}
				return tt.after, tt.within
			}
			s.end(pace)
			s.end(pace) // which does nothing any more
			inTenths := make([]int, 10)
			for range tt.watches {
				after := <-ended - tt.after
				if after < 0 || after > tt.within {
					t.Fatalf("one ends after %v", after)
				}
				inTenths[min(9, 10*after/tt.within)]++
			}
			for tenth, n := range inTenths {
				if fair := tt.watches / 10; tt.watches >= 1000 && (n < fair*6/10 || n > fair*14/10) {
					t.Errorf("%d of %d end in tenth %d of %v", n, tt.watches, tenth, tt.within)
				}
			}
		})
	}
}

// TestLateWatches: those that begin while the others are being ended, end too, and not in one
// instant.
func TestLateWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s openWatches
		s.end(nil)
		begun, ended := time.Now(), make(chan time.Duration, 100)
		for range cap(ended) {
			s.open(func() { ended <- time.Since(begun) })
		}
		instants := map[time.Duration]bool{}
		for range cap(ended) {
			after := <-ended
			if after >= lateWatch {
				t.Errorf("one ends after %v", after)
			}
			instants[after] = true
		}
		if len(instants) < 2 {
			t.Error("all end in one instant")
		}
	})
}

// watchOf returns a watch that the upstream has answered with a header, a pipe for what the upstream
// sends after that, and the context of the upstream's request.
func watchOf(t *testing.T, s *openWatches, header http.Header) (*openWatch, *io.PipeWriter, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := s.open(cancel)
	t.Cleanup(func() {
		if s.close(w); len(s.known) > 0 || ctx.Err() == nil {
			t.Errorf("it is not forgotten: %v, %v", s.known, ctx.Err())
		}
	})
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) }) // as the transport does
	expect.NoError(t, w.answered(&http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: reader, Header: header}))
	return w, writer, ctx
}

// TestWatchEndsWithAnEvent: what has begun is passed on whole, what has not is not.
func TestWatchEndsWithAnEvent(t *testing.T) {
	member := string(proxytest.GzipMember("event\n"))
	for name, tt := range map[string]struct {
		before, after []string // parts that come from the upstream before and after the end
		want          string
		gzip          bool
	}{
		"between":              {[]string{"one\ntwo\n"}, nil, "one\ntwo\n", false},
		"at the beginning":     {nil, nil, "", false},
		"inside":               {[]string{"one\ntw"}, []string{"o\n"}, "one\ntwo\n", false},
		"inside, more comes":   {[]string{"on"}, []string{"e\ntwo\nth"}, "one\n", false},
		"inside, in parts":     {[]string{"on"}, []string{"e", "e", "e\n"}, "oneee\n", false},
		"inside, upstream's":   {[]string{"on"}, []string{"e"}, "one", false},
		"more than the buffer": {[]string{strings.Repeat("x", 10)}, []string{strings.Repeat("y", 10) + "\n"}, strings.Repeat("x", 10) + strings.Repeat("y", 10) + "\n", false},
		"inside a member":      {[]string{member + member[:5]}, []string{member[5:] + member}, member + member, true},
		"the end of a member":  {[]string{member + member[:len(member)-1]}, []string{member[len(member)-1:], member}, member + member, true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			header := http.Header{"Content-Type": {"application/json"}}
			if tt.gzip {
				header.Set("Content-Encoding", "gzip")
			}
			var s openWatches
			w, writer, _ := watchOf(t, &s, header)
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
			time.Sleep(time.Second) // the bubble's clock
			for _, part := range tt.after {
				_, _ = io.WriteString(writer, part)
			}
			if name == "inside, upstream's" {
				_ = writer.Close()
			}
			expect.Same(t, tt.want, <-got)
		})
	}
}

// TestWatchOfSlowClient: its client takes the first half of an event when the end comes, and the
// second half long after. The end is behind the whole event, or the gzip member, where that can be told.
func TestWatchOfSlowClient(t *testing.T) {
	text := strings.Repeat("x", 8)
	member := string(proxytest.GzipMember("event\n"))
	for name, tt := range map[string]struct {
		header http.Header
		sent   string
		whole  bool
	}{
		"json":       {http.Header{"Content-Type": {"application/json"}}, text + text + "\n", true},
		"compressed": {http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, member, true},
		"cbor":       {http.Header{"Content-Type": {"application/cbor-seq"}}, "\x82\x48" + text + "\x48" + text, false},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w, writer, ctx := watchOf(t, &openWatches{}, tt.header)
			first, second := tt.sent[:len(tt.sent)/2], tt.sent[len(tt.sent)/2:]
			go func() {
				_, _ = io.WriteString(writer, first)
				_, _ = io.WriteString(writer, second+"more")
			}()
			buffer := make([]byte, 64)
			n, err := w.Read(buffer)
			if got := string(buffer[:n]); got != first || err != nil {
				t.Fatalf("read %q, %v", got, err)
			}
			w.end() // while the client is written to
			time.Sleep(time.Minute)
			want := second
			if !tt.whole {
				want = ""
			}
			if rest := proxytest.ReadAll(t, w); rest != want {
				t.Errorf("the rest is %q, want %q", rest, want)
			}
			if ctx.Err() == nil {
				t.Error("the upstream has not heard of the end")
			}
		})
	}
}

// TestRefusedWatchIsLeftAlone: an answer that is no stream ends by itself.
func TestRefusedWatchIsLeftAlone(t *testing.T) {
	refusal := func() *http.Response {
		return &http.Response{StatusCode: http.StatusForbidden, ContentLength: 2, Body: io.NopCloser(strings.NewReader("no"))}
	}
	t.Run("before the end", func(t *testing.T) {
		w := &openWatch{cancel: func() { t.Error("the request is canceled") }}
		res := refusal()
		expect.NoError(t, w.answered(res))
		w.end()
		expect.Same(t, "no", proxytest.ReadAll(t, res.Body))
	})
	t.Run("behind it", func(t *testing.T) {
		canceled := false
		w := &openWatch{cancel: func() { canceled = true }}
		w.end()
		if err := w.answered(refusal()); err == nil || !canceled {
			t.Errorf("%v, canceled: %t: part of the body may be missing", err, canceled)
		}
	})
}
