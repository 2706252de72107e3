package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// saying is an upstream that gives everybody the same answer.
type saying struct {
	code int
	body string
}

func (saying) URL() *url.URL { return &url.URL{Scheme: "https", Host: "upstream.example"} }

func (s saying) RoundTripper(authn.Identity, bool) http.RoundTripper {
	return proxytest.Transport(func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, s.code, s.body), nil })
}

func (saying) Answered(authn.Identity, bool, string, int) {}

// TestWhoAnswers: each answer says where it came from, and whatever memory or a review lacks, it is the
// upstream that says no.
func TestWhoAnswers(t *testing.T) {
	const fromUpstream = "of the upstream"
	exactly := "resourceVersion=%s&resourceVersionMatch=Exact"
	for _, tt := range []struct {
		query     string
		refused   bool // by the review
		unaudited bool // the audit log cannot be written
		code      int  // the upstream's
		want      string
	}{
		{query: "resourceVersion=0", want: "listproxy; hit; detail=any"},
		{query: fmt.Sprintf(exactly, now), want: "listproxy; hit; detail=exact"},
		{query: "watch=true&timeoutSeconds=1&resourceVersion=" + now, want: "listproxy; hit; detail=after"},
		{query: fmt.Sprintf(exactly, "3"), code: http.StatusOK, want: "listproxy; fwd=miss; detail=history"},
		{query: fmt.Sprintf(exactly, "3"), code: http.StatusGone, want: "listproxy; fwd=miss; detail=history"},
		{query: fmt.Sprintf(exactly, "999"), code: http.StatusOK, want: "listproxy; fwd=miss; detail=not-proven"},
		{query: "resourceVersion=0", refused: true, code: http.StatusOK, want: "listproxy; fwd=bypass; detail=not-allowed"},
		{query: "resourceVersion=0", refused: true, code: http.StatusForbidden, want: "listproxy; fwd=bypass; detail=not-allowed"},
		{query: "resourceVersion=0", unaudited: true, code: http.StatusOK, want: "listproxy; fwd=bypass; detail=audit"},
		{query: "limit=x", code: http.StatusBadRequest, want: "listproxy; fwd=bypass; detail=not-canonical"},
		{query: "nobody=knows", code: http.StatusOK, want: "listproxy; fwd=bypass; detail=not-canonical"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			h := w.handler
			h.Observer, _ = observetest.New(nil)
			h.Forward = forward.New(saying{tt.code, fromUpstream}, proxytest.DiscardLog())
			if tt.refused {
				w.review(t, 0, func(r *http.Request) (*http.Response, error) {
					return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{})
				})
			}
			who := w.caller(t)
			if tt.unaudited {
				h.AuditLog = audit.NewLog(&auditSink{}, proxytest.DiscardLog())
				expect.NoError(t, h.AuditLog.Close(t.Context()))
				who.identity = authntest.New(t).OfUser(&user.DefaultInfo{Name: "jane"})
			}
			r := w.request(t.Context(), tt.query)
			out := httptest.NewRecorder()
			through(http.HandlerFunc(h.respond), kubehttp.WithRequestInfo, h.withRecord).ServeHTTP(out, withCaller(r, &who))
			expect.Same(t, []string{tt.want}, out.Header()[kubehttp.CacheStatusHeader])
			if tt.code != 0 && (out.Code != tt.code || out.Body.String() != fromUpstream) {
				t.Errorf("%s: %d %s, the upstream says %d", tt.query, out.Code, out.Body, tt.code)
			}
		})
	}
}

// TestReviewsAskForTheRequest: all that the upstream would authorize is in the review, as the client
// wrote it.
func TestReviewsAskForTheRequest(t *testing.T) {
	const all, one = "/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/n/widgets"
	for target, want := range map[string]authorizationv1.ResourceAttributes{
		all + "?resourceVersion=0": {Verb: "list"},
		one + "?resourceVersion=0": {Verb: "list", Namespace: "n"},
		one + "?resourceVersion=0&fieldSelector=metadata.name%3Dx": {
			Verb: "list", Namespace: "n", Name: "x", FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "metadata.name=x"},
		},
		all + "?watch=1&resourceVersion=7&labelSelector=a+in+(b)&fieldSelector=spec.nodeName%3Dy": {
			Verb:          "watch",
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b)"},
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=y"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			var asked authorizationv1.SelfSubjectAccessReviewSpec
			w.review(t, 0, func(r *http.Request) (_ *http.Response, err error) {
				asked, err = proxytest.ReviewAsked(r)
				return proxytest.JSONResponse(r, http.StatusCreated, "{}"), err
			})
			r := w.request(t.Context(), "")
			r.URL, r.RequestURI = httptest.NewRequest(http.MethodGet, target, nil).URL, target
			w.handler.decide(r, w.caller(t))
			want.Group, want.Version, want.Resource = "example.com", "v1", "widgets"
			expect.Same(t, &want, asked.ResourceAttributes)
		})
	}
}
