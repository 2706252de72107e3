package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

func answerYes(r *http.Request) (*http.Response, error) {
	return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
}

// newAuthorizer returns an Authorizer of the upstream rt, under an address with a path and a user.
func newAuthorizer(t testing.TB, rt proxytest.Transport, cfg ReviewConfig, log *slog.Logger) *Authorizer {
	t.Helper()
	base, err := url.Parse("https://listproxy:" + ownSecret + "@upstream.example/prefix/")
	expect.NoError(t, err)
	return NewAuthorizer(proxytest.SendAs[Identity](rt), base, cfg, log)
}

const (
	ownSecret     = "0wn-s3cr3t"
	callersSecret = "c4llers-s3cr3t"
)

// listPods is what most tests ask for.
func listPods() *Attributes {
	return &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"}
}

// known is a caller whom the upstream has accepted, with a share of its own.
func known(id Identity) *Caller {
	return &Caller{Identity: id, Accepted: true, Flow: limits.Flow(id.Key())}
}

// allowed is Review for tests of what it says. Each caller has a share of its own.
func (r *Authorizer) allowed(ctx context.Context, id Identity, a *Attributes) (bool, error) {
	right, err := r.Review(ctx, known(id), a)
	return right.Decision() == Yes, err
}

// reviewAnswer is a way in which an upstream can answer, and what it counts as.
type reviewAnswer struct {
	name      string
	transport proxytest.Transport
	want      Decision
	fails     bool
}

func reviewAnswers() []reviewAnswer {
	const head = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`
	const spec = `"spec":{"resourceAttributes":{"namespace":"ns","verb":"list","version":"v1","resource":"pods"}},`
	const good = head + spec + `"status":{"allowed":true}}`
	static := func(status int, body string) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, status, body), nil }
	}
	changed := func(old, is string) proxytest.Transport { return static(201, strings.Replace(good, old, is, 1)) }
	status := func(s authorizationv1.SubjectAccessReviewStatus) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return proxytest.AnswerReview(r, s) }
	}
	all := []reviewAnswer{
		{"allowed", answerYes, Yes, false},
		{"allowed, in fixed words", static(201, good), Yes, false},
		{"allowed with 200", static(200, good), Yes, false},
		{
			"allowed in spite of an evaluation error",
			status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "role not found"}), Yes, false,
		},
		{"no opinion", status(authorizationv1.SubjectAccessReviewStatus{}), No, false},
		{"denied", status(authorizationv1.SubjectAccessReviewStatus{Denied: true}), No, false},
		{"both", status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}), No, false},
		{"empty body", static(201, ""), No, false},
		{"garbage", static(201, "<html>allowed</html>"), No, false},
		{"null", static(201, "null"), No, false},
		{"an array", static(201, "["+good+"]"), No, false},
		{"a cut body", static(201, good[:len(good)-1]), No, false},
		{"two bodies", static(201, good+good), No, false},
		{"allowed as a string", changed("true", `"true"`), No, false},
		{"fields in other letters", changed(`"allowed"`, `"Allowed"`), No, false},
		{"wrong kind", changed("SelfSubject", "Subject"), No, false},
		{"wrong group", changed("k8s.io/v1", "k8s.io/v1beta1"), No, false},
		{"no kind", static(201, "{"+spec+`"status":{"allowed":true}}`), No, false},
		{"no spec", static(201, head+`"status":{"allowed":true}}`), No, false},
		{"another namespace", changed(`"ns"`, `"other"`), No, false},
		{"another verb", changed(`"list"`, `"get"`), No, false},
		{"a name more", changed(`"verb"`, `"name":"x","verb"`), No, false},
		{"a selector more", changed(`"verb"`, `"labelSelector":{"rawSelector":"a"},"verb"`), No, false},
		{"huge body", static(201, good+strings.Repeat(" ", maxReviewBody)), No, true},
		{"large body", static(201, good+strings.Repeat(" ", maxReviewBody-len(good))), Yes, false},
		{"allowed, with a warning", func(r *http.Request) (*http.Response, error) {
			resp, err := answerYes(r)
			resp.Header.Set("Warning", `299 - "Use another token."`)
			return resp, err
		}, Warned, false},
		{"redirect", func(r *http.Request) (*http.Response, error) {
			resp := proxytest.JSONResponse(r, http.StatusTemporaryRedirect, "")
			resp.Header.Set("Location", "https://elsewhere.example/")
			return resp, nil
		}, No, false},
		{"no connection", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, No, true},
		{"a body that breaks", func(r *http.Request) (*http.Response, error) {
			resp := proxytest.JSONResponse(r, http.StatusCreated, "")
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(good), iotest.ErrReader(io.ErrUnexpectedEOF)))
			return resp, nil
		}, No, true},
	}
	for _, code := range []int{202, 204, 400, 401, 403, 404, 422, 429, 500, 503} {
		answer := reviewAnswer{fmt.Sprint(code), static(code, good), No, code == 429 || code >= 500}
		if code == 401 {
			answer.want = Unauthenticated
		}
		all = append(all, answer)
	}
	return all
}

// TestReviewAnswers: what is sent, what each answer counts as, that all answers are remembered, and that neither
// the log nor an error has the credentials of the caller or of listproxy.
func TestReviewAnswers(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		for _, test := range reviewAnswers() {
			t.Run(fmt.Sprintf("ttl %v/%s", ttl, test.name), func(t *testing.T) {
				var requests atomic.Int32
				counted := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
					requests.Add(1)
					expect.Same(t, "POST https://upstream.example/prefix"+reviewPath, r.Method+" "+r.URL.String())
					expect.Same(t, http.Header{
						"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"listproxy"}, "Authorization": {"Bearer " + callersSecret},
					}, r.Header)
					return test.transport(r)
				})
				var log logbuffer.Buffer
				r := newAuthorizer(t, counted, ReviewConfig{TTL: ttl}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
				id := proxytest.Identify(NewAuthenticator(nil), "Bearer "+callersSecret)
				for range 2 {
					got, err := r.Review(t.Context(), known(id), listPods())
					if got.Decision() != test.want || (err != nil) != test.fails {
						t.Errorf("got %v, %v; want %v, error %v", got.Decision(), err, test.want, test.fails)
					}
					for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
						said := log.String() + fmt.Sprintf(verb, err)
						proxytest.AssertNotContains(t, said, callersSecret)
						proxytest.AssertNotContains(t, said, ownSecret)
					}
				}
				want := int32(2)
				if ttl > 0 && !test.fails {
					want = 1
				}
				expect.Same(t, want, requests.Load())
			})
		}
	}
}

// TestReviewNotAsked: what a review cannot express is not asked for, and counts as a no. Bytes that JSON cannot
// hold are such a case: the API server would read other ones.
func TestReviewNotAsked(t *testing.T) {
	token, noText := proxytest.Identify(NewAuthenticator(nil), "Bearer token"), listPods()
	noText.LabelSelector = "a=\xff"
	for name, test := range map[string]struct {
		id    Identity
		a     *Attributes
		asked bool
	}{
		"nobody":                           {Identity{}, listPods(), false},
		"no verb":                          {token, &Attributes{Version: "v1", Resource: "pods"}, false},
		"no version, which would mean all": {token, &Attributes{Verb: "list", Resource: "pods"}, false},
		"no resource":                      {token, &Attributes{Verb: "list", Version: "v1"}, false},
		"bytes that are no text":           {token, noText, true},
	} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			asked := false
			r := newAuthorizer(t, func(r *http.Request) (*http.Response, error) { asked = true; return answerYes(r) }, ReviewConfig{TTL: ttl}, proxytest.DiscardLog())
			if yes, err := r.allowed(t.Context(), test.id, test.a); yes || err != nil || asked != test.asked {
				t.Errorf("%s: got %v, %v; want a no; asked %t", name, yes, err, asked)
			}
		}
	}
}
