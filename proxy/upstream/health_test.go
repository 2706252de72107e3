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

// answering answers each request with a code and a body.
func answering(code int, body string) proxytest.Transport {
	return func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, code, body), nil }
}

// failing answers no request.
func failing(err error) proxytest.Transport {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// refusing refuses each connection.
var refusing = failing(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

// frozen answers no request before its context ends.
func frozen(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// streaming answers with a 200, whose body is stream.
func streaming(stream *io.PipeReader) proxytest.Transport {
	return func(r *http.Request) (*http.Response, error) {
		res := proxytest.JSONResponse(r, http.StatusOK, "")
		res.Body = io.NopCloser(stream)
		return res, nil
	}
}

// healthRig has a Health of an API server whose answers a test chooses.
type healthRig struct {
	*Health
	probes atomic.Pointer[proxytest.Transport] // answers the probes
	others atomic.Pointer[proxytest.Transport] // answers listproxy's other requests
	probed atomic.Int64                        // the number of probes
	log    *logbuffer.Buffer
	own    *http.Client // sends listproxy's other requests
}

// RoundTrip implements [http.RoundTripper].
func (rig *healthRig) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := rig.others.Load()
	if r.URL.Path == "/at/readyz" {
		rig.probed.Add(1)
		transport = rig.probes.Load()
	}
	return (*transport)(r)
}

// set makes transport answer all requests from now on.
func (rig *healthRig) set(transport proxytest.Transport) {
	rig.probes.Store(&transport)
	rig.others.Store(&transport)
}

// run runs test in a synctest bubble, with an API server that at first answers by transport.
func run(t *testing.T, transport proxytest.Transport, test func(*testing.T, *healthRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rig := &healthRig{log: &logbuffer.Buffer{}}
		rig.set(transport)
		rig.Health = &Health{
			client:    &http.Client{Transport: rig},
			base:      &url.URL{Scheme: "https", Host: "api", Path: "/at"},
			log:       slog.New(slog.NewTextHandler(rig.log, nil)),
			diagnosis: Diagnosis{Condition: ConditionUnknown, Since: time.Now()},
		}
		rig.own = &http.Client{Transport: observedTransport{RoundTripper: rig, traffic: &rig.traffic, base: rig.base}}
		proxytest.RunInBubble(t, rig.Run)
		test(t, rig)
	})
}

// await waits until the upstream's condition is c, and fails if that takes longer than within.
func (rig *healthRig) await(t *testing.T, c Condition, within time.Duration) {
	t.Helper()
	begun := time.Now()
	for rig.Diagnosis().Condition != c {
		if time.Since(begun) > within {
			t.Fatalf("the condition is %s, not %s, after %v: %s", rig.Diagnosis().Condition, c, within, rig.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// get sends one of listproxy's other requests, and returns the body of the answer; nil if there was no answer.
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

// maxDelay bounds the time after which a failure, or its end, is known.
const maxDelay = 20 * time.Second

// TestHealthTellsEachFailureOnce: each failure is known within twenty seconds. The log has one line for it, however long
// it lasts, and one for its end. Meanwhile there are no more probes than usual, and a replica that was OK before stays
// ready.
func TestHealthTellsEachFailureOnce(t *testing.T) {
	unready := "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed\nreadyz check failed"
	for name, tt := range map[string]struct {
		transport   proxytest.Transport
		want        Condition
		wantProblem string
	}{
		"connection refused": {transport: refusing, want: ConditionUnreachable, wantProblem: "connection refused"},
		"no answer":          {transport: frozen, want: ConditionUnreachable, wantProblem: "deadline exceeded"},
		"another CA": {
			transport: failing(x509.UnknownAuthorityError{}), want: ConditionUnreachable, wantProblem: "unknown authority",
		},
		"unknown account": {transport: answering(http.StatusUnauthorized, ""), want: ConditionUnauthorized, wantProblem: "401"},
		"account without rights": {
			transport: answering(http.StatusForbidden, ""), want: ConditionForbidden, wantProblem: "allows nothing",
		},
		"etcd is away": {
			transport:   answering(http.StatusInternalServerError, unready),
			want:        ConditionNotReady,
			wantProblem: "/readyz answers 500",
		},
		"a redirect": {
			transport:   answering(http.StatusFound, "<html></html>"),
			want:        ConditionNotReady,
			wantProblem: "302, which no kube-apiserver does",
		},
		"a wrong path": {
			transport:   answering(http.StatusNotFound, ""),
			want:        ConditionNotReady,
			wantProblem: "404, which no kube-apiserver does",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, answering(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
				rig.await(t, ConditionOK, time.Second)
				time.Sleep(17 * time.Second)
				rig.set(tt.transport)
				rig.await(t, tt.want, maxDelay)
				before := rig.probed.Load()
				time.Sleep(10 * time.Minute)
				if n := rig.probed.Load() - before; n < 40 || n > 60 {
					t.Errorf("there were %d probes in ten minutes, want about 50", n)
				}
				s := rig.Diagnosis()
				expect.Says(t, s.Problem, tt.wantProblem)
				if s.Condition != tt.want || s.NeverOK || s.Advice == "" || time.Since(s.Since) < 10*time.Minute {
					t.Errorf("the state is %+v, want %s for ten minutes, with advice", s, tt.want)
				}
				rig.set(answering(http.StatusOK, "ok"))
				rig.await(t, ConditionOK, maxDelay)
				if s = rig.Diagnosis(); s.NeverOK || s.Problem != "" || s.Advice != "" || time.Since(s.Answered) > time.Second {
					t.Errorf("after the failure the state is %+v, want OK without a problem", s)
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

// TestHealthOfAMoment: a failure of less than five seconds does not count: a load balancer may be changing API servers, or
// an API server that has just started does not know anybody's rights yet. Nor does a 429 count, however long it lasts.
func TestHealthOfAMoment(t *testing.T) {
	for _, moment := range []struct {
		transport proxytest.Transport
		lasts     time.Duration
	}{
		{transport: failing(io.EOF), lasts: 4900 * time.Millisecond},
		{transport: answering(http.StatusForbidden, ""), lasts: 4900 * time.Millisecond},
		{transport: answering(http.StatusTooManyRequests, ""), lasts: time.Minute},
	} {
		run(t, answering(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
			rig.await(t, ConditionOK, time.Second)
			for range 100 {
				rig.set(moment.transport)
				_ = rig.get(t, "/api/v1/pods")
				time.Sleep(moment.lasts)
				if c := rig.Diagnosis().Condition; c != ConditionOK {
					t.Fatalf("the condition is %s, want OK", c)
				}
				rig.set(answering(http.StatusOK, "ok"))
				expect.NoError(t, rig.get(t, "/api/v1/pods").Close())
				time.Sleep(2*probeInterval + 777*time.Millisecond)
			}
		})
	}
}

// TestHealthFromTheStart: a failure from the start on is known and logged, too. NeverOK says that it may be this replica's
// own.
func TestHealthFromTheStart(t *testing.T) {
	for want, transport := range map[Condition]proxytest.Transport{
		ConditionUnreachable:  failing(io.EOF),
		ConditionUnauthorized: answering(http.StatusUnauthorized, ""),
		ConditionForbidden:    answering(http.StatusForbidden, ""),
	} {
		run(t, transport, func(t *testing.T, rig *healthRig) {
			rig.await(t, want, 6*time.Second)
			s := rig.Diagnosis()
			if wasAnswered := want != ConditionUnreachable; !s.NeverOK || s.Answered.IsZero() == wasAnswered {
				t.Errorf("the state is %+v, want NeverOK and answered %t", s, wasAnswered)
			}
			if n := strings.Count(rig.log.String(), "\n"); n != 1 {
				t.Errorf("the log has %d lines, want 1:\n%s", n, rig.log)
			}
		})
	}
}

// TestHealthOfTheBusy: while a watch receives bytes, a probe without an answer is not a failure.
func TestHealthOfTheBusy(t *testing.T) {
	run(t, answering(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		stream, events := io.Pipe()
		rig.others.Store(new(streaming(stream)))
		body := rig.get(t, "/api/v1/pods?watch=1")
		rig.probes.Store(new(proxytest.Transport(frozen)))
		for range 600 {
			go func() { _, _ = events.Write([]byte("x")) }()
			_, err := body.Read(make([]byte, 1))
			expect.NoError(t, err)
			time.Sleep(time.Second)
		}
		if s := rig.Diagnosis(); s.Condition != ConditionOK || time.Since(s.Answered) > 2*time.Second {
			t.Errorf("the state is %+v, want OK and answered just now", s)
		}
		expect.NoError(t, body.Close())
		// A probe during which the last byte came counts as answered.
		rig.await(t, ConditionUnreachable, maxDelay+probeTimeout)
	})
}

// TestHealthOfTheAccount: an account that may not read /readyz, or one resource, is OK as long as it may watch another
// resource. It is forbidden when it may read no resource any more, even if it may read discovery, as everybody may.
func TestHealthOfTheAccount(t *testing.T) {
	run(t, answering(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		stream, _ := io.Pipe()
		mayRead := func(path string) {
			rig.others.Store(new(proxytest.Transport(func(r *http.Request) (*http.Response, error) {
				switch r.URL.Path {
				case "/at" + path:
					return streaming(stream)(r)
				case "/at/apis/apps/v1": // discovery is everybody's
					return answering(http.StatusOK, "{}")(r)
				}
				return answering(http.StatusForbidden, "")(r)
			})))
		}
		mayRead("/api/v1/pods")
		watch := rig.get(t, "/api/v1/pods")
		expect.NoError(t, rig.get(t, "/apis/apps/v1/deployments").Close())
		rig.probes.Store(new(answering(http.StatusForbidden, "")))
		time.Sleep(time.Hour)
		if c := rig.Diagnosis().Condition; c != ConditionOK {
			t.Errorf("while the account may watch one resource the condition is %s, want OK", c)
		}
		rig.probes.Store(new(answering(http.StatusOK, "ok")))
		mayRead("nothing")
		expect.NoError(t, watch.Close())
		expect.NoError(t, watch.Close()) // a second Close must not count
		expect.NoError(t, rig.get(t, "/api/v1/pods").Close())
		rig.await(t, ConditionForbidden, maxDelay)
		for range 10 {
			expect.NoError(t, rig.get(t, "/apis/apps/v1").Close())
			time.Sleep(time.Minute)
		}
		if c := rig.Diagnosis().Condition; c != ConditionForbidden {
			t.Errorf("while the account may read no resource the condition is %s, want forbidden", c)
		}
		mayRead("/apis/apps/v1/deployments")
		expect.NoError(t, rig.get(t, "/apis/apps/v1/deployments").Close())
		rig.await(t, ConditionOK, maxDelay)
	})
}

// TestOutages: an outage begins when a request gets no answer, or an answer breaks off, and no other request is answered
// meanwhile. Any answer ends the outage, but refusals and errors only after startupTime: an API server that has just
// started gives them. An event of an open watch does not end an outage: a kube-apiserver that is shutting down keeps its
// watches to the last.
func TestOutages(t *testing.T) {
	run(t, answering(http.StatusOK, "ok"), func(t *testing.T, rig *healthRig) {
		ends := 0
		rig.OnOutageEnd(func() {
			ends++
			_ = rig.Diagnosis() // the function may ask for anything
		})
		want := func(when string, lasts bool) {
			t.Helper()
			synctest.Wait()
			if rig.Outage().Ongoing != lasts {
				t.Errorf("%s: the outage is %+v, want it to last: %t", when, rig.Outage(), lasts)
			}
		}
		rig.await(t, ConditionOK, time.Second)
		rig.get(t, "/version")
		want("all requests are answered", false)
		in, out := io.Pipe()
		rig.set(streaming(in))
		body := rig.get(t, "/api/v1/pods")
		lastHeard := time.Now()
		_ = out.CloseWithError(io.ErrUnexpectedEOF)
		_, _ = io.ReadAll(body)
		want("a stream broke off", true)
		rig.set(refusing)
		rig.get(t, "/version")
		if got := rig.Outage().LastHeard; !got.Equal(lastHeard) {
			t.Errorf("the upstream was heard %v ago, want %v", time.Since(got), time.Since(lastHeard))
		}
		time.Sleep(time.Minute)
		want("refused for a minute", true)
		rig.set(answering(http.StatusForbidden, ""))
		rig.get(t, "/version")
		rig.RecordCallerAnswer(http.StatusInternalServerError)
		want("the first answers are refusals and errors", true)
		rig.set(answering(http.StatusOK, "ok"))
		rig.get(t, "/version")
		want("the upstream answers", false)
		if got := rig.Outage(); ends != 1 || !got.LastHeard.Equal(lastHeard) || !got.Ended.Equal(time.Now()) {
			t.Errorf("OnOutageEnd was called %d times, want 1; the outage is %+v", ends, got)
		}
		rig.set(refusing)
		rig.get(t, "/version")
		rig.set(answering(http.StatusForbidden, ""))
		time.Sleep(startupTime + probeInterval + confirmInterval)
		want("refusals go on after startupTime", false)
		rig.set(refusing)
		rig.get(t, "/version")
		synctest.Wait()
		rig.RecordCallerAnswer(http.StatusNotFound)
		want("a caller was answered", false)
		rig.set(answering(http.StatusOK, "ok"))
		// While one request waits, probes are answered: the server is only slow.
		slow := make(chan struct{})
		rig.others.Store(new(proxytest.Transport(func(*http.Request) (*http.Response, error) {
			<-slow
			return nil, context.DeadlineExceeded
		})))
		go func() { rig.get(t, "/version") }()
		time.Sleep(probeInterval * 2)
		before := ends
		close(slow)
		want("a request took too long", false)
		expect.Same(t, before, ends)
		in, out = io.Pipe()
		rig.set(streaming(in))
		body = rig.get(t, "/api/v1/pods")
		go func() { _, _ = io.Copy(io.Discard, body) }()
		rig.set(refusing)
		rig.get(t, "/version")
		_, _ = out.Write([]byte("an event"))
		want("no request is answered, but a watch goes on", true)
		_ = out.Close()
		rig.set(answering(http.StatusOK, "ok"))
		rig.get(t, "/version")
		want("the upstream answers again", false)
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
