package policy

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

// checkParse: whatever we accept, the API server reads in the same way, the
// request's query included.
func checkParse(t *testing.T, r *http.Request) {
	t.Helper()
	got, why := parse(r)
	if why != "" {
		if !slices.Contains(reason.Forwarding(), why) {
			t.Errorf("unknown reason %q", why)
		}
		if got.Labels == nil || got.Fields == nil {
			t.Errorf("selectors %v and %v", got.Labels, got.Fields)
		}
		return
	}

	path := listPath(got.Group, got.Version, got.Namespace, got.Resource)
	target, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path != path || r.URL.EscapedPath() != path || target != path {
		t.Errorf("path %q, rebuilt %q", r.RequestURI, path)
	}
	info, err := RequestInfo(r.Method, r.URL)
	expect.NoError(t, err)
	if !info.IsResourceRequest || info.Verb != got.Verb() || info.Name != got.Name || info.Subresource != "" ||
		info.APIGroup != got.Group || info.APIVersion != got.Version || info.Resource != got.Resource || info.Namespace != got.Namespace ||
		info.LabelSelector != got.LabelSelector || info.FieldSelector != got.FieldSelector {
		t.Errorf("parsed as %+v, upstream as %+v", got, info)
	}

	var options internalversion.ListOptions
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &options); err != nil {
		t.Fatalf("the upstream refuses the parameters of %q: %v", r.RequestURI, err)
	}
	upstream := ListOptions{
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: string(options.ResourceVersionMatch),
		Continue:             options.Continue,
		Limit:                options.Limit,
	}
	expect.Same(t, upstream, got.Options)
	ofWatch := WatchOptions{Bookmarks: options.AllowWatchBookmarks && options.Watch}
	if options.SendInitialEvents != nil {
		ofWatch.SendInitialEvents = strconv.FormatBool(*options.SendInitialEvents)
	}
	if options.TimeoutSeconds != nil && options.Watch {
		ofWatch.Timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	expect.Same(t, ofWatch, got.WatchOptions)
	if options.LabelSelector == nil {
		options.LabelSelector = labels.Everything()
	}
	if options.FieldSelector == nil {
		options.FieldSelector = fields.Everything()
	}
	if got.Labels.String() != options.LabelSelector.String() || got.Fields.String() != options.FieldSelector.String() {
		t.Errorf("selectors %q and %q, upstream %q and %q", got.Labels, got.Fields, options.LabelSelector, options.FieldSelector)
	}

	checkAccept(t, r.Header["Accept"], got.Watch)
	if got.Watch {
		checkWatchWithUpstream(t, got.Options, got.WatchOptions)
		return
	}
	checkPretty(t, r, got)
	checkWithUpstream(t, got.Options, decide(got.Options))
}

func FuzzParse(f *testing.F) {
	for _, text := range understood {
		f.Add(text)
	}
	for _, text := range []string{
		get("//api/v1/p%6fds/?fieldSelector=metadata.name%3dx&labelSelector=a", alice),
		get("/api/v1/pods?pretty=1;a=b", "Impersonate-User: bob\r\n", "User-Agent: curl/8\r\n"),
		get("http://listproxy/api/v1/pods", "Authorization: a\r\nAuthorization: b\r\n"),
		"GET /api/v1/pods HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		checkParse(t, r)
	})
}

// FuzzTarget mutates path and query by themselves: of most mutations of whole requests nothing is
// left to be parsed.
func FuzzTarget(f *testing.F) {
	token := url.QueryEscape(EncodeContinue(4711, goodStart))
	for _, target := range [][2]string{
		{"/api/v1/pods", "limit=5&resourceVersion=7&resourceVersionMatch=Exact"},
		{"/apis/apps/v1/namespaces/ns/deployments", "continue=" + token + "&limit=500"},
		{"/api/v1/namespaces/ns/pods", "labelSelector=a+in+(b,c),!d&fieldSelector=metadata.name%3dx"},
		{"/api/v1/watch/pods", "watch=0&watch=1"},
		{"/api/v1/namespaces/ns/pods", "watch=false&timeout=5m&timeoutSeconds=5"},
		{"/api/v1/namespaces/ns/pods", "watch=1&timeout=5m&timeoutSeconds=5&resourceVersion=7"},
		{"/api/v1//pods", "limit=05"},
		{"/api/v1/namespaces/%6es/pods", "limit=+5"},
		{"/api/v1/pods/", "a=b;c=d"},
		{"/api/v1/namespaces/../pods", "%6cimit=5"},
		{"/api/v1/namespaces/a%2fb/pods", "resourceVersion=0&resourceVersion=5"},
		{"/api/v1/pods", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"},
		{"/api/v1/pods", "shardSelector=x&pretty=0"},
	} {
		f.Add(target[0], target[1])
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		text := "GET " + path + "?" + query + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nAccept: application/json\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		checkParse(t, r)
	})
}

// FuzzAuthorization: who is somebody to us is somebody to the API server, by the same one value,
// and who is nobody to it is nobody to us.
func FuzzAuthorization(f *testing.F) {
	for _, value := range []string{
		"Bearer token", "bearer  token", "BEARER token more", " Bearer\ttoken", "Bearer ", "Bearer", "Basic dXNlcjpwYXNz",
		"Bearer token,Bearer other", "Negotiate x", "", "Bearer \u00a0x",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsAny(value, "\r\n\x00") {
			return // no header has that
		}
		h := http.Header{"Authorization": {value}}
		asked, seen := false, ""
		upstream := bearertoken.New(authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			asked, seen = token != "", token
			return nil, false, nil
		}))
		_, _, _ = upstream.AuthenticateRequest(&http.Request{Header: h.Clone()})
		by, token := ReadAuthorization(h["Authorization"])
		why := checkIdentity(h, by)
		want := reason.Reason("")
		switch {
		case !asked:
			want = reason.Credentials
		case by != PlainToken:
			want = reason.Credentials // there are more ways to write it
		case token != seen:
			t.Errorf("%q: the token is %q, the upstream sees %q", value, token, seen)
		}
		if why != want {
			t.Errorf("%q: the reason is %q, want %q", value, why, want)
		}
		h["Impersonate-User"] = []string{"x"}
		if why := checkIdentity(h, by); why != reason.Credentials {
			t.Errorf("%q with impersonation: %q", value, why)
		}
		h = http.Header{"Authorization": {value, value}}
		by, _ = ReadAuthorization(h["Authorization"])
		if reason := checkIdentity(h, by); reason == "" {
			t.Errorf("%q twice is one identity", value)
		}
	})
}

// checkPretty: we indent what the API server's own code would indent.
func checkPretty(t *testing.T, r *http.Request, req Request) {
	t.Helper()
	for _, custom := range []bool{false, true} {
		if _, why := req.Accept.Representation(custom); why != "" {
			continue
		}
		_, info, err := negotiation.NegotiateOutputMediaType(r, scheme.Codecs, restrictions(scheme.Codecs.SupportedMediaTypes(), custom))
		if err != nil {
			t.Errorf("custom %t: not acceptable to the upstream: %v", custom, err)
			continue
		}
		want := info.PrettySerializer != nil && info.Serializer == info.PrettySerializer
		if got := req.Indented(custom); got != want {
			t.Errorf("%q, %v, custom %t: indented %t, the upstream says %t", r.URL.RawQuery, r.Header, custom, got, want)
		}
	}
}

// FuzzPretty: the parameter, the User-Agent and the clause of the Accept header that is chosen decide it
// together.
func FuzzPretty(f *testing.F) {
	for _, query := range []string{
		"", "pretty=1", "pretty=t", "pretty=True", "pretty=%54", "pretty=yes", "pretty=tRUE", "pretty=0", "pretty=false", "pretty", "pretty=",
		"labelSelector=pretty", "pretty&limit=5", "pr%65tty=true",
	} {
		for _, userAgent := range []string{
			"", "x", "curl", "curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "Mozilla/4.0", "Curl/8.5.0", "libcurl/8.5.0",
		} {
			for _, accept := range []string{
				"", "application/json", "application/json;pretty=1", "application/json" + asMetadata, protobufType, protobufType + asMetadata,
				protobufType + ",application/json", protobufType + ",*/*;pretty=1", "application/json;pretty=1;q=0.5,application/yaml",
			} {
				f.Add(query, userAgent, accept)
			}
		}
	}
	f.Fuzz(func(t *testing.T, query, userAgent, accept string) {
		r := &http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: "/api/v1/pods", RawQuery: query}, RequestURI: "/api/v1/pods?" + query,
			Header: http.Header{"User-Agent": {userAgent}, "Accept": {accept}, "Authorization": {"Bearer x"}},
			Body:   http.NoBody,
		}
		if req, why := parse(r); why == "" {
			checkPretty(t, r, req)
		}
	})
}
