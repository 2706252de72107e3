package upstream

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
)

// answerer answers in place of an API server: path by path, as it is told.
type answerer struct {
	how atomic.Pointer[func(r *http.Request) (int, string, error)]
}

func (a *answerer) set(how func(r *http.Request) (int, string, error)) { a.how.Store(&how) }

func (a *answerer) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body, err := (*a.how.Load())(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// CloseIdleConnections does nothing: there are none.
func (*answerer) CloseIdleConnections() {}

func well(r *http.Request) (int, string, error) {
	switch {
	case strings.HasSuffix(r.URL.Path, "selfsubjectreviews"):
		return http.StatusCreated, `{"status":{"userInfo":{"username":"listproxy"}}}`, nil
	case strings.HasSuffix(r.URL.Path, "selfsubjectaccessreviews"):
		return http.StatusCreated, `{"status":{"allowed":true}}`, nil
	}
	return http.StatusOK, "ok", nil
}

func refusing(code int, message string) func(*http.Request) (int, string, error) {
	return func(*http.Request) (int, string, error) {
		return code, fmt.Sprintf(`{"kind":"Status","message":%q}`, message), nil
	}
}

// page is what answers in place of an API server.
func page(code int) func(*http.Request) (int, string, error) {
	return func(*http.Request) (int, string, error) { return code, "<html></html>", nil }
}

func frozen(r *http.Request) (int, string, error) {
	<-r.Context().Done()
	return 0, "", r.Context().Err()
}

// forbidding knows who asks, and allows nothing.
func forbidding(r *http.Request) (int, string, error) {
	if strings.HasSuffix(r.URL.Path, "selfsubjectaccessreviews") {
		return http.StatusCreated, `{"status":{"allowed":false}}`, nil
	}
	return well(r)
}

// unready answers all, and says that it is not ready.
func unready(r *http.Request) (int, string, error) {
	if r.URL.Path == "/readyz" {
		return http.StatusInternalServerError, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed\nreadyz check failed", nil
	}
	return well(r)
}

func slowly(r *http.Request) (int, string, error) {
	select {
	case <-time.After(slowAfter + 100*time.Millisecond):
	case <-r.Context().Done():
		return 0, "", r.Context().Err()
	}
	return well(r)
}

func failing(err error) func(*http.Request) (int, string, error) {
	return func(*http.Request) (int, string, error) { return 0, "", err }
}

type healthRig struct {
	*Health
	callers  atomic.Pointer[error] // why callers' requests are not answered
	api      *answerer
	log      *logbuffer.Buffer
	versions atomic.Pointer[[]string]
	cancel   context.CancelFunc
	done     chan struct{}
}

func startHealth(ctx context.Context) *healthRig {
	rig := newHealthRig()
	rig.start(ctx)
	return rig
}

func newHealthRig() *healthRig {
	rig := &healthRig{api: &answerer{}, log: &logbuffer.Buffer{}, done: make(chan struct{})}
	rig.api.set(well)
	rig.versions.Store(&[]string{"v1.36.0"})
	rig.Health = &Health{
		HealthConfig: HealthConfig{
			Needs: func() []schema.GroupVersionResource {
				return []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}
			},
			Versions: func() []string { return *rig.versions.Load() },
			Callers: func(context.Context) error {
				if err := rig.callers.Load(); err != nil {
					return *err
				}
				return nil
			},
			Log: slog.New(slog.NewTextHandler(rig.log, nil)),
		},
		prober: &Prober{&url.URL{Scheme: "https", Host: "api"}, &http.Client{Transport: rig.api}},
		cfg:    &rest.Config{}, stats: HealthStats{Condition: ConditionUnknown, Since: time.Now()},
	}
	return rig
}

func (r *healthRig) start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		r.Run(ctx)
	}()
}

// TestHealthOfCallersWay: a replica that gets answers itself, but whose callers do not, is not
// ready when the fault is on its side.
func TestHealthOfCallersWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := startHealth(t.Context())
		defer rig.stop()
		rig.await(t, ConditionOK)
		for _, fault := range []struct {
			err  error
			want Condition
			own  bool
		}{
			{x509.UnknownAuthorityError{}, ConditionUnreachable, true},
			{context.DeadlineExceeded, ConditionSlow, false},
		} {
			rig.callers.Store(&fault.err)
			rig.await(t, fault.want)
			if got := rig.Stats(); got.Own != fault.own || !strings.Contains(got.Problem, "callers' requests") {
				t.Errorf("%+v", got)
			}
			rig.callers.Store(nil)
			rig.await(t, ConditionOK)
		}
	})
}

// jwt is a token with these claims.
func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte("{"+claims+"}")) + ".c2ln"
}

func (r *healthRig) stop() {
	r.cancel()
	<-r.done
}

// await waits until the upstream is found in a condition, and returns how long that took.
func (r *healthRig) await(t *testing.T, c Condition) time.Duration {
	t.Helper()
	begun := time.Now()
	for r.Stats().Condition != c {
		if time.Since(begun) > time.Minute {
			t.Fatalf("it is %s, not %s, after a minute: %s", r.Stats().Condition, c, r.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// TestHealthTellsEachTroubleOnce: whatever happens is known within ten seconds, the log has one
// line for it however long it lasts, and one for its end; only what is this replica's own fault
// takes it out of its balancer.
func TestHealthTellsEachTroubleOnce(t *testing.T) {
	for name, test := range map[string]struct {
		how     func(*http.Request) (int, string, error)
		want    Condition
		own     bool
		problem string
	}{
		"ended":          {failing(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}), ConditionUnreachable, false, "connection refused"},
		"frozen":         {frozen, ConditionUnreachable, false, "no answer within 3s"},
		"another CA":     {failing(x509.UnknownAuthorityError{}), ConditionUnreachable, true, "unknown authority"},
		"no name":        {failing(&net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}), ConditionUnreachable, true, "no such host"},
		"no route":       {failing(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), ConditionUnreachable, true, "no route"},
		"no account":     {refusing(http.StatusUnauthorized, "Unauthorized"), ConditionUnauthorized, false, "401 Unauthorized: Unauthorized"},
		"nothing at all": {refusing(http.StatusForbidden, `User "x" cannot create`), ConditionForbidden, false, `User "x" cannot create`},
		"no rights":      {forbidding, ConditionForbidden, false, "may list none"},
		"no etcd":        {unready, ConditionNotReady, false, "/readyz answers 500: etcd, etcd-readiness"},
		"a login page":   {page(http.StatusOK), ConditionNotReady, false, "200 OK"},
		"sent elsewhere": {page(http.StatusFound), ConditionNotReady, false, "302 Found"},
		"another path":   {page(http.StatusNotFound), ConditionNotReady, false, "404 Not Found"},
		"overloaded":     {refusing(http.StatusTooManyRequests, "too many"), ConditionSlow, false, "429"},
		"slow":           {slowly, ConditionSlow, false, "an answer took 1.6s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := startHealth(t.Context())
				defer rig.stop()
				rig.await(t, ConditionOK)
				time.Sleep(17 * time.Second)
				rig.api.set(test.how)
				if took := rig.await(t, test.want); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(10 * time.Minute)
				s := rig.Stats()
				if s.Condition != test.want || s.Own != test.own || !strings.Contains(s.Problem, test.problem) || s.Advice == "" {
					t.Errorf("it is %+v", s)
				}
				rig.api.set(well)
				if took := rig.await(t, ConditionOK); took > 10*time.Second {
					t.Errorf("its end took %v", took)
				}
				if s := rig.Stats(); s.Own || s.Problem != "" || s.Advice != "" || s.User != "listproxy" {
					t.Errorf("in the end it is %+v", s)
				}
				lines := strings.Split(strings.TrimSpace(rig.log.String()), "\n")
				if len(lines) != 3 || !strings.Contains(lines[0], `level=INFO msg="kube-apiserver answers" state=ok as=listproxy`) ||
					!strings.Contains(lines[1], "level=WARN") || !strings.Contains(lines[1], " do=") || !strings.Contains(lines[1], "state="+string(test.want)) ||
					!strings.Contains(lines[2], "level=INFO") {
					t.Errorf("the log has\n%s", rig.log)
				}
			})
		})
	}
}

// TestHealthWithoutRightsToMany: rights that were lost are told as such, even if to ask for all of
// them takes longer than a check.
func TestHealthWithoutRightsToMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newHealthRig()
		rig.Needs = func() []schema.GroupVersionResource {
			return slices.Repeat([]schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}, 60)
		}
		rig.start(t.Context())
		defer rig.stop()
		rig.await(t, ConditionOK)
		rig.api.set(func(r *http.Request) (int, string, error) {
			time.Sleep(60 * time.Millisecond)
			return forbidding(r)
		})
		if took := rig.await(t, ConditionForbidden); took > 12*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestHealthRemembersWhatIsAllowed: only what was allowed is asked about first the next time, not what
// no answer came to.
func TestHealthRemembersWhatIsAllowed(t *testing.T) {
	for name, how := range map[string]func(*http.Request) (int, string, error){
		"no answer": failing(io.EOF), "an error": refusing(http.StatusInternalServerError, ""), "denied": forbidding,
	} {
		rig := newHealthRig()
		rig.api.set(how)
		if allowed, _, _, _ := rig.mayListAny(t.Context()); allowed || !rig.allowed.Empty() {
			t.Errorf("%s: %s counts as allowed", name, rig.allowed)
		}
		rig.api.set(well)
		if allowed, _, _, err := rig.mayListAny(t.Context()); !allowed || err != nil || rig.allowed.Resource != "pods" {
			t.Errorf("%s, and then yes: allowed %t, %s, %v", name, allowed, rig.allowed, err)
		}
	}
}

// TestHealthFromTheStart: that nobody answers is told, also if nobody ever did.
func TestHealthFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := startHealth(t.Context())
		defer rig.stop()
		rig.api.set(failing(io.EOF))
		if took := rig.await(t, ConditionUnreachable); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if s := rig.Stats(); !s.Answered.IsZero() {
			t.Errorf("it is %+v", s)
		}
		if n := strings.Count(rig.log.String(), "\n"); n != 1 {
			t.Errorf("the log has\n%s", rig.log)
		}
	})
}

// TestWhoseFaultARefusalIs: an account that is refused is all replicas' fault, which is no reason
// to take them all out of their balancer. It is this replica's own if the account never did any
// work here, or if a token has ended that only this pod has.
func TestWhoseFaultARefusalIs(t *testing.T) {
	ends := func(in time.Duration, more string) string {
		return jwt(fmt.Sprintf(`"exp":%d%s`, time.Now().Add(in).Unix(), more))
	}
	const pod = `,"kubernetes.io":{"pod":{"name":"listproxy-0"}}`
	for name, test := range map[string]struct {
		how   func(*http.Request) (int, string, error)
		token func() string
		first bool
		own   bool
	}{
		"deleted":                       {how: refusing(http.StatusUnauthorized, ""), token: func() string { return ends(time.Hour, pod) }},
		"without rights":                {how: forbidding, token: func() string { return ends(time.Hour, pod) }},
		"a token of many that ended":    {how: refusing(http.StatusUnauthorized, ""), token: func() string { return ends(time.Second, "") }},
		"the pod's token ended":         {how: refusing(http.StatusUnauthorized, ""), token: func() string { return ends(time.Second, pod) }, own: true},
		"refused from the start":        {how: refusing(http.StatusUnauthorized, ""), token: func() string { return "opaque" }, first: true, own: true},
		"without rights from the start": {how: forbidding, token: func() string { return "opaque" }, first: true, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newHealthRig()
				rig.cfg.BearerToken = test.token()
				if test.first {
					rig.api.set(test.how)
				}
				rig.start(t.Context())
				defer rig.stop()
				if !test.first {
					rig.await(t, ConditionOK)
					time.Sleep(2 * time.Second)
					rig.api.set(test.how)
				}
				for rig.Stats().Problem == "" {
					time.Sleep(10 * time.Millisecond)
				}
				if s := rig.Stats(); s.Own != test.own {
					t.Errorf("it is %+v", s)
				}
			})
		})
	}
}

// TestHealthOfAMoment: what is over in a moment, as while a balancer changes API servers, or while
// one that has just started does not know anybody's rights, is no trouble.
func TestHealthOfAMoment(t *testing.T) {
	for _, moment := range []struct {
		how     func(*http.Request) (int, string, error)
		lasting time.Duration
	}{{failing(io.EOF), 2900 * time.Millisecond}, {refusing(http.StatusForbidden, ""), 4900 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			rig := startHealth(t.Context())
			defer rig.stop()
			rig.await(t, ConditionOK)
			for range 100 {
				rig.api.set(moment.how)
				time.Sleep(moment.lasting)
				if c := rig.Stats().Condition; c != ConditionOK {
					t.Fatalf("it is %s", c)
				}
				rig.api.set(well)
				time.Sleep(2 * healthEvery)
			}
		})
	}
}

// TestHealthOfTwoVersions: an upgrade is told when it begins and ends.
func TestHealthOfTwoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := startHealth(t.Context())
		defer rig.stop()
		rig.await(t, ConditionOK)
		rig.versions.Store(&[]string{"v1.36.0", "v1.37.0"})
		rig.await(t, ConditionTwoVersions)
		if s := rig.Stats(); s.Own || s.Problem != "v1.36.0, v1.37.0" {
			t.Errorf("it is %+v", s)
		}
		rig.versions.Store(&[]string{"v1.37.0"})
		rig.await(t, ConditionOK)
	})
}

// TestQuiet: while the upstream is in trouble others say it at the level debug only, and what is an
// error of a connection always; what else is wrong, and each request's line, stays.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := startHealth(t.Context())
		defer rig.stop()
		rig.await(t, ConditionOK)
		var out logbuffer.Buffer
		log := rig.Quiet(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo - 2})))
		log.Warn("ended", "error", fmt.Errorf("watch: %w", io.ErrUnexpectedEOF))
		log.Warn("odd", "error", errors.New("bytes"))
		log.Warn("third", "error", io.ErrUnexpectedEOF, "attempt", oftenFailed-1)
		log.Warn("lasting", "error", io.ErrUnexpectedEOF, "attempt", oftenFailed)
		rig.api.set(refusing(http.StatusUnauthorized, ""))
		rig.await(t, ConditionUnauthorized)
		log.With("a", 1).Warn("again", "error", errors.New("401"))
		log.Log(t.Context(), slog.LevelInfo-2, "request")
		log.Error("defect")
		for word, want := range map[string]bool{"ended": false, "odd": true, "third": false, "lasting": true, "again": false, "request": true, "defect": true} {
			if strings.Contains(out.String(), "msg="+word) != want {
				t.Errorf("%s is said: %t\n%s", word, !want, out.String())
			}
		}
	})
}

// TestHealthOfADeadMount: while the token's file cannot be read, as on a mount that is dead, only the
// checks wait for it: whoever logs, or asks for the state, does not.
func TestHealthOfADeadMount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	expect.NoError(t, syscall.Mkfifo(file, 0o600))
	rig := newHealthRig()
	rig.cfg.BearerTokenFile = file
	rig.start(t.Context())
	defer rig.stop()
	token, err := os.OpenFile(file, os.O_WRONLY, 0) // when somebody reads
	expect.NoError(t, err)
	release := func() {
		_ = os.Remove(file) // nobody reads it again
		_ = token.Close()
	}
	over := time.AfterFunc(10*time.Second, release)
	rig.Quiet(slog.New(slog.DiscardHandler)).Info("a request")
	rig.Stats()
	if !over.Stop() {
		t.Fatal("they waited until the file was read")
	}
	release()
}

// TestLogins: when a token and a certificate end is read where they stand, and again when they are
// renewed. It is told once, when a tenth of the time is left.
func TestLogins(t *testing.T) {
	token := func(issued, expires time.Time) string {
		return jwt(fmt.Sprintf(`"iat":%d,"exp":%d,"sub":"x"`, issued.Unix(), expires.Unix()))
	}
	now := time.Now().Truncate(time.Second)
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		expect.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	}
	write(token(now, now.Add(time.Hour)))
	cfg := &rest.Config{BearerToken: "opaque", BearerTokenFile: file}
	got := readLogins(cfg)
	if len(got) != 1 || got[0] != (Login{Kind: loginToken, From: now, Until: now.Add(time.Hour)}) {
		t.Fatalf("read %+v", got)
	}
	for after, soon := range map[time.Duration]bool{0: false, 50 * time.Minute: false, 55 * time.Minute: true, 2 * time.Hour: true} {
		if got[0].EndsSoon(now.Add(after)) != soon {
			t.Errorf("after %v it ends soon: %t", after, !soon)
		}
	}
	write(token(now, now.Add(2*time.Hour)))
	if got := readLogins(cfg); len(got) != 1 || !got[0].Until.Equal(now.Add(2*time.Hour)) {
		t.Errorf("read again %+v", got)
	}
	for _, other := range []string{"", "opaque", "a.b.c", "e30.e30.e30", "e30.eyJleHAiOiJ4In0.x"} {
		if got := readLogins(&rest.Config{BearerToken: other}); len(got) != 0 {
			t.Errorf("%q ends: %+v", other, got)
		}
	}
	var log logbuffer.Buffer
	h := &Health{HealthConfig: HealthConfig{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	h.warnOfEnd(readLogins(cfg), now)
	h.warnOfEnd(readLogins(cfg), now.Add(110*time.Minute))
	h.warnOfEnd(readLogins(cfg), now.Add(111*time.Minute))
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "left=10m0s") {
		t.Errorf("the log has %s", said)
	}
}
