package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// replyYes replies to a review that the caller has the right.
func replyYes(r *http.Request) (*http.Response, error) {
	return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
}

// newAuthorizer returns an Authorizer whose upstream replies through reply, and has an address with a path.
func newAuthorizer(t testing.TB, reply proxytest.Transport, cfg ReviewConfig) *Authorizer {
	t.Helper()
	base, err := url.Parse("https://upstream.example/prefix/")
	expect.NoError(t, err)
	return NewAuthorizer(proxytest.SendWithCredentials[Identity](reply), base, cfg)
}

// callersSecret is the token of a caller. No error may have it.
const callersSecret = "c4llers-s3cr3t"

// listPods returns the attributes of the question that most tests ask.
func listPods() *Attributes {
	return &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: "ns"}
}

// acceptedCaller returns a caller whom the upstream has accepted, with a flow of its own.
func acceptedCaller(id Identity) *Caller {
	return &Caller{Identity: id, Accepted: true, Flow: limits.Flow(id.Key())}
}

// allowed asks Review for a decision about an accepted caller, and reports whether it is a yes.
func (a *Authorizer) allowed(ctx context.Context, id Identity, attrs *Attributes) (bool, error) {
	ruling, err := a.Review(ctx, acceptedCaller(id), attrs)
	return ruling.Decision() == Yes, err
}

// reviewReply is a reply of the upstream to a review, and the decision that must follow.
type reviewReply struct {
	reply     proxytest.Transport
	want      Decision // the zero value is No
	wantError bool
}

// reviewReplies returns replies to the review of [listPods], by name. Where want is missing, the decision must be No.
func reviewReplies() map[string]reviewReply {
	const head = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1",`
	const spec = `"spec":{"resourceAttributes":{"namespace":"ns","verb":"list","version":"v1","resource":"pods"}},`
	const good = head + spec + `"status":{"allowed":true}}`
	// static returns a reply with a status code and a body.
	static := func(code int, body string) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return inmemory.Answer(r, code, body), nil }
	}
	// goodBut returns the good reply with a replacement for old.
	goodBut := func(old, replacement string) proxytest.Transport {
		return static(http.StatusCreated, strings.Replace(good, old, replacement, 1))
	}
	// status returns a reply that is a review with this status.
	status := func(s authorizationv1.SubjectAccessReviewStatus) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return proxytest.AnswerReview(r, s) }
	}
	withWarning := func(r *http.Request) (*http.Response, error) {
		resp, err := replyYes(r)
		resp.Header.Set("Warning", `299 - "Use another token."`)
		return resp, err
	}
	redirect := func(r *http.Request) (*http.Response, error) {
		resp := inmemory.Answer(r, http.StatusTemporaryRedirect, "")
		resp.Header.Set("Location", "https://elsewhere.example/")
		return resp, nil
	}
	noConnection := func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }
	brokenBody := func(r *http.Request) (*http.Response, error) {
		resp := inmemory.Answer(r, http.StatusCreated, "")
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(good), iotest.ErrReader(io.ErrUnexpectedEOF)))
		return resp, nil
	}
	replies := map[string]reviewReply{
		// Allowed.
		"allowed":            {reply: replyYes, want: Yes},
		"allowed, literally": {reply: static(http.StatusCreated, good), want: Yes},
		"allowed with 200":   {reply: static(http.StatusOK, good), want: Yes},
		"allowed, with an evaluation error": {
			reply: status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "role not found"}),
			want:  Yes,
		},
		"allowed, with a warning": {reply: withWarning, want: Warned},
		"large body": {
			reply: static(http.StatusCreated, good+strings.Repeat(" ", maxReviewBody-len(good))), want: Yes,
		},

		// Not allowed.
		"no opinion":         {reply: status(authorizationv1.SubjectAccessReviewStatus{})},
		"denied":             {reply: status(authorizationv1.SubjectAccessReviewStatus{Denied: true})},
		"allowed and denied": {reply: status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true})},

		// No review, or a review of another question.
		"null":                   {reply: static(http.StatusCreated, "null")},
		"no kind":                {reply: static(http.StatusCreated, "{"+spec+`"status":{"allowed":true}}`)},
		"no spec":                {reply: static(http.StatusCreated, head+`"status":{"allowed":true}}`)},
		"a field with a capital": {reply: goodBut(`"allowed"`, `"Allowed"`)},
		"wrong kind":             {reply: goodBut("SelfSubject", "Subject")},
		"wrong group":            {reply: goodBut("k8s.io/v1", "k8s.io/v1beta1")},
		"another namespace":      {reply: goodBut(`"ns"`, `"other"`)},
		"another verb":           {reply: goodBut(`"list"`, `"get"`)},
		"an additional name":     {reply: goodBut(`"verb"`, `"name":"x","verb"`)},
		"an additional selector": {reply: goodBut(`"verb"`, `"labelSelector":{"rawSelector":"a"},"verb"`)},
		"redirect":               {reply: redirect},

		// No whole response, or no JSON.
		"huge body": {
			reply: static(http.StatusCreated, strings.Repeat(" ", maxReviewBody)+good), wantError: true,
		},
		"no connection":          {reply: noConnection, wantError: true},
		"a body that breaks off": {reply: brokenBody, wantError: true},
		"empty body":             {reply: static(http.StatusCreated, ""), wantError: true},
		"garbage":                {reply: static(http.StatusCreated, "<html>allowed</html>"), wantError: true},
		"a truncated body":       {reply: static(http.StatusCreated, good[:len(good)-1]), wantError: true},
		"two bodies":             {reply: static(http.StatusCreated, good+good), wantError: true},
		"allowed as a string":    {reply: goodBut("true", `"true"`), wantError: true},
	}
	for _, code := range []int{202, 204, 400, 403, 404, 422} {
		replies[fmt.Sprint(code)] = reviewReply{reply: static(code, good)}
	}
	for _, code := range []int{429, 500, 503} {
		replies[fmt.Sprint(code)] = reviewReply{reply: static(code, good), wantError: true}
	}
	replies["401"] = reviewReply{reply: static(http.StatusUnauthorized, good), want: Unauthenticated}
	return replies
}

// TestReviewReplies: Review sends one review, and returns Yes only for a reply that allows exactly what was asked
// (reviewReplies has each reply with its decision). It remembers the decision unless there is an error. No error has the
// caller's credentials.
func TestReviewReplies(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		for name, tt := range reviewReplies() {
			t.Run(fmt.Sprintf("ttl %v/%s", ttl, name), func(t *testing.T) {
				var requests atomic.Int32
				counted := proxytest.Transport(func(r *http.Request) (*http.Response, error) {
					requests.Add(1)
					expect.Same(t, "POST https://upstream.example/prefix"+reviewPath, r.Method+" "+r.URL.String())
					expect.Same(t, http.Header{
						"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"listproxy"},
						"Authorization": {"Bearer " + callersSecret},
					}, r.Header)
					return tt.reply(r)
				})
				a := newAuthorizer(t, counted, ReviewConfig{TTL: ttl})
				id := proxytest.Identify(NewAuthenticator(nil), "Bearer "+callersSecret)
				for range 2 {
					got, err := a.Review(t.Context(), acceptedCaller(id), listPods())
					expect.Same(t, tt.want, got.Decision())
					if (err != nil) != tt.wantError {
						t.Errorf("got error %v, want one: %t", err, tt.wantError)
					}
					for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
						proxytest.AssertNotContains(t, fmt.Sprintf(verb, err), callersSecret)
					}
				}
				wantRequests := int32(2)
				if ttl > 0 && !tt.wantError {
					wantRequests = 1 // the second time, the answer is remembered
				}
				expect.Same(t, wantRequests, requests.Load())
			})
		}
	}
}

// TestReviewNotAsked: if a review cannot express a question, the decision is No, and no review is sent. If JSON cannot express
// the question's bytes, a review is sent, but the decision is No, too: the reply is about another question.
func TestReviewNotAsked(t *testing.T) {
	token := proxytest.Identify(NewAuthenticator(nil), "Bearer token")
	notUTF8 := listPods()
	notUTF8.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: "a=\xff"}
	for name, tt := range map[string]struct {
		id         Identity
		attributes *Attributes
		wantAsked  bool
	}{
		"an unidentified caller":           {id: Identity{}, attributes: listPods()},
		"no verb":                          {id: token, attributes: &Attributes{Version: "v1", Resource: "pods"}},
		"no version, which would mean all": {id: token, attributes: &Attributes{Verb: "list", Resource: "pods"}},
		"no resource":                      {id: token, attributes: &Attributes{Verb: "list", Version: "v1"}},
		"a selector that is not UTF-8":     {id: token, attributes: notUTF8, wantAsked: true},
	} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			asked := false
			a := newAuthorizer(t, func(r *http.Request) (*http.Response, error) {
				asked = true
				return replyYes(r)
			}, ReviewConfig{TTL: ttl})
			if yes, err := a.allowed(t.Context(), tt.id, tt.attributes); yes || err != nil {
				t.Errorf("%s: got allowed %t and error %v, want a no", name, yes, err)
			}
			if asked != tt.wantAsked {
				t.Errorf("%s: asked %t, want %t", name, asked, tt.wantAsked)
			}
		}
	}
}
