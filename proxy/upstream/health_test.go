package upstream

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

func saying(code int, body string) proxytest.Transport {
	return func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, code, body), nil }
}

func failing(err error) proxytest.Transport {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

var ended = failing(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

func frozen(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// streaming answers with what comes from a pipe.
func streaming(stream *io.PipeReader) proxytest.Transport {
	return func(r *http.Request) (*http.Response, error) {
		res := proxytest.JSONResponse(r, http.StatusOK, "")
		res.Body = io.NopCloser(stream)
		return res, nil
	}
}

// healthRig is a Health of an API server, of which a test says how it answers the questions, and
// listproxy's own requests.
type healthRig struct {
	*Health
	questions, others atomic.Pointer[proxytest.Transport]
	asked             atomic.Int64 // questions
	log               *logbuffer.Buffer
	own               *http.Client
}

// RoundTrip implements [http.RoundTripper].
func (rig *healthRig) RoundTrip(r *http.Request) (*http.Response, error) {
	how := rig.others.Load()
	if r.URL.Path == "/at/readyz" {
		rig.asked.Add(1)
		how = rig.questions.Load()
	}
	return (*how)(r)
}

// set is how all is answered from now on.
func (rig *healthRig) set(how proxytest.Transport) {
	rig.questions.Store(&how)
	rig.others.Store(&how)
}

// run runs a test with an API server that answers how, first.
func run(t *testing.T, how proxytest.Transport, test func(*testing.T, *healthRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rig := &healthRig{log: &logbuffer.Buffer{}}
		rig.set(how)
		rig.Health = &Health{
			client: &http.Client{Transport: rig}, base: &url.URL{Scheme: "https", Host: "api", Path: "/at"}, traffic: traffic{began: make(chan struct{}, 1)},
			log:   slog.New(slog.NewTextHandler(rig.log, nil)),
			stats: HealthStats{Condition: ConditionUnknown, Since: time.Now()},
		}
		rig.own = &http.Client{Transport: healthTransport{rig, rig.Health}}
		proxytest.RunInBubble(t, rig.Run)
		test(t, rig)
	})
}

// await waits until the upstream is found in a condition, and checks how long that took.
func (rig *healthRig) await(t *testing.T, c Condition, within time.Duration) {
	t.Helper()
	begun := time.Now()
	for rig.Stats().Condition != c {
		if time.Since(begun) > within {
			t.Fatalf("it is %s, not %s, after %v: %s", rig.Stats().Condition, c, within, rig.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// get sends a request of listproxy's own, and returns what is read of the answer; nil if none came.
func (rig *healthRig) get(t *testing.T, path string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api/at"+path, nil)
	expect.NoError(t, err)
	res, err := rig.own.Do(r)
	if err != nil {
		return nil
	}
	return res.Body
}

const told = 20 * time.Second

// TestHealthTellsEachFailureOnce: each failure is told within twenty seconds; the log has one line for it however long it
// lasts, and one for its end; the upstream is not asked more meanwhile; and a replica that has been of use stays ready.
func TestHealthTellsEachFailureOnce(t *testing.T) {
	unready := "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed\nreadyz check failed"
	for name, tt := range map[string]struct {
		transport   proxytest.Transport
		want        Condition
		wantProblem string
	}{
		"ended":  {transport: ended, want: ConditionUnreachable, wantProblem: "connection refused"},
		"frozen": {transport: frozen, want: ConditionUnreachable, wantProblem: "deadline exceeded"},
		"another CA": {
			transport: failing(x509.UnknownAuthorityError{}), want: ConditionUnreachable, wantProblem: "unknown authority",
		},
		"no account": {transport: saying(http.StatusUnauthorized, ""), want: ConditionUnauthorized, wantProblem: "401"},
		"no rights": {
			transport: saying(http.StatusForbidden, ""), want: ConditionForbidden, wantProblem: "allows nothing",
		},
		"no etcd": {
			transport:   saying(http.StatusInternalServerError, unready),
			want:        ConditionNotReady,
			wantProblem: "/readyz answers 500",
		},
		"sent elsewhere": {
			transport:   saying(http.StatusFound, "<html></html>"),
			want:        ConditionNotReady,
			wantProblem: "302, which no kube-apiserver does",
		},
		"another path": {
			transport:   saying(http.StatusNotFound, ""),
			want:        ConditionNotReady,
			wantProblem: "404, which no kube-apiserver does",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, saying(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
				rig.await(t, ConditionOK, time.Second)
				time.Sleep(17 * time.Second)
				rig.set(tt.transport)
				rig.await(t, tt.want, told)
				before := rig.asked.Load()
				time.Sleep(10 * time.Minute)
				if n := rig.asked.Load() - before; n < 40 || n > 60 {
					t.Errorf("it was asked %d times in ten minutes", n)
				}
				s := rig.Stats()
				expect.Says(t, s.Problem, tt.wantProblem)
				if s.Condition != tt.want || s.NeverOK || s.Advice == "" || time.Since(s.Since) < 10*time.Minute {
					t.Errorf("the upstream is %+v, want it %s for ten minutes, with advice", s, tt.want)
				}
				rig.set(saying(http.StatusOK, "ok"))
				rig.await(t, ConditionOK, told)
				if s = rig.Stats(); s.NeverOK || s.Problem != "" || s.Advice != "" || time.Since(s.Answered) > time.Second {
					t.Errorf("in the end it is %+v", s)
				}
				lines := strings.Split(strings.TrimSpace(rig.log.String()), "\n")
				if len(lines) != 3 {
					t.Fatalf("the log has %d lines, want 3:\n%s", len(lines), rig.log)
				}
				expect.Says(t, lines[0], `level=INFO msg="kube-apiserver answers" state=ok`)
				expect.Says(t, lines[1], "level=WARN", " do=", "state="+string(tt.want))
				expect.Says(t, lines[2], "level=INFO")
			})
		})
	}
}

// TestHealthOfAMoment: a failure that is over in a moment is none, as while a balancer changes API servers, or while one
// that has just started does not know anybody's rights; nor is an API server that has too much to do.
func TestHealthOfAMoment(t *testing.T) {
	for _, moment := range []struct {
		transport proxytest.Transport
		lasts     time.Duration
	}{
		{transport: failing(io.EOF), lasts: 4900 * time.Millisecond},
		{transport: saying(http.StatusForbidden, ""), lasts: 4900 * time.Millisecond},
		{transport: saying(http.StatusTooManyRequests, ""), lasts: time.Minute},
	} {
		run(t, saying(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
			rig.await(t, ConditionOK, time.Second)
			for range 100 {
				rig.set(moment.transport)
				_ = rig.get(t, "/api/v1/pods")
				time.Sleep(moment.lasts)
				if c := rig.Stats().Condition; c != ConditionOK {
					t.Fatalf("it is %s", c)
				}
				rig.set(saying(http.StatusOK, "ok"))
				expect.NoError(t, rig.get(t, "/api/v1/pods").Close())
				time.Sleep(2*probeInterval + 777*time.Millisecond)
			}
		})
	}
}

// TestHealthFromTheStart: that nobody answers is told, also if nobody ever did; and where an upstream
// was never ok, that may be this replica's own trouble.
func TestHealthFromTheStart(t *testing.T) {
	for want, how := range map[Condition]proxytest.Transport{
		ConditionUnreachable: failing(io.EOF), ConditionUnauthorized: saying(http.StatusUnauthorized, ""), ConditionForbidden: saying(http.StatusForbidden, ""),
	} {
		run(t, how, func(t *testing.T, rig *healthRig) {
			rig.await(t, want, 6*time.Second)
			s := rig.Stats()
			if !s.NeverOK || s.Answered.IsZero() != (want == ConditionUnreachable) {
				t.Errorf("it is %+v", s)
			}
			if n := strings.Count(rig.log.String(), "\n"); n != 1 {
				t.Errorf("the log has\n%s", rig.log)
			}
		})
	}
}

// TestHealthOfRefusedConnections: two that are refused in a row are told at once, those of others alone never, and
// these do not make it ask much more.
func TestHealthOfRefusedConnections(t *testing.T) {
	run(t, saying(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		rig.others.Store(&ended)
		before := rig.asked.Load()
		for range 600 {
			_ = rig.get(t, "/api/v1/pods")
			time.Sleep(100 * time.Millisecond)
		}
		if n := rig.asked.Load() - before; n > 15 {
			t.Errorf("it was asked %d times in a minute", n)
		}
		rig.others.Store(new(saying(http.StatusOK, "ok")))
		time.Sleep(2*probeInterval + time.Second)
		expect.Same(t, 1, strings.Count(rig.log.String(), "\n"))
		rig.set(ended)
		_ = rig.get(t, "/api/v1/pods")
		synctest.Wait()
		expect.Same(t, ConditionUnreachable, rig.Stats().Condition)
		rig.set(saying(http.StatusOK, "ok"))
		rig.await(t, ConditionOK, told)
	})
}

// TestHealthOfTheBusy: while bytes come, a late answer to a question is no trouble.
func TestHealthOfTheBusy(t *testing.T) {
	run(t, saying(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		stream, events := io.Pipe()
		rig.others.Store(new(streaming(stream)))
		body := rig.get(t, "/api/v1/pods?watch=1")
		rig.questions.Store(new(proxytest.Transport(frozen)))
		for range 600 {
			go func() { _, _ = events.Write([]byte("x")) }()
			_, err := body.Read(make([]byte, 1))
			expect.NoError(t, err)
			time.Sleep(time.Second)
		}
		if s := rig.Stats(); s.Condition != ConditionOK || time.Since(s.Answered) > 2*time.Second {
			t.Errorf("it is %+v", s)
		}
		expect.NoError(t, body.Close())
		// The last byte may have come while a question was under way, which is taken for answered then.
		rig.await(t, ConditionUnreachable, told+probeTimeout)
	})
}

// TestHealthOfTheAccount: an account that may not read one resource, or not /readyz, is of use as long
// as it may follow another. It is of none when nothing is left that it may read, whatever everybody
// may read.
func TestHealthOfTheAccount(t *testing.T) {
	run(t, saying(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		stream, _ := io.Pipe()
		mayRead := func(path string) {
			rig.others.Store(new(proxytest.Transport(func(r *http.Request) (*http.Response, error) {
				switch r.URL.Path {
				case "/at" + path:
					return streaming(stream)(r)
				case "/at/apis/apps/v1": // discovery is everybody's
					return saying(http.StatusOK, "{}")(r)
				}
				return saying(http.StatusForbidden, "")(r)
			})))
		}
		mayRead("/api/v1/pods")
		watch := rig.get(t, "/api/v1/pods")
		expect.NoError(t, rig.get(t, "/apis/apps/v1/deployments").Close())
		rig.questions.Store(new(saying(http.StatusForbidden, "")))
		time.Sleep(time.Hour)
		if c := rig.Stats().Condition; c != ConditionOK {
			t.Errorf("while it may follow one resource it is %s", c)
		}
		rig.questions.Store(new(saying(http.StatusOK, "ok")))
		mayRead("nothing")
		expect.NoError(t, watch.Close())
		expect.NoError(t, watch.Close()) // as some do
		expect.NoError(t, rig.get(t, "/api/v1/pods").Close())
		rig.await(t, ConditionForbidden, told)
		for range 10 {
			expect.NoError(t, rig.get(t, "/apis/apps/v1").Close())
			time.Sleep(time.Minute)
		}
		if c := rig.Stats().Condition; c != ConditionForbidden {
			t.Errorf("while it may read nothing it is %s", c)
		}
		mayRead("/apis/apps/v1/deployments")
		expect.NoError(t, rig.get(t, "/apis/apps/v1/deployments").Close())
		rig.await(t, ConditionOK, told)
	})
}

// TestOutages: an outage begins with a request that gets no answer, or an answer that breaks off, when nothing else
// is answered. Any answer ends it, but for a while not the refusals and errors of an API server that has just started.
// What goes on in streams is no answer: a kube-apiserver that ends keeps its watches to the last.
func TestOutages(t *testing.T) {
	run(t, saying(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		returns := 0
		rig.OnReturn(func() { returns++ })
		want := func(when string, lasts bool) {
			t.Helper()
			synctest.Wait()
			if rig.Outage().Lasts != lasts {
				t.Errorf("%s: %+v", when, rig.Outage())
			}
		}
		rig.await(t, ConditionOK, time.Second)
		rig.get(t, "/version")
		want("all is well", false)
		in, out := io.Pipe()
		rig.set(streaming(in))
		body := rig.get(t, "/api/v1/pods")
		heard := time.Now()
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
		_, _ = io.ReadAll(body)
		want("a stream broke off", true)
		rig.set(ended)
		rig.get(t, "/version")
		if got := rig.Outage().Heard; !got.Equal(heard) {
			t.Errorf("it was heard %v ago, want %v", time.Since(got), time.Since(heard))
		}
		time.Sleep(time.Minute)
		want("refused for a minute", true)
		rig.set(saying(http.StatusForbidden, ""))
		rig.get(t, "/version")
		rig.Answered(http.StatusInternalServerError)
		want("it has just started", true)
		rig.set(saying(http.StatusOK, "ok"))
		rig.get(t, "/version")
		want("it answers", false)
		if got := rig.Outage(); returns != 1 || !got.Heard.Equal(heard) || !got.Ended.Equal(time.Now()) {
			t.Errorf("told %d times, %+v", returns, got)
		}
		rig.set(ended)
		rig.get(t, "/version")
		rig.set(saying(http.StatusForbidden, ""))
		time.Sleep(startupTime + probeInterval + confirmInterval)
		want("it goes on refusing", false)
		rig.set(ended)
		rig.get(t, "/version")
		synctest.Wait()
		rig.Answered(http.StatusNotFound)
		want("a caller was answered", false)
		rig.set(saying(http.StatusOK, "ok"))
		// A server that is slow says something else meanwhile.
		slow := make(chan struct{})
		rig.others.Store(new(proxytest.Transport(func(*http.Request) (*http.Response, error) {
			<-slow
			return nil, context.DeadlineExceeded
		})))
		go func() { rig.get(t, "/version") }()
		time.Sleep(probeInterval * 2)
		before := returns
		close(slow)
		want("a request took too long", false)
		expect.Same(t, before, returns)
		in, out = io.Pipe()
		rig.set(streaming(in))
		body = rig.get(t, "/api/v1/pods")
		go func() { _, _ = io.Copy(io.Discard, body) }()
		rig.set(ended)
		rig.get(t, "/version")
		_, _ = out.Write([]byte("an event"))
		want("nobody answers, and a watch goes on", true)
		_ = out.Close()
		rig.set(saying(http.StatusOK, "ok"))
		rig.get(t, "/version")
		want("it answers again", false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rig.set(func(r *http.Request) (*http.Response, error) { return nil, r.Context().Err() })
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api/at/version", nil)
		expect.NoError(t, err)
		res, err := rig.own.Do(r)
		if err == nil {
			_ = res.Body.Close()
		}
		want("a request was given up", false)
	})
}
