package policy

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
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

// listPath returns the canonical path of a list.
func listPath(group, version, namespace, resource string) string {
	prefix := "/api/" + version
	if group != "" {
		prefix = "/apis/" + group + "/" + version
	}
	if namespace != "" {
		return prefix + "/namespaces/" + namespace + "/" + resource
	}
	return prefix + "/" + resource
}

// checkParse requires that if Parse accepts a request, the API server's own code reads the same from its path, query and
// headers.
func checkParse(t *testing.T, r *http.Request) {
	t.Helper()
	// Any request may be forwarded.
	got, why := parse(r)
	if why != reason.None {
		if sentence, _ := why.Explain(); sentence == "" {
			t.Errorf("got the unknown reason %q", why)
		}
		if got.Labels == nil || got.Fields == nil {
			t.Errorf("got the selectors %v and %v, want none to be nil", got.Labels, got.Fields)
		}
		return
	}

	// The path is the canonical one, also before any decoding.
	path := listPath(got.Group, got.Version, got.Namespace, got.Resource)
	target, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path != path || r.URL.EscapedPath() != path || target != path {
		t.Errorf("got the path %q accepted, want only %q", r.RequestURI, path)
	}
	// The API server authorizes the same request.
	info, err := RequestInfo(r.Method, r.URL)
	expect.NoError(t, err)
	sameResource := info.IsResourceRequest && info.APIGroup == got.Group && info.APIVersion == got.Version &&
		info.Resource == got.Resource && info.Subresource == ""
	sameObjects := info.Namespace == got.Namespace && info.Name == got.Name &&
		info.LabelSelector == got.LabelSelector && info.FieldSelector == got.FieldSelector
	if !sameResource || !sameObjects || info.Verb != got.Verb() {
		t.Errorf("got %+v, but the upstream reads %+v", got, info)
	}

	// The API server decodes the same parameters. In a list, it ignores those that only a watch has.
	var options internalversion.ListOptions
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &options); err != nil {
		t.Fatalf("the upstream refuses the parameters of %q: %v", r.RequestURI, err)
	}
	wantOptions := ListOptions{
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: string(options.ResourceVersionMatch),
		Continue:             options.Continue,
		Limit:                options.Limit,
	}
	expect.Same(t, wantOptions, got.Options)
	wantWatch := WatchOptions{Bookmarks: options.AllowWatchBookmarks && options.Watch}
	if options.SendInitialEvents != nil {
		wantWatch.SendInitialEvents = strconv.FormatBool(*options.SendInitialEvents)
	}
	if options.TimeoutSeconds != nil && options.Watch {
		wantWatch.Timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	expect.Same(t, wantWatch, got.WatchOptions)

	// The API server parses the same selectors.
	if options.LabelSelector == nil {
		options.LabelSelector = labels.Everything()
	}
	if options.FieldSelector == nil {
		options.FieldSelector = fields.Everything()
	}
	if got.Labels.String() != options.LabelSelector.String() || got.Fields.String() != options.FieldSelector.String() {
		t.Errorf("got the selectors %q and %q, the upstream reads %q and %q",
			got.Labels, got.Fields, options.LabelSelector, options.FieldSelector)
	}

	// The API server writes the same representation, and decides alike.
	checkAccept(t, r.Header["Accept"], got.Watch)
	if got.Watch {
		checkWatch(t, got.Options, got.WatchOptions)
		return
	}
	checkPretty(t, r, got)
	checkList(t, got.Options)
}

// FuzzParse: if Parse accepts a request, the API server reads it in the same way (checkParse). The target and the headers are
// mutated separately, since most mutations of a whole request cannot be parsed.
func FuzzParse(f *testing.F) {
	for name, text := range understood {
		if _, why := parse(read(f, text)); why != reason.None {
			f.Errorf("%s is forwarded: %s", name, why)
		}
		target, headers, _ := strings.Cut(strings.TrimPrefix(text, "GET "), " HTTP/1.1\r\nHost: listproxy\r\n")
		f.Add(target, headers)
	}
	f.Add("//api/v1/p%6fds/?fieldSelector=metadata.name%3dx&labelSelector=a", alice)
	f.Add("/api/v1/pods?pretty=1;a=b&limit=+5", alice+"Impersonate-User: bob\r\nUser-Agent: curl/8\r\n")
	f.Add("http://listproxy/api/v1/pods", "Authorization: a\r\nAuthorization: b\r\n")
	f.Add("/api/v1/namespaces/a%2fb/pods", alice+"Transfer-Encoding: chunked\r\n\r\n0\r\n")
	f.Add("/api/v1/pods?limit=500&continue="+url.QueryEscape(EncodeContinue(4711, goodStart)), alice)
	f.Fuzz(func(t *testing.T, target, headers string) {
		if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(get(target, headers)))); err == nil {
			checkParse(t, r)
		}
	})
}

// FuzzAuthorization: an Authorization header identifies a caller only if ReadAuthorization finds a plain token in it. That
// token is the one that the API server reads.
func FuzzAuthorization(f *testing.F) {
	for _, value := range []string{
		"Bearer token", "bearer  token", "BEARER token more", " Bearer\ttoken", "Bearer ", "Bearer", "Basic dXNlcjpwYXNz",
		"Bearer token,Bearer other", "Negotiate x", "", "Bearer \u00a0x",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsAny(value, "\r\n\x00") {
			return // no header has these bytes
		}
		h := http.Header{"Authorization": {value}}
		var seenToken string // the token that the upstream reads; "" for none
		keepToken := func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			seenToken = token
			return nil, false, nil
		}
		_, _, _ = bearertoken.New(authenticator.TokenFunc(keepToken)).AuthenticateRequest(&http.Request{Header: h.Clone()})
		kind, token := ReadAuthorization(h["Authorization"])
		isPlain := kind == PlainToken
		if isIdentified := identifiesCaller(h, kind); isIdentified != isPlain {
			t.Errorf("%q: identifies the caller: %t, want %t", value, isIdentified, isPlain)
		}
		if isPlain && (token == "" || token != seenToken) {
			t.Errorf("%q: got the token %q, but the upstream reads %q", value, token, seenToken)
		}
	})
}

// checkPretty requires that Indented agrees with the API server's own code.
func checkPretty(t *testing.T, r *http.Request, req *Request) {
	t.Helper()
	for _, custom := range []bool{false, true} {
		if _, why := req.Accept.representation(custom); why != reason.None {
			continue
		}
		scope := newScope(scheme.Codecs.SupportedMediaTypes(), custom)
		_, info, err := negotiation.NegotiateOutputMediaType(r, scheme.Codecs, scope)
		if err != nil {
			t.Errorf("custom %t: the upstream does not accept the header: %v", custom, err)
			continue
		}
		want := info.PrettySerializer != nil && info.Serializer == info.PrettySerializer
		if got := req.Indented(custom); got != want {
			t.Errorf("%q, %v, custom %t: got indented %t, want %t", r.URL.RawQuery, r.Header, custom, got, want)
		}
	}
}

// TestPretty: for every combination of parameter, User-Agent and Accept header, Indented agrees with the API server
// (checkPretty).
func TestPretty(t *testing.T) {
	for _, query := range []string{
		"", "pretty=1", "pretty=t", "pretty=True", "pretty=%54", "pretty=yes", "pretty=tRUE", "pretty=0", "pretty=false", "pretty",
		"pretty=", "labelSelector=pretty", "pretty&limit=5", "pr%65tty=true",
	} {
		for _, userAgent := range []string{
			"", "x", "curl", "curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11)", "Mozilla/4.0", "Curl/8.5.0", "libcurl/8.5.0",
		} {
			for _, accept := range []string{
				"", "application/json", "application/json;pretty=1", "application/json;pretty=1;q=0.5,application/yaml",
				"application/json" + asMetadata, protobufType, protobufType + asMetadata, protobufType + ",application/json",
				protobufType + ",*/*;pretty=1",
			} {
				checkParse(t, read(t, get("/api/v1/pods?"+query, alice, "User-Agent: "+userAgent+"\r\n", "Accept: "+accept+"\r\n")))
			}
		}
	}
}
