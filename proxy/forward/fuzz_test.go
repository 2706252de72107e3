package forward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// fixedUpstream sends every request with one transport.
type fixedUpstream struct{ transport http.RoundTripper }

func (fixedUpstream) URL() *url.URL {
	return &url.URL{Scheme: "https", Host: "upstream:6443", Path: "/prefix"}
}

func (u fixedUpstream) RoundTripper(auth.Identity, *kubehttp.Request) http.RoundTripper {
	return u.transport
}

func (fixedUpstream) RecordAnswer(auth.Identity, bool, string, int) {}

// sendThrough forwards r, and returns the request as an upstream reads it off the wire, with its raw target. It returns nil if
// the forwarder refuses r, or if net/http would not send it.
func sendThrough(t *testing.T, r *http.Request) (*http.Request, string) {
	t.Helper()
	var outgoing *http.Request
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no upstream")
	}}
	transport.RegisterProtocol("https", proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		outgoing = r
		return proxytest.JSONResponse(r, http.StatusOK, ""), nil
	}))
	w := httptest.NewRecorder()
	New(fixedUpstream{transport}, proxytest.DiscardLog()).ServeAs(w, r, auth.Identity{}, nil)
	if outgoing == nil {
		if w.Code != http.StatusBadRequest && w.Code != http.StatusServiceUnavailable {
			t.Errorf("nothing was sent, and the answer is %d, want 400 or 503", w.Code)
		}
		return nil, ""
	}
	var text bytes.Buffer
	if err := outgoing.Write(&text); err != nil {
		return nil, "" // the transport would not send it either
	}
	in := bufio.NewReader(&text)
	line, _, _ := strings.Cut(text.String(), "\r\n")
	got, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("the upstream does not read %q: %v", line, err)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%q follows the request (%v), want nothing: it must be one request", rest, err)
	}
	target := strings.TrimSuffix(strings.TrimPrefix(line, r.Method+" "), " HTTP/1.1")
	return got, target
}

// isRemoved reports whether a forwarder must drop a header: one in which a caller claims something about itself, or one of the
// connection. listed are the names in its Connection header, in lower case.
func isRemoved(name string, listed []string) bool {
	lower := strings.ToLower(name)
	dashed := strings.ReplaceAll(lower, "_", "-") // as some gateways read it
	return dashed == "forwarded" || dashed == "x-real-ip" || strings.HasPrefix(dashed, "x-forwarded-") || strings.HasPrefix(dashed, "x-remote-") ||
		slices.Contains([]string{
			"connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
			"transfer-encoding", "upgrade", "content-length", "host",
		}, lower) || slices.Contains(listed, lower)
}

// FuzzForward: the upstream reads one request, with the caller's target byte for byte, and with all of the caller's headers
// and credentials, but for those that isRemoved names. No other header is added.
func FuzzForward(f *testing.F) {
	for _, text := range []string{
		// Several values of a credential, impersonation.
		"GET /api/v1/pods?limit=5 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nImpersonate-User: b\r\nImpersonate-Group: c\r\nImpersonate-Group: d\r\nImpersonate-Uid: 1\r\n",
		// Hop-by-hop lists that name identity headers, other headers, and headers that must not be dropped.
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Impersonate-User\r\nImpersonate-User: a\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, impersonate-extra-x\r\nImpersonate-Extra-X: a\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: authorization\r\nAuthorization: Bearer a\r\n",
		"GET /? HTTP/1.1\r\nHost: x\r\nConnection: close, x-own\r\nX-Own: a\r\nImpersonate-Extra-a%2fb: c\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nConnection: X-Forwarded-For, Host, User-Agent\r\nKeep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: keep-alive\r\n",
		// Claims about the caller, also in other letters and with underscores.
		"GET /a HTTP/1.1\r\nHost: x\r\nForwarded: for=a\r\nX-Forwarded-For: a\r\nX-Real-Ip: b\r\nX_Remote_User: c\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nImpersonate_User: x\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nX-REMOTE-EXTRA-Scopes: x\r\nX-Remote-Uid: 1\r\nX-Forwarded-Host: a\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Uri: /\r\n",
		// Names that only look like claims, and usual headers.
		"GET /a HTTP/1.1\r\nHost: x\r\nX-Remotely: 1\r\nX-Forward: 2\r\nForwarded-By: 3\r\nTe: gzip\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: kubectl/v1.36.3\r\nAccept-Encoding: gzip\r\nAudit-Id: 1\r\nX-Custom: a\r\nX-Custom: b\r\n",
		// Unusual targets, and a trailer that names a credential.
		"GET //api/%2f/..;x=%zz?a;b&%% HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\nx-remote-group: system:masters\r\n",
		"GET http://other/a HTTP/1.1\r\nHost: x\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n",
		"GET /a\\b|c\"<> HTTP/1.1\r\nHost: x\r\nTe: trailers\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\nCookie: a=b\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, head string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n")))
		if err != nil || r.Method == http.MethodConnect {
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding, r.RemoteAddr = http.NoBody, 0, nil, "192.0.2.1:1234"
		callers := r.Header.Clone()
		got, target := sendThrough(t, r)
		if got == nil {
			return
		}
		if want := "/prefix" + r.RequestURI; target != want {
			t.Errorf("the target is %q, want %q", target, want)
		}
		expect.Same(t, "upstream:6443", got.Host)
		expect.Same(t, []string{"192.0.2.1"}, got.Header["X-Forwarded-For"])
		got.Header.Del("X-Forwarded-For")
		var listed []string
		for _, value := range callers["Connection"] {
			for name := range strings.SplitSeq(value, ",") {
				listed = append(listed, strings.ToLower(strings.TrimSpace(name)))
			}
		}
		for name, values := range callers {
			identity := name == "Authorization" || strings.HasPrefix(name, "Impersonate-")
			if arrived := got.Header[name]; identity || !isRemoved(name, listed) {
				if diff := cmp.Diff(values, arrived); diff != "" {
					t.Errorf("%s:\n%s", name, diff)
				}
			}
		}
		ofTheConnection, addedByHTTP := []string{"Connection", "Upgrade", "Te", "Content-Length"}, []string{"Content-Length", "User-Agent"}
		for name, values := range got.Header {
			if isRemoved(name, nil) && !slices.Contains(ofTheConnection, name) {
				t.Errorf("%s: %q arrived, which must be removed", name, values)
			}
			if _, sentByCaller := callers[name]; !sentByCaller && !slices.Contains(addedByHTTP, name) {
				t.Errorf("%s: %q arrived, which the caller had not sent", name, values)
			}
		}
	})
}
