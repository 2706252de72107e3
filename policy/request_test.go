package policy

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

// alice is the header line with a caller's token.
const alice = "Authorization: Bearer a-token\r\n"

// read returns the request that net/http's server reads from text.
func read(t testing.TB, text string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	expect.NoError(t, err)
	return r
}

// get returns the text of a GET. headers are whole lines, with their line breaks.
func get(target string, headers ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: listproxy\r\n" + strings.Join(headers, "") + "\r\n"
}

// parse calls Parse as the proxy does: with the RequestInfo of r's path, and the kind of r's credentials.
func parse(r *http.Request) (*Request, reason.Reason) {
	info, err := RequestInfo(r.Method, &url.URL{Path: r.URL.Path})
	if err != nil {
		info = &request.RequestInfo{}
	}
	credentials, _ := ReadAuthorization(r.Header["Authorization"])
	return Parse(r, info, credentials)
}

// understood has requests of clients for which Parse returns None. FuzzParse checks this, and begins with them.
var understood = map[string]string{
	// Paths.
	"core resource":                         get("/api/v1/pods", alice),
	"one namespace":                         get("/api/v1/namespaces/a-b/pods", alice),
	"a namespace of digits":                 get("/api/v1/namespaces/123/pods", alice),
	"a namespace called like a subresource": get("/api/v1/namespaces/status/pods", alice),
	"group":                                 get("/apis/apps/v1/deployments", alice),
	"group and namespace":                   get("/apis/stable.example.com/v1beta1/namespaces/ns/crontabs", alice),
	"namespaces":                            get("/api/v1/namespaces", alice),
	"a resource called proxy":               get("/apis/example.com/v1/namespaces/ns/proxy", alice),

	// Parameters.
	"empty query":                 get("/api/v1/pods?", alice),
	"an exact revision":           get("/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&limit=500", alice),
	"options that Decide judges":  get("/api/v1/pods?resourceVersion=-1&resourceVersionMatch=Bogus&continue=abc", alice),
	"limit 0":                     get("/api/v1/pods?limit=0", alice),
	"largest limit":               get("/api/v1/pods?limit=9223372036854775807", alice),
	"escaped parameter":           get("/api/v1/pods?%6cimit=%33", alice),
	"timeout of a Go client":      get("/api/v1/pods?timeout=32s", alice),
	"timeout 0":                   get("/api/v1/pods?timeout=0", alice),
	"a watch's parameters":        get("/api/v1/pods?timeoutSeconds=300&allowWatchBookmarks=true", alice),
	"list of the Java client":     get("/api/v1/pods?resourceVersion=0&watch=false", alice),
	"list of the Python client":   get("/api/v1/pods?allowWatchBookmarks=False&watch=False", alice),
	"watch":                       get("/api/v1/pods?watch=true", alice),
	"watch=1":                     get("/api/v1/pods?watch=1&allowWatchBookmarks=false", alice),
	"watch as long as the server": get("/api/v1/pods?watch=true&timeoutSeconds=0", alice),
	"watch of a day":              get("/api/v1/pods?watch=true&timeoutSeconds=86400", alice),
	"empty options": get(
		"/api/v1/pods?resourceVersion=&resourceVersionMatch=&continue=&labelSelector=&fieldSelector=", alice,
	),
	"selectors": get(
		"/api/v1/namespaces/ns/pods?labelSelector=b%3Dc,a&fieldSelector=status.phase!%3DFailed,metadata.name%3D%3Dx&limit=5",
		alice,
	),
	"watch with a list's options": get(
		"/api/v1/pods?watch=true&limit=5&pretty=true&timeout=7s&labelSelector=a%3Db", alice,
	),
	"watch of the Python client": get(
		"/api/v1/pods?resourceVersion=5&watch=True&allowWatchBookmarks=True&timeoutSeconds=5", alice,
	),
	"watch without the state": get(
		"/api/v1/pods?watch=TRUE&sendInitialEvents=False&resourceVersionMatch=NotOlderThan", alice,
	),
	"streaming list": get(
		"/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", alice,
		"Accept: application/json;stream=watch\r\n",
	),

	// Headers.
	"length 0":                               get("/api/v1/pods", alice, "Content-Length: 0\r\n"),
	"connection":                             get("/api/v1/pods", alice, "Connection: Keep-Alive\r\nConnection: close,\r\n"),
	"ignored headers":                        get("/api/v1/pods", alice, "Range: bytes=0-1\r\nIf-None-Match: *\r\n"),
	"a name like impersonation":              get("/api/v1/pods", alice, "Impersonation: x\r\n"),
	"lower case headers":                     get("/api/v1/pods", strings.ToLower(alice)),
	"typed client":                           get("/api/v1/pods", alice, "Accept: "+protobufType+",application/json\r\n"),
	"Accept that only custom resources know": get("/apis/example.com/v1/things", alice, "Accept: *\r\n"),
	"kubectl":                                get("/api/v1/pods", alice, "User-Agent: kubectl/v1.36.3 (linux/amd64)\r\n"),
}

// checkReason requires that Parse returns a reason for a request.
func checkReason(t *testing.T, want reason.Reason, text string) {
	t.Helper()
	if _, got := parse(read(t, text)); got != want {
		t.Errorf("got reason %q, want %q: %q", got, want, text)
	}
}

// TestFirstReason: if several reasons to forward apply to a request, Parse returns the first in the order of the package's
// documentation.
func TestFirstReason(t *testing.T) {
	const (
		badAccept  = "Accept: text/html\r\n"
		badHeaders = "Origin: x\r\nImpersonate-User: bob\r\n" + badAccept
		badLabels  = "labelSelector=!!"
		badQuery   = badLabels + "&foo"
	)
	for first, tt := range map[string]struct {
		text string
		want reason.Reason
	}{
		"an object":           {text: get("/api/v1/pods/name?"+badQuery, badHeaders), want: reason.NotList},
		"the parameter watch": {text: get("/api/v1/pods?"+badQuery+"&watch", badHeaders), want: reason.Watch},
		"the path":            {text: get("/api/v1/pods/?"+badQuery+"&watch", badHeaders), want: reason.NotCanonical},
		"the parameter foo":   {text: get("/api/v1/pods?"+badQuery+"&pretty", badHeaders), want: reason.NotCanonical},
		"the header Origin":   {text: get("/api/v1/pods?"+badLabels, badHeaders), want: reason.NotCanonical},
		"two tokens":          {text: get("/api/v1/pods?"+badLabels, alice, alice, badAccept), want: reason.Credentials},
		"no token":            {text: get("/api/v1/pods?"+badLabels, badAccept), want: reason.Credentials},
		"the selector":        {text: get("/api/v1/pods?"+badLabels, alice, badAccept), want: reason.NotCanonical},
	} {
		t.Run(first, func(t *testing.T) { checkReason(t, tt.want, tt.text) })
	}
}

// TestForwardedMethods: a request with another method than GET is not a list.
func TestForwardedMethods(t *testing.T) {
	for _, method := range []string{"HEAD", "POST", "DELETE", "OPTIONS", "get"} {
		checkReason(t, reason.NotList, strings.Replace(get("/api/v1/pods", alice), "GET", method, 1))
	}
	checkReason(t, reason.NotList, strings.Replace(get("listproxy:443", alice), "GET", "CONNECT", 1))
	checkReason(t, reason.NotList, strings.Replace(get("*", alice), "GET", "OPTIONS", 1))
}

// TestForwardedBodies: a request with a body is not canonical.
func TestForwardedBodies(t *testing.T) {
	checkReason(t, reason.NotCanonical, get("/api/v1/pods", alice, "Content-Length: 1\r\n")+"x")
	checkReason(t, reason.NotCanonical, get("/api/v1/pods", alice, "Transfer-Encoding: chunked\r\n")+"0\r\n\r\n")
}

// TestForwardedTargets: Parse returns the reason to forward for each of these request targets.
func TestForwardedTargets(t *testing.T) {
	for want, targets := range map[reason.Reason][]string{
		reason.NotList: {
			// Documents.
			"/", "/healthz", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/apix/v1/pods",
			// Objects and their subresources.
			"/api/v1/pods/name", "/api/v1/nodes/name/status", "/api/v1/namespaces/ns", "/api/v1/namespaces/ns/status",
			"/api/v1/namespaces/ns/", "/api/v1/namespaces/ns/pods/name", "/api/v1/namespaces/ns/pods/name/log?follow=true",
			"/api/v1/namespaces/ns/pods//log", "/apis/example.com/v1/namespaces/ns/things/a/b/c/d",
			// Paths that RequestInfo reads as something else than they seem to be.
			"/api/v1/proxy/namespaces/ns/pods/name", "/api/v1/proxy", "/api//v1/pods", "/api/v1//pods", "/api/v1%2Fx/pods",
			"/api/../api/v1/pods", "/api/v1/watch",
		},
		reason.Watch: {
			"/api/v1/watch/pods", "/api/v1/watch/namespaces/ns/pods", "/api/v1/watch/namespaces/ns/pods/name",
			"/api/v1/pods?watch", "/api/v1/pods?watch=no", "/api/v1/pods?watch=true&watch=false", "/api/v1/pods?watch=tRUE",
			"/api/v1/pods?watch=",
		},
		reason.NotCanonical: {
			// Slashes, dots and escapes in the path.
			"/api/v1/pods/", "//api/v1/pods", "/apis//v1/pods", "/api/v1/namespaces//pods", "/api/v1/namespaces/",
			"/api/v1/p%6fds", "/api/v1/namespaces/%2e%2e/pods", "/api/v1/namespaces/../pods", "/api/v1/pods;v=1",
			"/api/v1/pods%00", "/api/v1/..", "/api/v1/pods#fragment",
			// Invalid names.
			"/api/v1/namespaces/ns/namespaces", "/apis/example.com/v1/namespaces/ns/namespaces", "/api/v1/namespaces/NS/pods",
			"/api/v1/namespaces/a.b/pods", "/api/v1/namespaces/-a/pods", "/api/v1/Pods", "/api/V1/pods",
			"/apis/Apps/v1/deployments", "/apis/a_b/v1/deployments",
			// Whole URLs.
			"http://listproxy/api/v1/pods", "https://user@listproxy:443/api/v1/pods",
			// Parameters that are unknown, malformed or repeated.
			"/api/v1/pods?foo=bar", "/api/v1/pods?=", "/api/v1/pods?a;b", "/api/v1/pods?limit=1;limit=2", "/api/v1/pods?Limit=1",
			"/api/v1/pods?limit=%zz", "/api/v1/pods?limit=%", "/api/v1/pods?limit=1&limit=1",
			"/api/v1/pods?resourceVersion=1&resourceVersion=2", "/api/v1/pods?watch=false&watch=false",
			"/api/v1/pods?watch=0&watch=1", "/api/v1/pods?pretty=1&pretty=1", "/api/v1/pods?pr%65tty=1",
			"/api/v1/pods?pr%65tty=1&labelSelector=pr%65tty", "/api/v1/pods?shardSelector=x", "/api/v1/pods?dryRun=All",
			"/api/v1/pods?includeObject=None",
			// Numbers and durations.
			"/api/v1/pods?limit=", "/api/v1/pods?limit", "/api/v1/pods?limit=-1", "/api/v1/pods?limit=%2B1",
			"/api/v1/pods?limit=01", "/api/v1/pods?limit=1e3", "/api/v1/pods?limit=9223372036854775808",
			"/api/v1/pods?timeout=", "/api/v1/pods?timeout=5", "/api/v1/pods?timeout=-1s", "/api/v1/pods?timeout=soon",
			"/api/v1/pods?timeout=1ns", "/api/v1/pods?timeout=999ms",
			"/api/v1/pods?timeoutSeconds=", "/api/v1/pods?timeoutSeconds=-1", "/api/v1/pods?timeoutSeconds=1.5",
			// Booleans, and a parameter that only watches have.
			"/api/v1/pods?allowWatchBookmarks=yes", "/api/v1/pods?allowWatchBookmarks=", "/api/v1/pods?watch=fALSE",
			"/api/v1/pods?sendInitialEvents=true",
			// Watches.
			"/api/v1/pods?watch=true&continue=x", "/api/v1/pods?watch=true&timeoutSeconds=86401",
			"/api/v1/pods?watch=true&limit=x", "/api/v1/pods?watch=true&sendInitialEvents=no",
			"/api/v1/pods?watch=true&sendInitialEvents=",
			// Selectors.
			"/api/v1/pods?labelSelector=a%3D%3D%3Db", "/api/v1/pods?labelSelector=%20",
		},
	} {
		for _, target := range targets {
			checkReason(t, want, get(target, alice))
		}
	}
}

// TestForwardedHeaders: Parse returns the reason to forward for a list with one of these headers, besides the caller's token.
func TestForwardedHeaders(t *testing.T) {
	for want, headers := range map[reason.Reason][]string{
		reason.NotCanonical: {
			"Connection: Upgrade\r\nUpgrade: websocket", "Upgrade: websocket", "Upgrade:", "Connection: Upgrade",
			"Connection: keep-alive, Authorization", "Connection: close\r\nConnection: X-Remote-User",
			"Origin: https://example.com",
		},
		reason.Credentials: {
			"Impersonate-User: bob", "impersonate-group: system:masters", "Impersonate-Extra-Scopes: x", "Impersonate-Uid: 1",
			"Impersonate-Whatever:", "Impersonate_User: bob", "Authorization:",
		},
		reason.Representation: {
			"Accept: application/json\r\nAccept: application/json",
			"Accept: application/yaml", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
		},
	} {
		for _, header := range headers {
			checkReason(t, want, get("/api/v1/pods", alice, header+"\r\n"))
		}
	}
}

// TestForwardedCredentials: Parse returns Credentials for a list with these headers alone. (FuzzAuthorization has more.)
func TestForwardedCredentials(t *testing.T) {
	for _, headers := range []string{
		"", "Impersonate-User: bob\r\n", "Authorization: Bearer b c\r\n", alice + alice,
		"Authorization:\r\nauthorization: Bearer b\r\n",
	} {
		checkReason(t, reason.Credentials, get("/api/v1/pods", headers))
	}
}

// TestParseWithImpersonation: Impersonate-* headers are a reason to forward, but not if the credentials include them, as
// TokenWithImpersonation does.
func TestParseWithImpersonation(t *testing.T) {
	for credentials, want := range map[CredentialKind]reason.Reason{
		TokenWithImpersonation: reason.None, PlainToken: reason.Credentials, VerifiedCertificate: reason.Credentials,
	} {
		r := read(t, get("/api/v1/pods", alice, "Impersonate-User: bob\r\n"))
		info, err := RequestInfo(r.Method, r.URL)
		expect.NoError(t, err)
		_, got := Parse(r, info, credentials)
		expect.Same(t, want, got)
	}
}
