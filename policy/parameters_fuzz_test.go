package policy

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"

	"github.com/listproxy/listproxy/policy/reason"
)

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
		{"/api/v1//pods", "limit=05"},
		{"/api/v1/namespaces/%6es/pods", "limit=+5"},
		{"/api/v1/pods/", "a=b;c=d"},
		{"/api/v1/namespaces/../pods", "%6cimit=5"},
		{"/api/v1/namespaces/a%2fb/pods", "resourceVersion=0&resourceVersion=5"},
		{"/api/v1/pods", "sendInitialEvents=true&allowWatchBookmarks=true"},
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
			want = reason.Anonymous
		case by != PlainToken:
			want = reason.Credentials // there are more ways to write it
		case token != seen:
			t.Errorf("%q: the token is %q, the upstream sees %q", value, token, seen)
		}
		if why != want {
			t.Errorf("%q: the reason is %q, want %q", value, why, want)
		}
		h["Impersonate-User"] = []string{"x"}
		if why := checkIdentity(h, by); why != reason.Impersonation {
			t.Errorf("%q with impersonation: %q", value, why)
		}
		h = http.Header{"Authorization": {value, value}}
		by, _ = ReadAuthorization(h["Authorization"])
		if reason := checkIdentity(h, by); reason == "" {
			t.Errorf("%q twice is one identity", value)
		}
	})
}
