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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// answering answers each request with a code and a body.
func answering(code int, body string) proxytest.Transport {
	return func(r *http.Request) (*http.Response, error) { return inmemory.Answer(r, code, body), nil }
}

// healthy answers each request as a ready API server answers a probe.
var healthy = answering(http.StatusOK, "ok")

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

// streaming answers with a 200 whose body is stream.
func streaming(stream *io.PipeReader) proxytest.Transport {
	return func(r *http.Request) (*http.Response, error) {
		res := inmemory.Answer(r, http.StatusOK, "")
		res.Body = io.NopCloser(stream)
		return res, nil
	}
}

// healthRig has a Health of an API server whose answers a test chooses.
type healthRig struct {
	*Health
	probeTransport   atomic.Pointer[proxytest.Transport] // answers probes
	requestTransport atomic.Pointer[proxytest.Transport] // answers all other requests of listproxy
	requester        *http.Client                        // sends the other requests
	probes           atomic.Int64                        // the number of probes
	log              *logbuffer.Buffer
}

// RoundTrip implements [http.RoundTripper].
func (rig *healthRig) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := rig.requestTransport.Load()
	if r.URL.Path == "/at/readyz" {
		rig.probes.Add(1)
		transport = rig.probeTransport.Load()
	}
	return (*transport)(r)
}

// answerProbesBy makes transport answer the probes from now on.
func (rig *healthRig) answerProbesBy(transport proxytest.Transport) {
	rig.probeTransport.Store(&transport)
}

// answerRequestsBy makes transport answer all requests but probes from now on.
func (rig *healthRig) answerRequestsBy(transport proxytest.Transport) {
	rig.requestTransport.Store(&transport)
}

// answerAllBy makes transport answer all requests from now on.
func (rig *healthRig) answerAllBy(transport proxytest.Transport) {
	rig.answerProbesBy(transport)
	rig.answerRequestsBy(transport)
}

// withHealthRig runs test in a synctest bubble, with an API server that at first answers by transport.
func withHealthRig(t *testing.T, transport proxytest.Transport, test func(*testing.T, *healthRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rig := &healthRig{log: &logbuffer.Buffer{}}
		rig.answerAllBy(transport)
		rig.Health = &Health{
			client:    &http.Client{Transport: rig},
			base:      &url.URL{Scheme: "https", Host: "api", Path: "/at"},
			log:       slog.New(slog.NewTextHandler(rig.log, nil)),
			diagnosis: Diagnosis{Condition: ConditionUnknown, Since: time.Now()},
		}
		rig.requester = &http.Client{Transport: observedTransport{RoundTripper: rig, traffic: &rig.traffic, base: rig.base}}
		proxytest.RunInBubble(t, rig.Run)
		test(t, rig)
	})
}

// await waits until the diagnosis has the wanted condition. It ends the test if this takes longer than within.
func (rig *healthRig) await(t *testing.T, want Condition, within time.Duration) {
	t.Helper()
	begun := time.Now()
	for rig.Diagnosis().Condition != want {
		if time.Since(begun) > within {
			t.Fatalf("after %v the condition is %s, want %s; the log:\n%s", within, rig.Diagnosis().Condition, want, rig.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// get sends a request that is no probe, and returns the body of the answer, or nil if there was no answer.
func (rig *healthRig) get(t *testing.T, path string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api/at"+path, nil)
	expect.NoError(t, err)
	res, err := rig.requester.Do(r)
	if err != nil {
		return nil
	}
	return res.Body
}

// maxDelay bounds the time after which a failure, or its end, is known.
const maxDelay = 20 * time.Second

// TestEachFailureIsLoggedOnce: each failure is known within maxDelay, and logged once with advice, however long it lasts.
// Its end is logged, too. Probes do not become more frequent, and NeverOK is not set, so the replica stays ready.
func TestEachFailureIsLoggedOnce(t *testing.T) {
	unready := "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed\nreadyz check failed"
	for name, tt := range map[string]struct {
		transport     proxytest.Transport
		wantCondition Condition
		wantProblem   string // a part of the diagnosis
	}{
		"connection refused": {transport: refusing, wantCondition: ConditionUnreachable, wantProblem: "connection refused"},
		"no answer":          {transport: frozen, wantCondition: ConditionUnreachable, wantProblem: "deadline exceeded"},
		"another CA": {
			transport: failing(x509.UnknownAuthorityError{}), wantCondition: ConditionUnreachable, wantProblem: "unknown authority",
		},
		"unknown account": {transport: answering(http.StatusUnauthorized, ""), wantCondition: ConditionUnauthorized, wantProblem: "401"},
		"account without rights": {
			transport: answering(http.StatusForbidden, ""), wantCondition: ConditionForbidden, wantProblem: "allows nothing",
		},
		"etcd is away": {
			transport:     answering(http.StatusInternalServerError, unready),
			wantCondition: ConditionNotReady, wantProblem: "/readyz answers 500",
		},
		"a redirect": {
			transport:     answering(http.StatusFound, "<html></html>"),
			wantCondition: ConditionNotReady, wantProblem: "302, which no kube-apiserver does",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
				// The failure begins between two probes.
				rig.await(t, ConditionOK, time.Second)
				time.Sleep(probeInterval + 7*time.Second)
				rig.answerAllBy(tt.transport)
				rig.await(t, tt.wantCondition, maxDelay)
				// While it lasts, probes are as frequent as before.
				const duration = 10 * time.Minute
				const least = int64(duration / (probeInterval + probeTimeout + time.Second)) // with a second of jitter
				const most = int64(duration / probeInterval)
				probesBefore := rig.probes.Load()
				time.Sleep(duration)
				if n := rig.probes.Load() - probesBefore; n < least || n > most {
					t.Errorf("there were %d probes in %v, want %d to %d", n, duration, least, most)
				}
				failed := rig.Diagnosis()
				expect.Same(t, tt.wantCondition, failed.Condition)
				expect.Same(t, false, failed.NeverOK)
				expect.Says(t, failed.Problem, tt.wantProblem)
				if age := time.Since(failed.Since); age < duration {
					t.Errorf("the failure has been known for %v, want at least %v", age, duration)
				}

				// After its end, nothing is left of it in the diagnosis.
				rig.answerAllBy(healthy)
				rig.await(t, ConditionOK, maxDelay)
				recovered := rig.Diagnosis()
				expect.Same(t, Diagnosis{Condition: ConditionOK, Since: recovered.Since, Answered: recovered.Answered}, recovered)
				// The log has the start, the failure and its end.
				lines := strings.Split(strings.TrimSpace(rig.log.String()), "\n")
				if len(lines) != 3 {
					t.Fatalf("the log has %d lines, want 3:\n%s", len(lines), rig.log)
				}
				expect.Says(t, lines[0], `level=INFO msg="kube-apiserver answers" state=ok`)
				expect.Says(t, lines[1], "level=WARN", " do=", "state="+string(tt.wantCondition))
				expect.Says(t, lines[2], "level=INFO")
			})
		})
	}
}

// TestShortFailuresAreIgnored: a failure of less than five seconds (confirmInterval) does not change the condition. A load
// balancer may be changing API servers, or an API server may not have read its roles yet. A 429 does not change it either,
// however long it lasts.
func TestShortFailuresAreIgnored(t *testing.T) {
	const moment = confirmInterval - 100*time.Millisecond
	for name, tt := range map[string]struct {
		transport proxytest.Transport
		duration  time.Duration
	}{
		"no answer":         {transport: failing(io.EOF), duration: moment},
		"forbidden":         {transport: answering(http.StatusForbidden, ""), duration: moment},
		"too many requests": {transport: answering(http.StatusTooManyRequests, ""), duration: time.Minute},
	} {
		withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
			rig.await(t, ConditionOK, time.Second)
			// A hundred failures, each at another time between two probes.
			for range 100 {
				rig.answerAllBy(tt.transport)
				_ = rig.get(t, "/api/v1/pods")
				time.Sleep(tt.duration)
				if c := rig.Diagnosis().Condition; c != ConditionOK {
					t.Fatalf("%s for %v: the condition is %s, want OK", name, tt.duration, c)
				}
				rig.answerAllBy(healthy)
				expect.NoError(t, rig.get(t, "/api/v1/pods").Close())
				time.Sleep(2*probeInterval + 777*time.Millisecond) // not a multiple of probeInterval
			}
		})
	}
}

// TestFailureFromTheStart: a failure from the start on is known and logged, too. It sets NeverOK: the fault may be in this
// replica's configuration, and not in the upstream.
func TestFailureFromTheStart(t *testing.T) {
	for name, tt := range map[string]struct {
		transport     proxytest.Transport
		wantCondition Condition
		wantAnswered  bool // the upstream has sent something
	}{
		"no answer":       {transport: failing(io.EOF), wantCondition: ConditionUnreachable},
		"unknown account": {transport: answering(http.StatusUnauthorized, ""), wantCondition: ConditionUnauthorized, wantAnswered: true},
		"no rights":       {transport: answering(http.StatusForbidden, ""), wantCondition: ConditionForbidden, wantAnswered: true},
	} {
		withHealthRig(t, tt.transport, func(t *testing.T, rig *healthRig) {
			rig.await(t, tt.wantCondition, confirmInterval+time.Second)
			got := rig.Diagnosis()
			if !got.NeverOK {
				t.Errorf("%s: NeverOK is not set", name)
			}
			if answered := !got.Answered.IsZero(); answered != tt.wantAnswered {
				t.Errorf("%s: answered %t, want %t", name, answered, tt.wantAnswered)
			}
			expect.Same(t, 1, strings.Count(rig.log.String(), "\n"))
		})
	}
}

// TestWatchProvesHealth: while a watch receives bytes, the upstream is OK even if no probe is answered.
func TestWatchProvesHealth(t *testing.T) {
	withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		stream, events := io.Pipe()
		rig.answerRequestsBy(streaming(stream))
		body := rig.get(t, "/api/v1/pods?watch=1")
		// For ten minutes no probe is answered, but the watch receives a byte each second.
		rig.answerProbesBy(frozen)
		for range int(10 * time.Minute / time.Second) {
			go func() { _, _ = events.Write([]byte("x")) }()
			_, err := body.Read(make([]byte, 1))
			expect.NoError(t, err)
			time.Sleep(time.Second)
		}
		got := rig.Diagnosis()
		expect.Same(t, ConditionOK, got.Condition)
		if time.Since(got.Answered) > 2*time.Second {
			t.Errorf("the upstream answered %v ago, want at most 2s", time.Since(got.Answered))
		}
		// Without the watch, the upstream is found unreachable, but not by the probe during which the last byte came.
		expect.NoError(t, body.Close())
		rig.await(t, ConditionUnreachable, maxDelay+probeTimeout)
	})
}

// TestHealthOfTheAccount: the condition is OK while the account may watch some resource, even if it may not read /readyz or
// another resource. The condition is forbidden once the account may read no resource, even if it may read discovery, as
// everybody may.
func TestHealthOfTheAccount(t *testing.T) {
	withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
		rig.await(t, ConditionOK, time.Second)
		const pods, deployments = "/api/v1/pods", "/apis/apps/v1/deployments"
		const discovery, noResource = "/apis/apps/v1", ""
		forbidden := answering(http.StatusForbidden, "")
		silent, _ := io.Pipe()
		// allowOnly lets the account read discovery and one more path.
		allowOnly := func(path string) {
			rig.answerRequestsBy(func(r *http.Request) (*http.Response, error) {
				switch r.URL.Path {
				case "/at" + path:
					return streaming(silent)(r)
				case "/at" + discovery:
					return answering(http.StatusOK, "{}")(r)
				}
				return forbidden(r)
			})
		}
		// The account may watch pods. It may read neither deployments nor /readyz.
		allowOnly(pods)
		watch := rig.get(t, pods)
		expect.NoError(t, rig.get(t, deployments).Close())
		rig.answerProbesBy(forbidden)
		time.Sleep(time.Hour)
		expect.Same(t, ConditionOK, rig.Diagnosis().Condition)

		// The account may read /readyz and discovery, but no resource.
		rig.answerProbesBy(healthy)
		allowOnly(noResource)
		expect.NoError(t, watch.Close())
		expect.NoError(t, watch.Close()) // a second Close must not count
		expect.NoError(t, rig.get(t, pods).Close())
		rig.await(t, ConditionForbidden, maxDelay)
		for range 10 {
			expect.NoError(t, rig.get(t, discovery).Close())
			time.Sleep(time.Minute)
		}
		expect.Same(t, ConditionForbidden, rig.Diagnosis().Condition)

		// The account may read a resource again.
		allowOnly(deployments)
		expect.NoError(t, rig.get(t, deployments).Close())
		rig.await(t, ConditionOK, maxDelay)
	})
}

// beginOutage opens a watch. A second later it begins an outage by a request that gets no answer. It returns the writer of the
// watch's body, which stays open.
func (rig *healthRig) beginOutage(t *testing.T) (events *io.PipeWriter) {
	t.Helper()
	rig.await(t, ConditionOK, time.Second)
	stream, events := io.Pipe()
	rig.answerAllBy(streaming(stream))
	body := rig.get(t, "/api/v1/pods")
	go func() { _, _ = io.Copy(io.Discard, body) }()
	t.Cleanup(func() { _ = events.Close() })
	time.Sleep(time.Second)
	rig.answerAllBy(refusing)
	rig.get(t, "/version")
	return events
}

// TestOutageBegins: an outage begins when an answer breaks off, or when a request gets no answer and no other request is
// answered meanwhile. A request that listproxy itself gives up does not count.
func TestOutageBegins(t *testing.T) {
	for name, tt := range map[string]struct {
		wantOngoing bool
		do          func(t *testing.T, rig *healthRig)
	}{
		"all requests are answered": {do: func(t *testing.T, rig *healthRig) { rig.get(t, "/version") }},
		"a request gets no answer": {wantOngoing: true, do: func(t *testing.T, rig *healthRig) {
			rig.answerAllBy(refusing)
			rig.get(t, "/version")
		}},
		"an answer breaks off": {wantOngoing: true, do: func(t *testing.T, rig *healthRig) {
			stream, writer := io.Pipe()
			rig.answerAllBy(streaming(stream))
			body := rig.get(t, "/api/v1/pods")
			_ = writer.CloseWithError(io.ErrUnexpectedEOF)
			_, _ = io.ReadAll(body)
		}},
		"a request gets no answer, while probes are answered": {do: func(t *testing.T, rig *healthRig) { // the server is only slow
			rig.answerRequestsBy(func(*http.Request) (*http.Response, error) {
				time.Sleep(2 * probeInterval)
				return nil, context.DeadlineExceeded
			})
			rig.get(t, "/version")
		}},
		"a request is canceled by its sender": {do: func(t *testing.T, rig *healthRig) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			rig.answerAllBy(frozen)
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api/at/version", nil)
			expect.NoError(t, err)
			if res, err := rig.requester.Do(r); err == nil {
				_ = res.Body.Close()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
				rig.OnOutageEnd(func() { t.Error("an outage has begun and ended") })
				rig.await(t, ConditionOK, time.Second)
				tt.do(t, rig)
				synctest.Wait()
				expect.Same(t, tt.wantOngoing, rig.Outage().Ongoing)
			})
		})
	}
}

// TestOutageEnds: any answer ends an outage, with two exceptions. An API server that has just started refuses requests, or
// answers with errors, so these count only after 15 s (startupTime). A kube-apiserver that is shutting down keeps its watches
// to the last, so an event of an open watch does not count.
func TestOutageEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		wantOngoing bool
		do          func(t *testing.T, rig *healthRig, events *io.PipeWriter)
	}{
		"no answer for a minute": {wantOngoing: true, do: func(*testing.T, *healthRig, *io.PipeWriter) { time.Sleep(time.Minute) }},
		"an event of an open watch": {wantOngoing: true, do: func(_ *testing.T, _ *healthRig, events *io.PipeWriter) {
			_, _ = events.Write([]byte("an event"))
		}},
		"the first answers are refusals and errors": {wantOngoing: true, do: func(t *testing.T, rig *healthRig, _ *io.PipeWriter) {
			time.Sleep(time.Minute)
			rig.answerAllBy(answering(http.StatusForbidden, ""))
			rig.get(t, "/version")
			rig.RecordCallerAnswer(http.StatusInternalServerError)
		}},
		"refusals go on after startupTime": {do: func(_ *testing.T, rig *healthRig, _ *io.PipeWriter) {
			rig.answerAllBy(answering(http.StatusForbidden, ""))
			time.Sleep(startupTime + 2*probeInterval) // the first refusal comes with the next probe
		}},
		"an answer": {do: func(t *testing.T, rig *healthRig, _ *io.PipeWriter) {
			rig.answerAllBy(healthy)
			rig.get(t, "/version")
		}},
		"an answer to a caller": {do: func(_ *testing.T, rig *healthRig, _ *io.PipeWriter) {
			synctest.Wait()
			rig.RecordCallerAnswer(http.StatusNotFound)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
				ends := 0
				rig.OnOutageEnd(func() {
					ends++
					_ = rig.Diagnosis() // must not deadlock
				})
				tt.do(t, rig, rig.beginOutage(t))
				synctest.Wait()
				expect.Same(t, tt.wantOngoing, rig.Outage().Ongoing)
				if ended := ends == 1; ends > 1 || ended == tt.wantOngoing {
					t.Errorf("OnOutageEnd was called %d times, want once if the outage has ended", ends)
				}
			})
		})
	}
}

// TestOutage: Outage has the time at which the upstream last sent something before the outage, and the time at which the outage
// ended.
func TestOutage(t *testing.T) {
	withHealthRig(t, healthy, func(t *testing.T, rig *healthRig) {
		rig.beginOutage(t)
		lastHeard := time.Now().Add(-time.Second) // see beginOutage
		time.Sleep(time.Minute)
		expect.Same(t, lastHeard, rig.Outage().LastHeard)
		rig.answerAllBy(healthy)
		rig.get(t, "/version")
		expect.Same(t, lastHeard, rig.Outage().LastHeard)
		expect.Same(t, time.Now(), rig.Outage().Ended)
	})
}
