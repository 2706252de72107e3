package authz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

func answerYes(r *http.Request) (*http.Response, error) {
	return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
}

func newAuthorizer(t testing.TB, rt proxytest.Transport, base string, cfg Config, log *slog.Logger) *Authorizer {
	t.Helper()
	u, err := url.Parse(base)
	expect.NoError(t, err)
	r, err := NewAuthorizer(authntest.SendAs(rt), u, cfg, log)
	if err != nil {
		t.Fatalf("NewAuthorizer: %v", err)
	}
	return r
}

// listPods is what most tests ask for.
func listPods() Attributes {
	return Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"}
}

func TestReviewRequest(t *testing.T) {
	type request struct {
		Method, Path  string
		Authorization []string
		Spec          authorizationv1.SelfSubjectAccessReviewSpec
	}
	var got request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = request{Method: r.Method, Path: r.URL.Path, Authorization: r.Header["Authorization"]}
		var review authorizationv1.SelfSubjectAccessReview
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = utiljson.Unmarshal(body, &review)
		}
		if err != nil {
			t.Errorf("reading the review: %v", err)
		}
		got.Spec = review.Spec
		review.Status.Allowed = true
		body, err = utiljson.Marshal(review)
		if err != nil {
			t.Errorf("writing the review: %v", err)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	}))
	defer server.Close()

	for _, test := range []struct {
		name       string
		attributes Attributes
		want       authorizationv1.ResourceAttributes
	}{
		{
			"namespaced", listPods(),
			authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"},
		},
		{
			"everything",
			Attributes{
				Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns", Name: "web",
				LabelSelector: "a in (b,c),!d", FieldSelector: "metadata.name=web",
			},
			authorizationv1.ResourceAttributes{
				Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns", Name: "web",
				LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b,c),!d"},
				FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "metadata.name=web"},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newAuthorizer(t, proxytest.Transport(http.DefaultTransport.RoundTrip), server.URL+"/prefix/", Config{}, proxytest.DiscardLog())
			allowed, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Bearer token"), test.attributes)
			if err != nil || !allowed {
				t.Fatalf("got %v, %v", allowed, err)
			}
			want := request{
				Method: "POST", Path: "/prefix/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				Authorization: []string{"Bearer token"},
				Spec:          authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &test.want},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// reviewAnswers is every way in which an upstream can answer, and what it counts as.
func reviewAnswers() []struct {
	name      string
	transport proxytest.Transport
	want      bool
	fails     bool
} {
	const head = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`
	const spec = `"spec":{"resourceAttributes":{"namespace":"ns","verb":"list","version":"v1","resource":"pods"}},`
	const good = head + spec + `"status":{"allowed":true}}`
	static := func(status int, body string) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, status, body), nil }
	}
	status := func(s authorizationv1.SubjectAccessReviewStatus) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return proxytest.AnswerReview(r, s) }
	}
	return []struct {
		name      string
		transport proxytest.Transport
		want      bool
		fails     bool
	}{
		{"allowed", answerYes, true, false},
		{"allowed, in fixed words", static(201, good), true, false},
		{"allowed with 200", static(200, good), true, false},
		{
			"allowed in spite of an evaluation error",
			status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "role not found"}), true, false,
		},
		{"no opinion", status(authorizationv1.SubjectAccessReviewStatus{}), false, false},
		{"denied", status(authorizationv1.SubjectAccessReviewStatus{Denied: true}), false, false},
		{"both", status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}), false, false},
		{"202", static(202, good), false, false},
		{"204", static(204, ""), false, false},
		{"400", static(400, good), false, false},
		{"401", static(401, good), false, false},
		{"403", static(403, good), false, false},
		{"404", static(404, good), false, false},
		{"422", static(422, good), false, false},
		{"429", static(429, good), false, true},
		{"500", static(500, good), false, true},
		{"503", static(503, good), false, true},
		{"empty body", static(201, ""), false, false},
		{"garbage", static(201, "<html>allowed</html>"), false, false},
		{"null", static(201, "null"), false, false},
		{"an array", static(201, "["+good+"]"), false, false},
		{"a cut body", static(201, good[:len(good)-1]), false, false},
		{"two bodies", static(201, good+good), false, false},
		{"allowed as a string", static(201, strings.Replace(good, "true", `"true"`, 1)), false, false},
		{"fields in other letters", static(201, strings.Replace(good, `"allowed"`, `"Allowed"`, 1)), false, false},
		{"wrong kind", static(201, strings.Replace(good, "SelfSubject", "Subject", 1)), false, false},
		{"wrong group", static(201, strings.Replace(good, "k8s.io/v1", "k8s.io/v1beta1", 1)), false, false},
		{"no kind", static(201, "{"+spec+`"status":{"allowed":true}}`), false, false},
		{"no spec", static(201, head+`"status":{"allowed":true}}`), false, false},
		{"another namespace", static(201, strings.Replace(good, `"ns"`, `"other"`, 1)), false, false},
		{"another verb", static(201, strings.Replace(good, `"list"`, `"get"`, 1)), false, false},
		{"a name more", static(201, strings.Replace(good, `"verb"`, `"name":"x","verb"`, 1)), false, false},
		{"a subresource more", static(201, strings.Replace(good, `"verb"`, `"subresource":"log","verb"`, 1)), false, false},
		{"a selector more", static(201, strings.Replace(good, `"verb"`, `"labelSelector":{"rawSelector":"a"},"verb"`, 1)), false, false},
		{"huge body", static(201, good+strings.Repeat(" ", maxReviewBody)), false, true},
		{"large body", static(201, good+strings.Repeat(" ", maxReviewBody-len(good))), true, false},
		{"allowed, with a warning", func(r *http.Request) (*http.Response, error) {
			resp, err := answerYes(r)
			resp.Header.Set("Warning", `299 - "Use another token."`)
			return resp, err
		}, false, false},
		{"redirect", func(r *http.Request) (*http.Response, error) {
			resp := proxytest.JSONResponse(r, http.StatusTemporaryRedirect, "")
			resp.Header.Set("Location", "https://elsewhere.example/")
			return resp, nil
		}, false, false},
		{"no connection", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, false, true},
		{"a body that breaks", func(r *http.Request) (*http.Response, error) {
			resp := proxytest.JSONResponse(r, http.StatusCreated, "")
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(good), cutReader{}))
			return resp, nil
		}, false, true},
	}
}

// cutReader is a connection that was cut.
type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestReviewAnswers(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		for _, test := range reviewAnswers() {
			t.Run(fmt.Sprintf("ttl %v/%s", ttl, test.name), func(t *testing.T) {
				var requests atomic.Int32
				counted := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
					requests.Add(1)
					return test.transport(r)
				})
				r := newAuthorizer(t, counted, "https://upstream.example", Config{TTL: ttl}, proxytest.DiscardLog())
				id := authntest.Identify(authntest.New(t), "Bearer token")
				for range 2 {
					got, err := r.Allowed(t.Context(), id, listPods())
					if got != test.want || (err != nil) != test.fails {
						t.Errorf("got %v, %v; want %v, error %v", got, err, test.want, test.fails)
					}
				}
				want := int32(2)
				if ttl > 0 && !test.fails {
					want = 1 // every answer is remembered
				}
				if got := requests.Load(); got != want {
					t.Errorf("%d requests, want %d", got, want)
				}
			})
		}
	}
}

// A real client that gets a redirect would repeat the request, credentials and
// all, wherever it says.
func TestReviewDoesNotFollowRedirects(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed to %s", r.URL)
	}))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusPermanentRedirect))
	defer server.Close()
	r := newAuthorizer(t, proxytest.Transport(http.DefaultTransport.RoundTrip), server.URL, Config{}, proxytest.DiscardLog())
	allowed, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Bearer token"), listPods())
	if allowed || err != nil {
		t.Errorf("got %v, %v; want a no", allowed, err)
	}
}

func TestReviewNotAsked(t *testing.T) {
	never := proxytest.Transport(func(*http.Request) (*http.Response, error) {
		t.Error("the upstream was asked")
		return nil, errors.New("not expected")
	})
	known := authntest.Identify(authntest.New(t), "Bearer token")
	for _, test := range []struct {
		name   string
		id     authn.Identity
		change func(*Attributes)
	}{
		{"nobody", authn.Identity{}, func(*Attributes) {}},
		{"no verb", known, func(a *Attributes) { a.Verb = "" }},
		{"no version, which would mean all", known, func(a *Attributes) { a.Version = "" }},
		{"no resource", known, func(a *Attributes) { a.Resource = "" }},
	} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprintf("%s, ttl %v", test.name, ttl), func(t *testing.T) {
				r := newAuthorizer(t, never, "https://upstream.example", Config{TTL: ttl}, proxytest.DiscardLog())
				a := listPods()
				test.change(&a)
				if allowed, err := r.Allowed(t.Context(), test.id, a); allowed || err != nil {
					t.Errorf("got %v, %v; want a no", allowed, err)
				}
			})
		}
	}
}

// What cannot be said in JSON comes back as something else, and is a no.
func TestReviewOfBytesThatAreNotText(t *testing.T) {
	r := newAuthorizer(t, proxytest.Transport(answerYes), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
	a := listPods()
	a.LabelSelector = "a=\xff"
	if allowed, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Bearer token"), a); allowed || err != nil {
		t.Errorf("got %v, %v; want a no", allowed, err)
	}
}

func TestReviewKeepsTheSecret(t *testing.T) {
	const secret = "s3cr3t"
	for _, test := range reviewAnswers() {
		t.Run(test.name, func(t *testing.T) {
			var logged logbuffer.Buffer
			log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
			noUser := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.User != nil {
					t.Error("the proxy's own user is in the URL")
				}
				return test.transport(r)
			})
			r := newAuthorizer(t, noUser, "https://user:s3cr3t@upstream.example", Config{}, log)
			_, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Bearer "+secret), listPods())
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
				if got := fmt.Sprintf(verb, err); strings.Contains(got, secret) {
					t.Errorf("%s of the error: %s", verb, got)
				}
			}
			if got := logged.String(); strings.Contains(got, secret) {
				t.Errorf("log: %s", got)
			}
		})
	}
}

// A header value that a transport refuses to send is not in its complaint.
func TestReviewKeepsASecretThatCannotBeSent(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	r := newAuthorizer(t, proxytest.Transport(http.DefaultTransport.RoundTrip), server.URL, Config{}, proxytest.DiscardLog())
	_, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Basic s3cr3t\r\nX: y"), listPods())
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "s3cr3t") {
		t.Errorf("got %v; want an error without the credential", err)
	}
}

// fakeAuthorizer is an authorizer in memory whose answers take as long as they are
// told to.
type fakeAuthorizer struct {
	requests atomic.Int32
	denies   atomic.Bool
	takes    time.Duration

	mu         sync.Mutex
	atOnce     int // requests that it has now
	mostAtOnce int
}

func (u *fakeAuthorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	u.requests.Add(1)
	u.mu.Lock()
	u.atOnce++
	u.mostAtOnce = max(u.mostAtOnce, u.atOnce)
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.atOnce--
	}()
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: !u.denies.Load()}
	if u.takes > 0 {
		select {
		case <-time.After(u.takes):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return proxytest.AnswerReview(r, status)
}

// Allowed is Review for tests of what it says. Each caller has a share of its own.
func (r *Authorizer) Allowed(ctx context.Context, id authn.Identity, a Attributes) (bool, error) {
	right, err := r.Review(ctx, known(id), a)
	return right.Decision() == Yes, err
}

// known is a caller whom the upstream has accepted, with a share of its own.
func known(id authn.Identity) Caller {
	return Caller{Identity: id, Accepted: true, Flow: limits.Flow(id.Key())}
}

// knownOf is a known caller with that share.
func knownOf(id authn.Identity, share byte) Caller {
	return Caller{Identity: id, Accepted: true, Flow: limits.Flow{share}}
}

// expectReview asks once and compares.
func expectReview(t *testing.T, r *Authorizer, id authn.Identity, a Attributes, want bool) {
	t.Helper()
	got, err := r.Allowed(t.Context(), id, a)
	if err != nil {
		t.Errorf("error: %v", err)
	}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReviewTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, takes = 10 * time.Second, 4 * time.Second
		u := &fakeAuthorizer{takes: takes}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: ttl}, proxytest.DiscardLog())
		id := authntest.Identify(authntest.New(t), "Bearer token")
		expectReview(t, r, id, listPods(), true)

		// The right is taken away as soon as the answer is on its way. The age
		// of a decision counts from when it was asked for.
		u.denies.Store(true)
		time.Sleep(ttl - takes - time.Nanosecond)
		expectReview(t, r, id, listPods(), true)
		if got := u.requests.Load(); got != 1 {
			t.Fatalf("%d requests before the TTL, want 1", got)
		}
		time.Sleep(time.Nanosecond)
		expectReview(t, r, id, listPods(), false)
		expectReview(t, r, id, listPods(), false)
		if got := u.requests.Load(); got != 2 {
			t.Errorf("%d requests, want 2: a no is remembered, too", got)
		}
	})
}

// An answer that took longer than the TTL is old when it comes.
func TestReviewSlowerThanItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: 4 * time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: 3 * time.Second}, proxytest.DiscardLog())
		id := authntest.Identify(authntest.New(t), "Bearer token")
		var all sync.WaitGroup
		all.Go(func() { expectReview(t, r, id, listPods(), true) }) // asked by itself: as fresh as can be
		time.Sleep(2 * time.Second)
		u.denies.Store(true)
		// This caller joins the review, whose yes is four seconds old when it
		// comes; so it asks again.
		all.Go(func() { expectReview(t, r, id, listPods(), false) })
		all.Wait()
		if got := u.requests.Load(); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
	})
}

func TestReviewFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
		id := authntest.Identify(authntest.New(t), "Bearer token")
		expectReview(t, r, id, listPods(), true)
		expectReview(t, r, id, listPods(), true)
		r.Flush()
		u.denies.Store(true)
		expectReview(t, r, id, listPods(), false)
		u.denies.Store(false)
		r.Flush()
		expectReview(t, r, id, listPods(), true)
		u.denies.Store(true)
		expectReview(t, r, id, listPods(), true) // a new decision takes the old one's place
		if got := u.requests.Load(); got != 3 {
			t.Errorf("%d requests, want 3", got)
		}
	})
}

// A yes that was decided before a flush is worth nothing after it, whoever
// waits for it.
func TestReviewFlushDuringAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: 2 * time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
		id := authntest.Identify(authntest.New(t), "Bearer token")
		var all sync.WaitGroup
		all.Go(func() { expectReview(t, r, id, listPods(), false) })
		time.Sleep(time.Second) // decided, not yet answered
		u.denies.Store(true)
		r.Flush()
		all.Go(func() { expectReview(t, r, id, listPods(), false) }) // does not join
		all.Wait()
		// The first one's review, and one for its second attempt and the other.
		if got := u.requests.Load(); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
		expectReview(t, r, id, listPods(), false)
	})
}

func TestReviewGivesUpWhenItIsFlushedForEver(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			for flushes := range maxRounds + 1 {
				var r *Authorizer
				asked := 0
				r = newAuthorizer(t, proxytest.Transport(func(req *http.Request) (*http.Response, error) {
					if asked++; asked <= flushes {
						r.Flush()
					}
					return answerYes(req)
				}), "https://upstream.example", Config{TTL: ttl}, proxytest.DiscardLog())
				allowed, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Bearer token"), listPods())
				if never := flushes == maxRounds; allowed == never || errors.Is(err, errOvertaken) != never {
					t.Errorf("flushed %d times, TTL %v: %v, %v", flushes, ttl, allowed, err)
				}
			}
		})
	}
}

func TestReviewSingleFlight(t *testing.T) {
	for _, test := range []struct {
		name string
		ttl  time.Duration
		want int32
	}{
		{"one for all", time.Minute, 1},
		{"one for those who came at the same moment, without a TTL", 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &fakeAuthorizer{takes: time.Second}
				r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: test.ttl}, proxytest.DiscardLog())
				i := authntest.New(t)
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() { expectReview(t, r, authntest.Identify(i, "Bearer token"), listPods(), true) })
				}
				all.Wait()
				if got := u.requests.Load(); got != test.want {
					t.Errorf("%d requests, want %d", got, test.want)
				}
			})
		})
	}
}

func TestReviewFlightsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Minute}, proxytest.DiscardLog())
		i := authntest.New(t)
		other := listPods()
		other.Namespace = "other"
		var all sync.WaitGroup
		for _, token := range []string{"Bearer a", "Bearer b"} {
			for _, a := range []Attributes{listPods(), other} {
				all.Go(func() { expectReview(t, r, authntest.Identify(i, token), a, true) })
			}
		}
		all.Wait()
		if got := u.requests.Load(); got != 4 {
			t.Errorf("%d requests, want 4", got)
		}
	})
}

// The caller who was first and leaves takes nobody else's answer away, and the
// one who leaves does not wait.
func TestReviewOutlivesTheCallerWhoWasFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: 5 * time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Minute}, proxytest.DiscardLog())
		id := authntest.Identify(authntest.New(t), "Bearer token")
		first, leave := context.WithCancel(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			allowed, err := r.Allowed(first, id, listPods())
			if allowed || !errors.Is(err, context.Canceled) {
				t.Errorf("the first: got %v, %v", allowed, err)
			}
			if waited := time.Since(began); waited != time.Second {
				t.Errorf("the first left after %v", waited)
			}
		})
		synctest.Wait()
		all.Go(func() { expectReview(t, r, id, listPods(), true) })
		time.Sleep(time.Second)
		leave()
		all.Wait()
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("the second waited %v", waited)
		}
		if got := u.requests.Load(); got != 1 {
			t.Errorf("%d requests, want 1", got)
		}
	})
}

func TestReviewTimeout(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			u := &fakeAuthorizer{takes: time.Hour}
			r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: ttl, Timeout: 3 * time.Second}, proxytest.DiscardLog())
			began := time.Now()
			allowed, err := r.Allowed(t.Context(), authntest.Identify(authntest.New(t), "Bearer token"), listPods())
			if allowed || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, %v", allowed, err)
			}
			if waited := time.Since(began); waited != 3*time.Second {
				t.Errorf("waited %v", waited)
			}
		})
	}
}

// However many ask at once, the upstream sees a bounded number at a time, the
// next wait their turn, and the rest is turned away.
func TestReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = maxAtOnce + maxWaiting + 10
		u := &fakeAuthorizer{takes: time.Minute}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example",
			Config{TTL: time.Hour, Timeout: 30 * time.Second}, proxytest.DiscardLog())
		i := authntest.New(t)
		var full, late atomic.Int32
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				_, err := r.Allowed(t.Context(), authntest.Identify(i, fmt.Sprintf("Bearer %d", n)), listPods())
				switch {
				case errors.Is(err, limits.OverloadQueueFull):
					full.Add(1)
				case errors.Is(err, context.DeadlineExceeded), errors.Is(err, limits.OverloadTimeOut):
					late.Add(1)
				default:
					t.Errorf("got error %v", err)
				}
			})
		}
		all.Wait()
		type counts struct {
			AtOnce     int
			Full, Late int32
		}
		want := counts{AtOnce: maxAtOnce, Full: 10, Late: callers - 10}
		got := counts{AtOnce: u.mostAtOnce, Full: full.Load(), Late: late.Load()}
		expect.Same(t, want, got)
		wantNoTurns(t, r.reviews.accepted)
	})
}

// TestReviewsAreShared: one caller, however many tokens, reviews and connections it has, has half
// of the places and an eighth of the queue; who comes next does not wait.
func TestReviewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour, Timeout: time.Hour}, proxytest.DiscardLog())
		i := authntest.New(t)
		var all sync.WaitGroup
		var full atomic.Int32
		const atOnce, waiting, asked = maxAtOnce / 2, maxWaiting / 8, maxWaiting/8 + 1000
		for n := range asked {
			all.Go(func() {
				_, err := r.Review(t.Context(), knownOf(authntest.Identify(i, fmt.Sprintf("Bearer %d", n)), 1), listPods())
				if errors.Is(err, limits.OverloadCallerQueueFull) {
					full.Add(1)
				} else if err != nil {
					t.Errorf("got error %v", err)
				}
			})
		}
		synctest.Wait()
		if u.mostAtOnce != atOnce || full.Load() != asked-atOnce-waiting {
			t.Errorf("%d with the upstream, %d refused; want %d, %d", u.mostAtOnce, full.Load(), atOnce, asked-atOnce-waiting)
		}
		began := time.Now()
		expectReview(t, r, authntest.Identify(i, "Bearer another"), listPods(), true)
		if waited := time.Since(began); waited != u.takes {
			t.Errorf("another caller's review took %v, alone it is %v", waited, u.takes)
		}
		all.Wait()
		wantNoTurns(t, r.reviews.accepted)
	})
}

// TestReviewOfAnotherShare: whoever asks the same as somebody whose share is used up does not wait
// for that one's turn. So it is with what listproxy's own account is asked for, for all users alike
// ([Impersonator]).
func TestReviewOfAnotherShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
		i := authntest.New(t)
		all := authntest.Identify(i, "Bearer all")
		var others sync.WaitGroup
		for n := range maxAtOnce {
			others.Go(func() {
				_, _ = r.Review(t.Context(), knownOf(authntest.Identify(i, fmt.Sprintf("Bearer %d", n)), 1), listPods())
			})
		}
		synctest.Wait()
		others.Go(func() { _, _ = r.Review(t.Context(), knownOf(all, 1), listPods()) })
		synctest.Wait()
		began := time.Now()
		if yes, err := r.Review(t.Context(), knownOf(all, 2), listPods()); err != nil || yes.Decision() != Yes {
			t.Errorf("%v, %v", yes, err)
		}
		if waited := time.Since(began); waited != u.takes {
			t.Errorf("it took %v, alone it is %v", waited, u.takes)
		}
		others.Wait()
	})
}

// TestReviewsCountUntilTheyEnd: who leaves has its review go on, and its place held.
func TestReviewsCountUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: 5 * time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
		i := authntest.New(t)
		for n := range maxAtOnce {
			ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := r.Review(ctx, knownOf(authntest.Identify(i, fmt.Sprintf("Bearer %d", n)), 1), listPods())
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who left got %v", err)
			}
			leave()
		}
		if s := r.reviews.accepted.Stats(); s.InUse != maxAtOnce/2 || s.Waiting != maxAtOnce/2 {
			t.Errorf("all have left, and %d places are held, %d wait", s.InUse, s.Waiting)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantNoTurns(t, r.reviews.accepted)
	})
}

// TestRightEnds: a yes counts for its TTL from when it was sent for, for who asked a moment in any
// case, and never after a flush.
func TestRightEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl, takes, counts time.Duration
	}{
		"at once":                   {10 * time.Second, 0, 10 * time.Second},
		"after a while":             {10 * time.Second, 4 * time.Second, 6 * time.Second},
		"slower than the TTL":       {3 * time.Second, 4 * time.Second, ownAnswerCounts},
		"with next to nothing left": {4*time.Second + 1, 4 * time.Second, ownAnswerCounts},
		"without a TTL":             {0, 4 * time.Second, ownAnswerCounts},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &fakeAuthorizer{takes: tt.takes}
				r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: tt.ttl}, proxytest.DiscardLog())
				id := authntest.Identify(authntest.New(t), "Bearer token")
				yes, err := r.Review(t.Context(), known(id), listPods())
				expect.NoError(t, err)
				now := time.Now()
				if r.Left(yes, now) != tt.counts || r.Left(yes, now.Add(tt.counts-1)) != 1 || r.Left(yes, now.Add(tt.counts+1)) != 0 {
					t.Errorf("it does not count for %v: %+v", tt.counts, yes)
				}
				if remembered, _ := r.Review(t.Context(), known(id), listPods()); tt.takes == 0 && remembered != yes {
					t.Errorf("remembered as %+v, it was %+v", remembered, yes)
				}
				r.Flush()
				if r.Left(yes, now) != 0 || r.Left(Right{}, now) != 0 {
					t.Error("it counts after a flush, or a no counts")
				}
			})
		})
	}
}

// wantNoTurns wants all places for questions to be free.
func wantNoTurns(t *testing.T, turns *limits.Limiter) {
	t.Helper()
	if s := turns.Stats(); s.InUse != 0 || s.Waiting != 0 || s.Flows != 0 {
		t.Errorf("places not given back: %+v", s)
	}
}

// decodeKey reads a decision's key, so that it can be shown to hold everything.
func decodeKey(key string) (authn.Key, Attributes, error) {
	var id authn.Key
	if len(key) < len(id) {
		return id, Attributes{}, errors.New("too short")
	}
	rest := []byte(key[copy(id[:], key):])
	var a Attributes
	for _, field := range a.fields() {
		length, n := binary.Uvarint(rest)
		if n <= 0 || length > uint64(len(rest)-n) {
			return id, a, errors.New("bad length")
		}
		*field = string(rest[n : n+int(length)])
		rest = rest[n+int(length):]
	}
	if len(rest) > 0 {
		return id, a, errors.New("too long")
	}
	return id, a, nil
}

// fields points to every attribute, in the order of the key.
func (a *Attributes) fields() []*string {
	return []*string{
		&a.Verb, &a.Group, &a.Version, &a.Resource, &a.Subresource, &a.Namespace, &a.Name, &a.LabelSelector, &a.FieldSelector,
	}
}

// An attribute that is added to the struct must be added to the key.
func TestDecisionKeyHasEveryAttribute(t *testing.T) {
	var a Attributes
	if got, want := reflect.TypeOf(a).NumField(), len(a.fields()); got != want {
		t.Fatalf("Attributes has %d fields, the key %d", got, want)
	}
	for n, field := range a.fields() {
		*field = fmt.Sprint(n)
	}
	_, got, err := decodeKey(decisionKey(authn.Identity{}, a))
	expect.NoError(t, err)
	expect.Same(t, a, got)
}

// No two questions share a key: values are moved between neighbouring fields,
// joined with what separates them, and put where lengths are.
func TestDecisionKeysAreNotConfused(t *testing.T) {
	values := []string{"", "a", "ab", "b", "/", "a/", "\x00", "\x01", "\x01a", "\x00\x01a", strings.Repeat("a", 127), strings.Repeat("a", 128)}
	i := authntest.New(t)
	identities := map[string]authn.Identity{
		"nobody": {}, "a": authntest.Identify(i, "a"), "b": authntest.Identify(i, "b"), "a again": authntest.Identify(authntest.New(t), "a"),
	}
	seen := make(map[string]string)
	add := func(name string, id authn.Identity, a Attributes) {
		question := fmt.Sprintf("%s asks %q", name, a)
		key := decisionKey(id, a)
		if other, ok := seen[key]; ok && other != question {
			t.Errorf("one key for two questions:\n%s\n%s", question, other)
		}
		seen[key] = question
	}
	for name, id := range identities {
		for first := range len(new(Attributes).fields()) {
			for second := range first {
				for _, x := range values {
					for _, y := range values {
						var a Attributes
						*a.fields()[first], *a.fields()[second] = x, y
						add(name, id, a)
					}
				}
			}
		}
	}
	// 36 pairs of fields with 11 values that are not empty in each, 9 fields
	// with one such value, and nothing at all; from each of four.
	if want := 4 * (36*11*11 + 9*11 + 1); len(seen) != want {
		t.Errorf("%d keys for %d questions", len(seen), want)
	}
}

func FuzzDecisionKey(f *testing.F) {
	f.Add([]byte{}, "list", "", "v1", "pods", "log", "ns", "", "a=b", "c=d")
	f.Add([]byte("key"), "\x01a", "a", "\x00", "", "b", "\xff", "/", "a,b", strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, mac []byte, verb, group, version, resource, subresource, namespace, name, labels, fields string) {
		id := authntest.Identify(authntest.New(t), "Basic "+string(mac))
		a := Attributes{verb, group, version, resource, subresource, namespace, name, labels, fields}
		gotID, got, err := decodeKey(decisionKey(id, a))
		expect.NoError(t, err)
		if diff := cmp.Diff(a, got); diff != "" || gotID != id.Key() {
			t.Errorf("the key says something else (-want +got):\n%s", diff)
		}
	})
}

// TestAnswersEnd: an answer is used within the TTL by either clock, and in its epoch.
func TestAnswersEnd(t *testing.T) {
	q, err := newQuestions[int](Config{TTL: time.Second}, 8)
	expect.NoError(t, err)
	now := time.Now()
	a := answer[int]{value: 1, from: now, ttl: time.Second}
	q.answers.Add("key", a, time.Hour)
	for name, tt := range map[string]struct {
		at   time.Time
		want bool
	}{
		"now":         {now, true},
		"just before": {now.Add(time.Second - 1), true},
		"just then":   {now.Add(time.Second), false},
		"after":       {now.Add(time.Minute), false},
		// Without a monotonic reading, as if that clock had stood still.
		"just before, by the wall clock": {now.Round(0).Add(time.Second - 1), true},
		"just then, by the wall clock":   {now.Round(0).Add(time.Second), false},
	} {
		if _, got := q.remembered("key", tt.at); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if q.flush(); q.valid(a, now) {
		t.Error("used after a flush")
	}
}

// TestLongQuestionsAreNotRemembered: what is remembered has a bound in bytes.
func TestLongQuestionsAreNotRemembered(t *testing.T) {
	u := &fakeAuthorizer{}
	r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
	id, asked := authntest.Identify(authntest.New(t), "Bearer token"), listPods()
	asked.LabelSelector = strings.Repeat("x", maxKey)
	for range 2 {
		expectReview(t, r, id, asked, true)
	}
	if got := u.requests.Load(); got != 2 || len(r.reviews.answers.Keys()) > 0 {
		t.Errorf("%d reviews, %d answers remembered", got, len(r.reviews.answers.Keys()))
	}
}

// TestNewcomers: callers who are not known yet have places of their own, which nobody waits for, and
// one address has half of them. Those who are known do not notice.
func TestNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeAuthorizer{takes: time.Second}
		r := newAuthorizer(t, proxytest.Transport(u.RoundTrip), "https://upstream.example", Config{TTL: time.Hour}, proxytest.DiscardLog())
		i := authntest.New(t)
		var asked sync.WaitGroup
		var refused atomic.Int32
		come := func(address byte, n int) {
			asked.Go(func() {
				who := Caller{Identity: authntest.Identify(i, fmt.Sprintf("Bearer %d/%d", address, n)), Flow: limits.Flow{address}}
				right, err := r.Review(t.Context(), who, listPods())
				if errors.Is(err, ErrNoSeat) {
					refused.Add(1)
				} else if err != nil || right.Decision() != Yes {
					t.Errorf("got %v, %v", right, err)
				}
			})
		}
		for n := range maxOfNewcomers {
			come(1, n)
		}
		synctest.Wait()
		if got := refused.Load(); got != maxOfNewcomers/2 {
			t.Errorf("%d of one address had no place, want %d", got, maxOfNewcomers/2)
		}
		come(2, 0)
		synctest.Wait()
		if got := refused.Load(); got != maxOfNewcomers/2 {
			t.Error("another address had no place")
		}
		began := time.Now()
		expectReview(t, r, authntest.Identify(i, "Bearer known"), listPods(), true)
		if waited := time.Since(began); waited != u.takes {
			t.Errorf("a known caller's review took %v, alone it is %v", waited, u.takes)
		}
		asked.Wait()
		wantNoTurns(t, r.reviews.newcomers)
	})
}
